#!/usr/bin/env python3
"""What sharing costs: ResNet-50 trainings alone, and two whose memory does not fit together.

Parts (--only alone,tight):
  tight   two trainings of 10 GiB each in a capacity of 16 GiB, mode auto and on: both finish, with the weights and
          the memory contents that each has when it runs alone (deterministic settings)
  alone   stock, libunified without a daemon, libunified with one, in fresh processes, one after the other and
          interleaved; ratio of the medians to stock. Batch 64, and 4, where launching is what takes the time

Each figure is one line `name value [unit]`. Exit status 1 if anything is wrong or did not finish. Managed memory: at
most 28 GiB at once.
"""
import argparse
import contextlib
import statistics
import sys

import gpubench

PROGRAM = gpubench.HERE / "train.py"
PARTS = ("tight", "alone")
BATCHES = (64, 4)
TARGETS = {64: 0.985, 4: 0.98}
ALONE_GIB = 14  # a training of batch 64 needs about 10
START_S = 90  # import, context, the first iterations
TIGHT_BATCH = 16
TIGHT_GIB = 10
TIGHT_LIMIT_GIB = 11
TIGHT_CAPACITY = "16GiB"


class Bench:
    """Where things are, what may still be spent, and what was wrong."""

    def __init__(self, args):
        self.args = args
        self.build, self.out, self.budget, self.guard, self.figures = gpubench.prepare(args)
        self.serial = 0
        self.wrong = []
        self.batches = args.batches

    def job(self, variant, daemon, managed_gib, *options):
        """A training that waits at each of its stages."""
        self.serial += 1
        env = gpubench.variant_env(variant, self.build, daemon)
        guard = None if variant == "stock" else self.guard
        command = [self.args.python, PROGRAM, "--held", "--limit-gib", managed_gib, *options]
        return gpubench.Job(f"train-{self.serial:02}-{variant}", command, env, self.out, self.budget, guard, managed_gib)

    def result(self, job, variant, daemon, timeout_s):
        """The result of a job that runs; the job is still held."""
        told = job.expect("result", timeout_s)
        gpubench.check_guest(variant, told, job, daemon)
        if not told["ballast_right"]:
            self.wrong.append(f"{job.name}: memory does not hold what was written to it")
        return told

    def is_right(self, name, right, detail=""):
        self.figures.add(name, "same" if right else "DIFFERENT")
        if not right:
            self.wrong.append(f"{name} {detail}".strip())


def start_together(stack, jobs):
    """Enter the jobs and bring all of them to their measurement."""
    for job in jobs:
        stack.enter_context(job)
    for job in jobs:
        job.expect("imported", START_S)
        job.go()
    for job in jobs:
        job.expect("ready", START_S)


def run_together(bench, jobs, variant, daemon, timeout_s):
    """Let jobs run their measurement at the same time; their results, in order."""
    with contextlib.ExitStack() as stack:
        start_together(stack, jobs)
        for job in jobs:
            job.go()
        results = [bench.result(job, variant, daemon, timeout_s) for job in jobs]
        for job in jobs:
            job.finish(60)
    return results


# --- alone


def measure(bench, job, variant, daemon, upcoming):
    """Rates by batch of a job that was imported; the upcoming job imports while this one warms up."""
    rates = {}
    job.go()
    batches = bench.batches
    for index, batch in enumerate(batches):
        job.expect("ready", START_S)
        if index == 0 and upcoming:
            upcoming.expect("imported", START_S)
        job.go()
        rates[batch] = bench.result(job, variant, daemon, bench.args.seconds * 4 + 60)["rate"]
        if index + 1 < len(batches):
            job.go()
    job.finish(60)
    return rates


def alone_runs(bench, daemon):
    """variant -> batch -> rates, in fresh processes: ABCABC…; only the running one has touched the GPU."""
    order = list(gpubench.VARIANTS) * bench.args.repeat
    rates = {variant: {batch: [] for batch in bench.batches} for variant in gpubench.VARIANTS}
    options = ("--batch", ",".join(map(str, bench.batches)), "--seconds", bench.args.seconds)
    with contextlib.ExitStack() as stack:
        upcoming = stack.enter_context(bench.job(order[0], daemon, ALONE_GIB, *options))
        upcoming.expect("imported", START_S)
        for index, variant in enumerate(order):
            job, upcoming = upcoming, None
            if index + 1 < len(order):
                upcoming = stack.enter_context(bench.job(order[index + 1], daemon, ALONE_GIB, *options))
            gpubench.note(f"alone: {variant}, run {index + 1} of {len(order)}")
            for batch, rate in measure(bench, job, variant, daemon, upcoming).items():
                rates[variant][batch].append(rate)
            job.__exit__()
    return rates


