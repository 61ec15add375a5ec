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
import collections
import concurrent.futures
import tempfile

import framework_checks
import gpubench
import sharing
import watch

PROGRAM = gpubench.HERE / "framework_checks.py"
VARIANTS = ("unified", "daemon", "turns", "shares")
TIMEOUT_S = 150
STOPPED = b"GPU work stands still"  # a line of the library's log (src/preempt/preempt.c)


def parse_arguments():
    parser = sharing.parser(__doc__, memory=False)
    sharing.option(parser, "--only", ",".join(framework_checks.CHECKS), "checks")
    parser.add_argument("--variants", help=f"default: {','.join(VARIANTS)}; with --quick: unified,turns")
    sharing.option(parser, "--jobs", 8, "checks at once")
    sharing.option(parser, "--times", 1, "each check in its process")
    sharing.option(parser, "--tq", 0.3, "quantum of `turns` in seconds")
    sharing.option(parser, "--rate", 50, "of `shares`, in percent")
    args = parser.parse_args()
    args.only = sharing.words_of(parser, args.only, framework_checks.CHECKS)
    default = "unified,turns" if args.quick else ",".join(VARIANTS)
    args.variants = sharing.words_of(parser, args.variants or default, VARIANTS)
    return args


class Runner:
    """Runs single checks."""

    def __init__(self, bench, caches):
        self.bench, self.caches = bench, caches
        self.stops = collections.Counter()  # variant -> how often work was stopped

    def hash(self, name, variant, daemon=None, label=""):
        """The hash of one run, or BenchError."""
        bench, check, kind = self.bench, framework_checks.CHECKS[name], "daemon" if daemon else variant
        cache = tempfile.mkdtemp(prefix=f"cache-{name}-{variant}-", dir=self.caches)  # compile anew in every variant
        env = check["env"] | dict.fromkeys(("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"), cache)
        if variant == "shares":
            env["GPUSHARE_CLASS"] = "opportunistic"
        if variant in ("turns", "shares"):
            env["GPUSHARE_LOG"] = "debug"
        command = [PROGRAM, name, "--times", bench.args.times]
        with bench.job(f"{name}-{variant}{label}", command, kind, daemon, gib=check["managed_gib"], env=env) as job:
            told = job.expect("result", TIMEOUT_S)
            gpubench.check_guest(kind, told, job, daemon)
            job.finish(30)
        self.stops[variant] += job.error_path.read_bytes().count(STOPPED)
        return told["hash"]

    def try_hash(self, name, variant, daemon=None, label=""):
        """The hash, or the BenchError."""
        try:
            return self.hash(name, variant, daemon, label)
        except gpubench.BenchError as error:
            gpubench.note(f"{variant}: {error}")
            return error

    def all(self, variant, daemon=None):
        """name -> hash, or the BenchError, for all checks, some of them at once."""
        slow_first = sorted(self.bench.args.only, key=lambda name: not framework_checks.CHECKS[name]["slow"])
        with concurrent.futures.ThreadPoolExecutor(self.bench.args.jobs) as pool:
            return dict(zip(slow_first, pool.map(lambda name: self.try_hash(name, variant, daemon), slow_first)))


class Shares:
    """Gives each job its rate when it is first seen."""

    def __init__(self, daemon, rate):
        self.daemon, self.rate, self.seen = daemon, rate, set()

    def look(self, status):
        for job in (job["job"] for gpu in status["gpus"] for job in gpu["jobs"]):
            if job not in self.seen:
                self.daemon.ctl("set-rate", str(job), f"{self.rate}%")
            self.seen.add(job)


def run_variant(bench, runner, variant):
    args = bench.args
    gpubench.note(f"{variant}: {len(args.only)} checks, {args.jobs} at once")
    if variant in ("stock", "unified"):
        return runner.all(variant)
    with bench.daemon(*("on", args.tq) if variant == "turns" else ("auto", None), None) as daemon:
        if variant == "shares":
            with watch.Watch(daemon, Shares(daemon, args.rate).look, 0.02):
                return runner.all(variant, daemon)
        results = runner.all(variant, daemon)
        if variant == "turns":
            gpubench.note(f"turns: {gpubench.counter(daemon.status(), 'handovers')} hand-overs")
        return results


def verdict(runner, name, stock, ours):
    """The stock run is repeated only when the results differ."""
    if isinstance(stock, Exception):
        return "no_stock"
    if isinstance(ours, Exception):
        return "failed"
    if ours == stock:
        return "same"
    return "DIFFERENT" if runner.try_hash(name, "stock", label="-again") == stock else "unstable"


def run(bench):
    args, figures, counts = bench.args, bench.figures, collections.Counter()
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as caches:
        runner = Runner(bench, caches)
        stock = run_variant(bench, runner, "stock")
        for variant in args.variants:
            results = run_variant(bench, runner, variant)
            if variant in ("turns", "shares"):
                figures.add(f"frameworks_{variant}_stops", runner.stops[variant])
            for name in args.only:
                said = verdict(runner, name, stock[name], results[name])
                counts[said] += 1
                figures.add(f"{name}_{variant}", said)
    for said in ("same", "DIFFERENT", "failed", "unstable", "no_stock"):
        figures.add(f"frameworks_{said}", counts[said])
    if counts["DIFFERENT"] or counts["failed"] or not counts["same"]:
        bench.wrong.append("frameworks: not all of them the same")


if __name__ == "__main__":
    sharing.main("frameworks", parse_arguments, run)
