#!/usr/bin/env python3
"""Two trainings on the card together, over one alone.

  stock  without libunified: the GPU's own time slicing
  auto   libunified: no turns, as they fit
  mps    that, and the daemon's MPS (spatial = mps)
  1      turns, with this quantum in seconds; any other as well

The best of ours is to do at least as much as one stock training alone, if it does not only take turns; with turns of
1, 0.05 and 0.02 s 0.99, 0.95 and 0.90 of that. That one runs before and after the pairs, and
so does one training alone under libunified: what the library itself costs is told apart from what sharing costs.
"""
import contextlib

import gpubench
import mps
import sharing
import trainings

TARGET = 1.0
TURN_TARGETS = {1: 0.99, 0.05: 0.95, 0.02: 0.90}  # by the quantum in seconds
NAMED = ("stock", "auto", "mps")


def parse_arguments():
    parser = trainings.shared_parser(__doc__)
    sharing.option(parser, "--only", "stock,auto,mps,1", "modes")
    sharing.option(parser, "--pair-seconds", 20.0, "of each pair")
    parser.add_argument("--capacity", help="of the GPU, as for the daemon (10GiB); default: the card's")
    parser.add_argument("--empty-cache", action="store_true", help="the library frees what PyTorch's cache keeps, at a turn's end")
    args = parser.parse_args()
    args.only = args.only.split(",")
    if any(mode not in NAMED and not mode.replace(".", "", 1).isdigit() for mode in args.only):
        parser.error(f"--only: {', '.join(NAMED)} and quanta in seconds")
    if args.quick:
        args.pair_seconds, args.alone_seconds = min(args.pair_seconds, 8), min(args.alone_seconds, 5)
    return args


def run_jobs(bench, mode, daemon):
    """Both at once; iterations per second of the two while both ran."""
    with contextlib.ExitStack() as stack:
        jobs = trainings.Trainings(bench, stack, daemon)
        for index in (1, 2):
            jobs.add(f"training {index}", seed=index, settings={"GPUSHARE_EMPTY_CACHE": "1"} if bench.args.empty_cache else {})
        jobs.wait_imported()
        for name in jobs.jobs:
            jobs.go(name, {"seconds": bench.args.pair_seconds})
        for name in jobs.jobs:
            jobs.wait_done(name, 3 * bench.args.pair_seconds)
        if mode == "mps":
            mps.check_programs(daemon.status()["daemon"]["mps_programs"], len(jobs.jobs))
        jobs.conclude()
        results = jobs.results.values()
        return trainings.aggregate(results, max(result["start_s"] for result in results),
                                   min(result["end_s"] for result in results))


def run_mode(bench, mode):
    if mode == "stock":
        return run_jobs(bench, mode, None)
    tq_s, spatial = None if mode in NAMED else float(mode), mode if mode == "mps" else None
    with bench.daemon("on" if tq_s else "auto", tq_s, bench.args.capacity, spatial) as daemon:
        if spatial:
            mps.await_of_daemon(daemon)
        daemon.ctl("set-policy", trainings.POLICY)
        rate = run_jobs(bench, mode, daemon)
        status = daemon.status()
        moved_bytes = sum(gpubench.moves(status).get(name, 0) for name in ("evicted_bytes", "restored_bytes"))
        bench.figures.add(f"pair_{name_of(mode)}_handovers", gpubench.counter(status, "handovers"))
        bench.figures.add(f"pair_{name_of(mode)}_moved", round(moved_bytes / 2**30, 1), "GiB")
    return rate


def name_of(mode):
    return mode if mode in NAMED else f"tq{mode}"


def report(bench, rates, alone):
    """With what is known of one alone by now."""
    figures = bench.figures
    alone.report()
    if "stock" in rates:
        figures.add("pair_stock_over_alone", round(rates["stock"] / alone.rate("alone"), 4))
    judged = not (bench.args.quick or bench.args.capacity)
    ours = {mode: rate for mode, rate in rates.items() if mode != "stock"}
    for mode, rate in ours.items():
        alone.report_shared(f"pair_{name_of(mode)}", rate)
        if mode not in NAMED and float(mode) in TURN_TARGETS:
            figures.judge(f"pair_{name_of(mode)}_over_alone", at_least=TURN_TARGETS[float(mode)], judged=judged)
    if set(ours) & set(NAMED):
        alone.report_shared("pair_best", max(ours.values()))
        figures.judge("pair_best_over_alone", at_least=TARGET, judged=judged)


def run(bench):
    alone, rates = trainings.Alone(bench), {}
    alone.measure("before")
    for mode in bench.args.only:
        gpubench.note(f"{mode}, {bench.budget.left():.0f} s left")
        with sharing.noted(bench, mode):
            try:
                rates[mode] = run_mode(bench, mode)
            except mps.NotThere as error:
                bench.figures.add("pair_mps_verdict", "skipped")
                gpubench.note(f"without MPS: {error}")
            else:
                bench.figures.add(f"pair_{name_of(mode)}", rates[mode], "it/s")
    with sharing.noted(bench, "alone, after"):
        alone.measure("after")
    report(bench, rates, alone)


if __name__ == "__main__":
    sharing.main("pair", parse_arguments, run)