def print_alone(bench, rates):
    for batch in bench.batches:
        stock = statistics.median(rates["stock"][batch])
        for variant in gpubench.VARIANTS:
            values = rates[variant][batch]
            name = f"alone_b{batch}_{variant}"
            bench.figures.add(name, statistics.median(values), "it/s")
            bench.figures.add(name + "_spread", (max(values) - min(values)) / statistics.median(values))
            if variant != "stock":
                bench.figures.add(name + "_over_stock", round(statistics.median(values) / stock, 4))
        bench.figures.add(f"alone_b{batch}_target", TARGETS[batch])


def run_alone(bench):
    with gpubench.Daemon(bench.build, bench.out, "auto") as daemon:
        rates = alone_runs(bench, daemon)
    print_alone(bench, rates)


# --- tight


def tight_jobs(bench, variant, daemon):
    return [bench.job(variant, daemon, TIGHT_LIMIT_GIB, "--batch", TIGHT_BATCH, "--iterations",
                      bench.args.tight_iterations, "--deterministic", "--memory-gib", TIGHT_GIB, "--seed", seed)
            for seed in (1, 2)]


def run_tight_mode(bench, daemon, mode, expected):
    gpubench.note(f"tight: mode {mode}, capacity {TIGHT_CAPACITY}, TQ {bench.args.tight_tq:g} s")
    results = run_together(bench, tight_jobs(bench, "daemon", daemon), "daemon", daemon, 150)
    status = daemon.status()
    name = f"tight_{mode}"
    hashes = [r["hash"] for r in results]
    bench.is_right(name + "_results", hashes == expected and all(r["ballast_right"] for r in results),
                   f"{hashes} is not {expected}")
    bench.figures.add(name + "_all_done_at",
                      max(r["end_s"] for r in results) - min(r["start_s"] for r in results), "s")
    for figure, unit in (("handovers", ""), ("moved_bytes", "B")):
        bench.figures.add(f"{name}_{figure}", gpubench.counter(status, figure), unit)


def tight_expected(bench):
    """Both trainings under the stock driver, each by itself; and whether it repeats its own result."""
    alone = [run_together(bench, [job], "stock", None, 90)[0] for job in tight_jobs(bench, "stock", None)]
    bench.figures.add("tight_stock_alone", sum(r["end_s"] - r["start_s"] for r in alone), "s")
    return [r["hash"] for r in alone]


def run_tight(bench):
    expected = tight_expected(bench)
    if expected[0] == expected[1]:
        bench.wrong.append("tight: two seeds gave the same weights, the comparison would mean nothing")
    for mode in ("auto", "on"):
        with gpubench.Daemon(bench.build, bench.out, mode, bench.args.tight_tq, TIGHT_CAPACITY) as daemon:
            run_tight_mode(bench, daemon, mode, expected)


RUN = {"alone": run_alone, "tight": run_tight}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpubench.common_arguments(parser)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, in this order (default: %(default)s)")
    parser.add_argument("--batches", default=BATCHES, type=lambda text: tuple(map(int, text.split(","))),
                        help="of the part alone: 64,4 or one of them (default: both)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each variant alone (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement alone (default: %(default)g)")
    parser.add_argument("--tight-iterations", type=int, default=400, help="default: %(default)s")
    parser.add_argument("--tight-tq", type=float, default=2, help="in seconds (default: %(default)g)")
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = parse_arguments()
    parts = args.only.split(",")
    if set(parts) - set(PARTS):
        raise gpubench.BenchError(f"unknown parts: {' '.join(sorted(set(parts) - set(PARTS)))}")
    bench = Bench(args)
    gpubench.note(f"logs in {bench.out}")
    for part in parts:
        try:
            RUN[part](bench)
        except gpubench.BenchError as error:
            bench.wrong.append(f"{part}: {error}")
            gpubench.note(bench.wrong[-1])
    bench.figures.add("overhead_wrong", len(bench.wrong))
    bench.figures.finish()
    for line in bench.wrong:
        gpubench.note(f"WRONG {line}")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except gpubench.BenchError as error:
        raise SystemExit(f"overhead.py: {error}") from None
