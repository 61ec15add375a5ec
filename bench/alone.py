#!/usr/bin/env python3
"""What libunified costs a program that has the card for itself: stock, GPUSHARE_MEMORY=managed and =swap.

Eleven workloads (bench/workloads.py), bound by computing or by launching: training and inference of image networks and
transformers, word by word generation, embeddings, a CUDA graph, a network so small that only launches count.

A cohort is one fresh process per variant; only one of them works at a time. For each workload the processes take turns
of --window seconds in changing order, and each block of turns gives one ratio of times; so what the machine does over
time touches all variants alike. A figure is the median over the blocks of all cohorts; the spread is that between
the cohorts' own medians. Cohorts are started while the time lasts, and at least one runs.

--control adds a second stock process, whose ratio would be 1 if nothing but chance were at work. --daemon runs
managed and swap with a private daemon (mode auto, the whole card). Managed memory: at most 12 GiB.
"""
import contextlib
import math
import statistics
import time

import gpubench
import sharing
import workloads

PROGRAM = gpubench.HERE / "workloads.py"
GEOMEAN_TARGETS = {"swap": 0.998, "managed": 0.998}
WORST_TARGET = 0.98
ENOUGH_WORKLOADS = 8
BUILD_S = 90
RUN_S = 60


def parse_arguments():
    parser = sharing.parser(__doc__, memory=False)
    parser.set_defaults(deadline=240)
    parser.add_argument("--only", default=",".join(workloads.NAMES), metavar="NAMES", help="default: %(default)s")
    sharing.option(parser, "--cohorts", 3, "at most")
    sharing.option(parser, "--blocks", 4, "per workload and cohort")
    sharing.option(parser, "--window", 0.2, "in seconds")
    parser.add_argument("--control", action="store_true", help="a second stock process")
    parser.add_argument("--daemon", action="store_true", help="with a daemon")
    args = parser.parse_args()
    args.only = sharing.words_of(parser, args.only, workloads.NAMES)
    args.variants = ["managed", "swap"] + ["control"] * args.control
    if args.quick:
        args.cohorts, args.blocks, args.window = 1, min(args.blocks, 3), min(args.window, 0.15)
    return args


class WorkloadError(gpubench.BenchError):
    """A workload failed in one of the processes, which goes on."""


class Cohort:
    """One process per variant, all of them held."""

    def __init__(self, bench, stack, number, daemon):
        self.bench, self.daemon = bench, daemon
        self.jobs = {}
        for variant in ["stock"] + bench.args.variants:
            self.jobs[variant] = stack.enter_context(self.job(variant, number))
        for job in self.jobs.values():
            job.expect("imported", sharing.IMPORT_S)
        for job in self.jobs.values():
            job.go()
        self.preloaded = {variant: job.expect("ready", sharing.IMPORT_S) for variant, job in self.jobs.items()}

    def kind(self, variant):
        return "stock" if variant in ("stock", "control") else "daemon" if self.daemon else "unified"

    def job(self, variant, number):
        return self.bench.job(f"cohort{number}-{variant}", [PROGRAM], self.kind(variant), self.daemon, variant,
                              workloads.LIMIT_GIB)

    def answer(self, variant, timeout_s):
        answer = self.jobs[variant].expect("ready", timeout_s)
        if "error" in answer:
            raise WorkloadError(f"{variant}: {answer['error']}")
        return answer

    def order(self, variant, order, timeout_s):
        """One process does something while the others wait; its answer."""
        self.jobs[variant].go(order)
        return self.answer(variant, timeout_s)

    def build(self, name):
        """In all processes at once; all have answered before one's failure counts."""
        failed = None
        for job in self.jobs.values():
            job.go({"do": "build", "workload": name})
        for variant in self.jobs:
            try:
                self.answer(variant, BUILD_S)
            except WorkloadError as error:
                failed = error
        if failed:
            raise failed

    def check_guests(self):
        """Once they have used the GPU."""
        for variant, job in self.jobs.items():
            gpubench.check_guest(self.kind(variant), self.preloaded[variant], job, self.daemon)

    def blocks(self, name):
        """variant -> the ratios stock's time / its own, one per block."""
        self.build(name)
        self.check_guests()
        count = max(1, self.order("stock", {"do": "run", "seconds": self.bench.args.window}, RUN_S)["iterations"])
        ratios = {variant: [] for variant in self.bench.args.variants}
        turns = list(self.jobs)
        for block in range(self.bench.args.blocks):
            first = block % len(turns)
            taken = {variant: self.order(variant, {"do": "run", "iterations": count}, RUN_S)["seconds"]
                     for variant in turns[first:] + turns[:first]}
            for variant, values in ratios.items():
                values.append(taken["stock"] / taken[variant])
            if first == len(turns) - 1:
                turns.reverse()
        for variant in self.jobs:
            self.order(variant, {"do": "drop"}, RUN_S)
        return ratios, count / taken["stock"]

    def finish(self):
        for job in self.jobs.values():
            job.finish(60)


