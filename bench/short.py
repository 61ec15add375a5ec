#!/usr/bin/env python3
"""A short training beside a long one, whose memory does not fit together: under srtf, and under rr beside it.

The long one is at work when the short one comes; both have told how long they will take (GPUSHARE_EXPECTED_RUNTIME)
and how much memory they will have (GPUSHARE_EXPECTED_MEMORY). Without the latter (--memory-untold) they share the GPU
side by side until the short one has so much that they no longer fit together; policies order turns, which begin then.
Under srtf the short one is to take hardly longer than alone, from its first use of the GPU to its last iteration; round
robin makes it twice as long. It does the same iterations each time, and must end with the same weights.
"""
import contextlib
import time

import gpubench
import sharing
import trainings

TARGETS = {"srtf": 1.1}
CAPACITY, TQ_S = "12GiB", 1
LONG_S = 600  # what the long one says that it takes; it ends after the short one


def parse_arguments():
    parser = trainings.parser(__doc__)
    sharing.option(parser, "--policies", "srtf,rr")
    sharing.option(parser, "--short-seconds", 15.0, "of the short one")
    sharing.option(parser, "--lead", 10.0, "of the long one, in seconds")
    parser.add_argument("--memory-untold", action="store_true", help="nobody tells how much memory it will have")
    args = parser.parse_args()
    args.policies = args.policies.split(",")
    if args.quick:
        args.short_seconds, args.lead = min(args.short_seconds, 5), min(args.lead, 8)
    return args


def took_s(result):
    return result["end_s"] - result["begun_s"]


def run_jobs(bench, daemon, alone):
    args = bench.args
    with contextlib.ExitStack() as stack:
        jobs = trainings.Trainings(bench, stack, daemon)
        gib = None if args.memory_untold else alone["memory_gib"]
        jobs.add("long", seed=2, expected_s=LONG_S, expected_gib=gib)
        jobs.add("short", expected_s=took_s(alone), expected_gib=gib)
        jobs.wait_imported()
        jobs.go("long", {})
        time.sleep(args.lead)
        jobs.go("short", {"iterations": len(alone["ends_s"])})
        jobs.wait_done("short", 6 * took_s(alone))
        jobs.go("long")  # that was it
        jobs.wait_done("long", 60)
        jobs.conclude()
        return jobs.results["short"], jobs.results["long"]


def run_policy(bench, policy, alone):
    args, figures, name = bench.args, bench.figures, f"short_{policy}"
    gpubench.note(f"{policy}, {bench.budget.left():.0f} s left")
    with bench.daemon("auto", TQ_S, CAPACITY) as daemon:
        daemon.ctl("set-policy", policy)
        short, long = run_jobs(bench, daemon, alone)
        figures.add(name + "_handovers", gpubench.counter(daemon.status(), "handovers"))
    if long["start_s"] >= short["begun_s"]:
        raise gpubench.BenchError("the long training was not at work when the short one came: more --lead")
    figures.add(name, took_s(short), "s")
    sharing.check_same(bench, name, [short["hash"]], alone["hash"])
    figures.add(name + "_over_alone", round(took_s(short) / took_s(alone), 4))
    if policy in TARGETS:
        figures.judge(name + "_over_alone", at_most=TARGETS[policy], judged=not args.quick)


def run(bench):
    alone = trainings.run_alone(bench, bench.args.short_seconds)
    bench.figures.add("short_alone", took_s(alone), "s")
    for policy in bench.args.policies:
        with sharing.noted(bench, policy):
            run_policy(bench, policy, alone)


if __name__ == "__main__":
    sharing.main("short", parse_arguments, run)
