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
import contextlib
import statistics

import gpubench
import sharing

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


def job_of(bench, variant, daemon, managed_gib, *options):
    """A training that waits at each of its stages."""
    return bench.job(variant, [PROGRAM, "--held", "--limit-gib", managed_gib, *options], variant, daemon, gib=managed_gib)


def result_of(bench, job, variant, daemon, timeout_s):
    """The result of a job that runs; the job is still held."""
    told = job.expect("result", timeout_s)
    gpubench.check_guest(variant, told, job, daemon)
    if not told["ballast_right"]:
        bench.wrong.append(f"{job.name}: memory does not hold what was written to it")
    return told


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
        results = [result_of(bench, job, variant, daemon, timeout_s) for job in jobs]
        for job in jobs:
            job.finish(60)
    return results


# --- alone


def measure(bench, job, variant, daemon, upcoming):
    """Rates by batch of a job that was imported; the upcoming job imports while this one warms up."""
    rates = {}
    job.go()
    batches = bench.args.batches
    for index, batch in enumerate(batches):
        job.expect("ready", START_S)
        if index == 0 and upcoming:
            upcoming.expect("imported", START_S)
        job.go()
        rates[batch] = result_of(bench, job, variant, daemon, bench.args.seconds * 4 + 60)["rate"]
        if index + 1 < len(batches):
            job.go()
    job.finish(60)
    return rates


def alone_runs(bench, daemon):
    """variant -> batch -> rates, in fresh processes: ABCABC…; only the running one has touched the GPU."""
    order = list(gpubench.VARIANTS) * bench.args.repeat
    rates = {variant: {batch: [] for batch in bench.args.batches} for variant in gpubench.VARIANTS}
    options = ("--batch", ",".join(map(str, bench.args.batches)), "--seconds", bench.args.seconds)
    with contextlib.ExitStack() as stack:
        upcoming = stack.enter_context(job_of(bench, order[0], daemon, ALONE_GIB, *options))
        upcoming.expect("imported", START_S)
        for index, variant in enumerate(order):
            job, upcoming = upcoming, None
            if index + 1 < len(order):
                upcoming = stack.enter_context(job_of(bench, order[index + 1], daemon, ALONE_GIB, *options))
            gpubench.note(f"alone: {variant}, run {index + 1} of {len(order)}")
            for batch, rate in measure(bench, job, variant, daemon, upcoming).items():
                rates[variant][batch].append(rate)
            job.__exit__()
    return rates


def print_alone(bench, rates):
    for batch in bench.args.batches:
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
    with bench.daemon("auto", None, None) as daemon:
        rates = alone_runs(bench, daemon)
    print_alone(bench, rates)


# --- tight


def tight_jobs(bench, variant, daemon):
    options = ("--batch", TIGHT_BATCH, "--iterations", bench.args.tight_iterations, "--memory-gib", TIGHT_GIB,
               "--deterministic")
    return [job_of(bench, variant, daemon, TIGHT_LIMIT_GIB, *options, "--seed", seed) for seed in (1, 2)]


def run_tight_mode(bench, daemon, mode, expected):
    gpubench.note(f"tight: mode {mode}, capacity {TIGHT_CAPACITY}, TQ {bench.args.tight_tq:g} s")
    results = run_together(bench, tight_jobs(bench, "daemon", daemon), "daemon", daemon, 150)
    status = daemon.status()
    name = f"tight_{mode}"
    found = [[r["hash"] for r in results], all(r["ballast_right"] for r in results)]
    sharing.check_same(bench, name, [found], [expected, True])
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
        with bench.daemon(mode, bench.args.tight_tq, TIGHT_CAPACITY) as daemon:
            run_tight_mode(bench, daemon, mode, expected)


RUN = {"alone": run_alone, "tight": run_tight}


def parse_arguments():
    parser = sharing.parser(__doc__, memory=False, budget="--deadline")
    sharing.option(parser, "--only", ",".join(PARTS), "parts, in this order")
    parser.add_argument("--batches", default=BATCHES, type=lambda text: tuple(map(int, text.split(","))),
                        help="of the part alone: 64,4 or one of them (default: both)")
    sharing.option(parser, "--repeat", 3, "runs of each variant alone")
    sharing.option(parser, "--seconds", 5.0, "of each measurement alone")
    sharing.option(parser, "--tight-iterations", 400)
    sharing.option(parser, "--tight-tq", 2.0, "in seconds")
    args = parser.parse_args()
    args.only = sharing.words_of(parser, args.only, PARTS)
    if args.quick:
        args.repeat, args.seconds, args.tight_iterations = 1, min(args.seconds, 3), min(args.tight_iterations, 200)
    return args


def run(bench):
    for part in bench.args.only:
        with sharing.noted(bench, part):
            RUN[part](bench)


if __name__ == "__main__":
    sharing.main("overhead", parse_arguments, run)
