#!/usr/bin/env python3
"""Do the frameworks compute the same with libunified as without? One line per check and variant.

Variants: unified (libunified, no daemon), daemon (a private daemon, mode auto), turns (mode on and a short quantum,
while the other checks compete for the GPU: captures and compilations must survive hand-overs), shares (each check is
opportunistic and has --rate of the time, so that its work is stopped and let on fifty times a second, wherever it is).
frameworks_turns_stops and frameworks_shares_stops are how often that was, by the library's debug log.

Prints `NAME_VARIANT same`, or DIFFERENT, unstable (the stock program does not repeat its own result, so nothing can
be said), failed (why: on stderr), no_stock (the stock program failed), and at the end how many there were of each. Exit
status 1 if any is DIFFERENT or failed though the stock program ran, or if none is the same.
"""
import argparse
import collections
import concurrent.futures
import sys
import tempfile

import framework_checks
import gpubench
import watch

PROGRAM = gpubench.HERE / "framework_checks.py"
VARIANTS = ("unified", "daemon", "turns", "shares")
TIMEOUT_S = 150
STOPPED = b"GPU work stands still"  # a line of the library's log (src/preempt/preempt.c)


class Runner:
    """Runs single checks and remembers nothing but where things are."""

    def __init__(self, build, out, budget, guard, args, caches):
        self.build, self.out, self.budget, self.guard = build, out, budget, guard
        self.python, self.times, self.caches = args.python, args.times, caches
        self.stops = collections.Counter()  # variant -> how often work was stopped

    def env(self, name, variant, daemon):
        env = gpubench.variant_env("daemon" if daemon else variant, self.build, daemon)
        env.update(framework_checks.CHECKS[name]["env"])
        if variant == "shares":
            env["GPUSHARE_CLASS"] = "opportunistic"
        if variant in ("turns", "shares"):
            env["GPUSHARE_LOG"] = "debug"
        cache = tempfile.mkdtemp(prefix=f"cache-{name}-{variant}-", dir=self.caches)  # compile anew in every variant
        env["TORCHINDUCTOR_CACHE_DIR"] = env["TRITON_CACHE_DIR"] = env["CUPY_CACHE_DIR"] = cache
        return env

    def hash(self, name, variant, daemon=None, label=""):
        """The hash of one run, or BenchError."""
        guard = None if variant == "stock" else self.guard
        job = gpubench.Job(f"{name}-{variant}{label}", [self.python, PROGRAM, name, "--held", "--times", self.times],
                           self.env(name, variant, daemon), self.out, self.budget, guard,
                           framework_checks.CHECKS[name]["managed_gib"])
        with job:
            told = job.expect("result", TIMEOUT_S)
            gpubench.check_guest("daemon" if daemon else variant, told, job, daemon)
            job.finish(30)
        self.stops[variant] += job.error_path.read_bytes().count(STOPPED)
        return told["hash"]


def run_all(runner, names, variant, jobs, daemon=None):
    """name -> hash, or the BenchError, for all checks, some of them at once."""
    def one(name):
        try:
            return name, runner.hash(name, variant, daemon)
        except gpubench.BenchError as error:
            gpubench.note(f"{variant}: {error}")
            return name, error
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        slow_first = sorted(names, key=lambda name: not framework_checks.CHECKS[name]["slow"])
        return dict(pool.map(one, slow_first))


class Shares:
    """Gives each job its rate when it is first seen."""

    def __init__(self, daemon, rate):
        self.daemon, self.rate, self.seen = daemon, rate, set()

    def look(self, status):
        for job in (job["job"] for gpu in status["gpus"] for job in gpu["jobs"]):
            if job not in self.seen:
                self.daemon.ctl("set-rate", str(job), f"{self.rate}%")
            self.seen.add(job)


def run_shares(runner, names, args):
    with gpubench.Daemon(runner.build, runner.out, mode="auto") as daemon:
        with watch.Watch(daemon, Shares(daemon, args.rate).look, 0.02):
            return run_all(runner, names, "shares", args.jobs, daemon)


def run_variant(runner, names, variant, args):
    gpubench.note(f"{variant}: {len(names)} checks, {args.jobs} at once")
    if variant in ("stock", "unified"):
        return run_all(runner, names, variant, args.jobs)
    if variant == "shares":
        return run_shares(runner, names, args)
    settings = {"mode": "on", "tq_s": args.tq} if variant == "turns" else {"mode": "auto"}
    with gpubench.Daemon(runner.build, runner.out, **settings) as daemon:
        results = run_all(runner, names, variant, args.jobs, daemon)
        if variant == "turns":
            gpubench.note(f"turns: {gpubench.counter(daemon.status(), 'handovers')} hand-overs")
        return results


def verdict(stock, ours, again):
    """again() repeats the stock run; it is asked for only when the results differ."""
    if isinstance(stock, Exception):
        return "no_stock"
    if isinstance(ours, Exception):
        return "failed"
    if ours == stock:
        return "same"
    repeated = again()
    return "unstable" if repeated != stock else "DIFFERENT"


def stock_again(runner, name):
    try:
        return runner.hash(name, "stock", label="-again")
    except gpubench.BenchError as error:
        return error


def report(figures, runner, names, stock, results, variant):
    counts = collections.Counter()
    for name in names:
        said = verdict(stock[name], results[name], lambda n=name: stock_again(runner, n))
        counts[said] += 1
        figures.add(f"{name}_{variant}", said)
    return counts


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpubench.common_arguments(parser)
    parser.add_argument("--only", help="these checks: torch_eager,jax (default: all)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=8, help="checks at once (default: %(default)s)")
    parser.add_argument("--times", type=int, default=1, help="each check in its process (default: %(default)s)")
    parser.add_argument("--tq", type=float, default=0.3, help="quantum of `turns` in seconds (default: %(default)g)")
    parser.add_argument("--rate", type=int, default=50, metavar="PERCENT", help="of `shares` (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = parse_arguments()
    names = args.only.split(",") if args.only else list(framework_checks.CHECKS)
    variants = args.variants.split(",")
    unknown = [name for name in names if name not in framework_checks.CHECKS]
    unknown += [variant for variant in variants if variant not in VARIANTS]
    if unknown:
        raise gpubench.BenchError(f"unknown: {' '.join(unknown)}")
    build, out, budget, guard, figures = gpubench.prepare(args)
    gpubench.note(f"logs in {out}")
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as caches:
        runner = Runner(build, out, budget, guard, args, caches)
        stock = run_variant(runner, names, "stock", args)
        for variant in variants:
            results = run_variant(runner, names, variant, args)
            if variant in ("turns", "shares"):
                figures.add(f"frameworks_{variant}_stops", runner.stops[variant])
            counts += report(figures, runner, names, stock, results, variant)
    for said in ("same", "DIFFERENT", "failed", "unstable", "no_stock"):
        figures.add(f"frameworks_{said}", counts[said])
    figures.finish()
    return 1 if counts["DIFFERENT"] or counts["failed"] or not counts["same"] else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except gpubench.BenchError as error:
        raise SystemExit(f"frameworks.py: {error}") from None