class Ratios:
    """All that was measured: workload -> variant -> a list of ratios per cohort."""

    def __init__(self, variants):
        self.variants = variants
        self.found = {}

    def add(self, name, ratios):
        for variant, values in ratios.items():
            self.found.setdefault(name, {}).setdefault(variant, []).append(values)

    def figure(self, name, variant):
        """The median of all blocks, and how far apart the cohorts' medians are."""
        cohorts = self.found[name][variant]
        medians = [statistics.median(values) for values in cohorts]
        return statistics.median([value for values in cohorts for value in values]), max(medians) - min(medians)

    def geomean(self, variant):
        return math.exp(statistics.mean(math.log(self.figure(name, variant)[0]) for name in self.found))


def run_cohort(bench, number, daemon, ratios):
    with contextlib.ExitStack() as stack:
        cohort = Cohort(bench, stack, number, daemon)
        for name in bench.args.only:
            gpubench.note(f"cohort {number}: {name}, {bench.budget.left():.0f} s left")
            with sharing.noted(bench, f"cohort {number}, {name}", WorkloadError):
                found, rate = cohort.blocks(name)
                ratios.add(name, found)
                if number == 1:
                    bench.figures.add(f"alone_{name}_stock", rate, "it/s")
        cohort.finish()


def run_cohorts(bench, daemon, ratios):
    for number in range(1, bench.args.cohorts + 1):
        begun = time.monotonic()
        with sharing.noted(bench, f"cohort {number}"):
            run_cohort(bench, number, daemon, ratios)
        if bench.wrong or bench.budget.left() < 1.05 * (time.monotonic() - begun):
            return number
    return bench.args.cohorts


def report(bench, ratios):
    figures, judged = bench.figures, not bench.args.quick
    if len(ratios.found) < ENOUGH_WORKLOADS and judged and len(bench.args.only) >= ENOUGH_WORKLOADS:
        bench.wrong.append(f"only {len(ratios.found)} workloads were measured")
    if not ratios.found:
        return
    for name in ratios.found:
        for variant in ratios.variants:
            ratio, spread = ratios.figure(name, variant)
            figures.add(f"alone_{name}_{variant}_over_stock", round(ratio, 4))
            figures.add(f"alone_{name}_{variant}_spread", round(spread, 4))
    for variant in ratios.variants:
        figures.add(f"alone_{variant}_geomean_over_stock", round(ratios.geomean(variant), 4))
        worst = min(ratios.found, key=lambda name: ratios.figure(name, variant)[0])
        figures.add(f"alone_{variant}_worst", worst)
        figures.add(f"alone_{variant}_worst_over_stock", round(ratios.figure(worst, variant)[0], 4))
        if variant in GEOMEAN_TARGETS:
            figures.judge(f"alone_{variant}_geomean_over_stock", at_least=GEOMEAN_TARGETS[variant], judged=judged)
            figures.judge(f"alone_{variant}_worst_over_stock", at_least=WORST_TARGET, judged=judged)


def run(bench):
    ratios = Ratios(bench.args.variants)
    try:
        with bench.daemon("auto", None, None) if bench.args.daemon else contextlib.nullcontext() as daemon:
            cohorts = run_cohorts(bench, daemon, ratios)
        bench.figures.add("alone_cohorts", cohorts)
    finally:
        report(bench, ratios)


if __name__ == "__main__":
    sharing.main("alone", parse_arguments, run)
