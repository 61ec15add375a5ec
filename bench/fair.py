#!/usr/bin/env python3
"""Three equal trainings under `gpusharectl set-policy fair`, which come one after the other (--stagger).

  tight    7 GiB each in 16 GiB: they do not fit together, and take turns (mode on)
  weights  on the whole card, all at once and without turns, with weights of 400, 200 and 100: what each has of the
           iterations is to be 4/7, 2/7 and 1/7

In tight, while all are there, every window of 10 s is to give them equal GPU time (Jain's index, from
the daemon's gpu_ns), and all together do as many iterations as one stock training alone. Jain's index of iterations is
told beside it, and what all do over one alone under libunified: that is what sharing costs, without the library.

A window holds 10 s / TQ turns, which three jobs can't share better than to one turn: with TQ 1 s some window has turns
of 4, 3 and 3 s, whose index is 0.980. So TQ is 0.5 s by default, where the worst such window has 0.995.
"""
import contextlib
import statistics
import time

import gpubench
import sharing
import speeds
import trainings
import watch

JAIN_TARGET, AGGREGATE_TARGET = 0.99, 0.97
WEIGHTS, SHARE_ERROR_TARGET, WEIGHTS_TARGET = (400, 200, 100), 0.05, 0.94
LEAD_S, WEIGHTS_LEAST_S = 1, 5  # until all weights are in force; of all at once
STEP_S = 1  # between the beginnings of windows
VARIANTS = ("tight", "weights")
JOBS, CAPACITY = 3, "16GiB"  # of tight


def parse_arguments():
    parser = trainings.shared_parser(__doc__)
    sharing.option(parser, "--only", ",".join(VARIANTS))
    sharing.option(parser, "--tq", 0.5, "quantum in seconds")
    sharing.option(parser, "--stagger", 15.0, "in seconds")
    sharing.option(parser, "--together", 40.0, "in seconds, after the last has come")
    sharing.option(parser, "--weights-seconds", 24.0, "of weights, the trainings' own start among them")
    sharing.option(parser, "--window", 10.0, "in seconds")
    args = parser.parse_args()
    args.only = sharing.words_of(parser, args.only, VARIANTS)
    if args.quick:
        args.stagger, args.together, args.alone_seconds = min(args.stagger, 5), min(args.together, 30), 5
    return args


def jain(values):
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def worst_jain(amounts, from_s, to_s, window_s):
    """amounts(a, b): what each has had from a to b. The worst of all windows."""
    starts = [from_s + STEP_S * index for index in range(int((to_s - from_s - window_s) / STEP_S) + 1)]
    if not starts or to_s - from_s < window_s:
        raise gpubench.BenchError(f"all were there for {to_s - from_s:.1f} s only, a window is {window_s:g} s")
    return min(jain(amounts(start_s, start_s + window_s)) for start_s in starts)


def run_staggered(bench, jobs):
    """Let them come; when all were there, to when."""
    args = bench.args
    begun_s = time.monotonic()
    end_s = begun_s + args.stagger * (JOBS - 1) + args.together
    for index, name in enumerate(jobs.jobs):
        time.sleep(max(0, begun_s + index * args.stagger - time.monotonic()))
        jobs.go(name, {"until_s": end_s})
    for name in jobs.jobs:
        jobs.wait_done(name, end_s - begun_s + 30)
    return max(result["start_s"] for result in jobs.results.values()), end_s


def set_weights(bench, daemon, jobs):
    """Once the daemon knows the jobs; when all have theirs."""
    left = dict(zip((job.process.pid for job in jobs.jobs.values()), WEIGHTS))
    while left:
        for told in (job for gpu in daemon.status()["gpus"] for job in gpu["jobs"]):
            if told["pid"] in left:
                daemon.ctl("set-weight", str(told["job"]), str(left.pop(told["pid"])))
        if bench.budget.left() < 1 or any(job.process.poll() is not None for job in jobs.jobs.values()):
            raise gpubench.BenchError("the daemon does not know the trainings")
        time.sleep(0.02)
    return time.monotonic()


def share_errors(amounts):
    """How far each one's share is from that of its weight, over that."""
    return [abs(amount / sum(amounts) / (weight / sum(WEIGHTS)) - 1) for amount, weight in zip(amounts, WEIGHTS)]


def run_weights(bench):
    """All at once; iterations per second of all together."""
    args, figures = bench.args, bench.figures
    gpubench.note(f"weights, {bench.budget.left():.0f} s left")
    with bench.daemon("auto", None, None) as daemon, contextlib.ExitStack() as stack:
        jobs = trainings.Trainings(bench, stack, daemon)
        for index in range(len(WEIGHTS)):
            jobs.add(f"training {index + 1}", seed=index + 1)
        jobs.wait_imported()
        to_s = time.monotonic() + args.weights_seconds
        for name in jobs.jobs:
            jobs.go(name, {"until_s": to_s})
        set_s = set_weights(bench, daemon, jobs)
        for name in jobs.jobs:
            jobs.wait_done(name, args.weights_seconds + 30)
        figures.add("fair_weights_handovers", gpubench.counter(daemon.status(), "handovers"))
        jobs.conclude()
    results = list(jobs.results.values())
    from_s = max([set_s] + [result["start_s"] for result in results]) + LEAD_S
    if to_s - from_s < min(WEIGHTS_LEAST_S, args.weights_seconds / 4):
        raise gpubench.BenchError(f"all were there for {to_s - from_s:.1f} s only: --weights-seconds")
    paces = [speeds.of([speeds.Piece(result, result["start_s"], from_s, to_s, None)]).throughput() for result in results]
    figures.add("fair_weights_all_there", to_s - from_s, "s")
    figures.add("fair_weights_shares", " ".join(f"{pace / sum(paces):.4f}" for pace in paces))
    figures.add("fair_weights_error_worst", round(max(share_errors(paces)), 4))
    figures.judge("fair_weights_error_worst", at_most=SHARE_ERROR_TARGET, judged=not args.quick)
    return sum(paces)


def run_jobs(bench, daemon):
    """What they did, when all were there, and what the daemon's status told meanwhile."""
    with contextlib.ExitStack() as stack:
        jobs = trainings.Trainings(bench, stack, daemon)
        for index in range(JOBS):
            jobs.add(f"training {index + 1}", seed=index + 1)
        jobs.wait_imported()
        told = sharing.Told(before=daemon.status())
        with watch.JobWatch(daemon) as looks:
            from_s, to_s = run_staggered(bench, jobs)
        told.after = daemon.status()
        jobs.conclude()
        return jobs, looks, told, from_s, to_s


def judge_shares(bench, name, jobs, looks, from_s, to_s):
    """Of all there, by the daemon's looks; their iterations per second."""
    figures, args = bench.figures, bench.args
    results = list(jobs.results.values())
    had = [watch.Series(looks.of_process(job.process.pid), "gpu_ns") for job in jobs.jobs.values()]
    figures.add(name + "_all_there", to_s - from_s, "s")
    figures.add(name + "_gpu_seconds", " ".join(f"{(one.at(to_s) - one.at(from_s)) / 1e9:.2f}" for one in had), "s")
    figures.add(name + "_iterations", " ".join(str(trainings.iterations(one, from_s, to_s)) for one in results))
    figures.add(name + "_jain_worst", round(worst_jain(
        lambda start, end: [one.at(end) - one.at(start) for one in had], from_s, to_s, args.window), 4))
    figures.judge(name + "_jain_worst", at_least=JAIN_TARGET, judged=not args.quick)
    figures.add(name + "_jain_iterations_worst", round(worst_jain(
        lambda start, end: [trainings.iterations(one, start, end) for one in results], from_s, to_s, args.window), 4))
    return trainings.aggregate(results, from_s, to_s)


def name_of(variant):
    return "fair" if variant == "tight" else f"fair_{variant}"


def run_variant(bench, variant):
    args, name = bench.args, name_of(variant)
    if variant == "weights":
        return run_weights(bench)
    gpubench.note(f"{variant}: policy {trainings.POLICY}, TQ {args.tq:g} s, {bench.budget.left():.0f} s left")
    with bench.daemon("on", args.tq, CAPACITY) as daemon:
        daemon.ctl("set-policy", trainings.POLICY)
        jobs, looks, told, from_s, to_s = run_jobs(bench, daemon)
    sharing.add_moves(bench.figures, name, told)
    return judge_shares(bench, name, jobs, looks, from_s, to_s)


def judge_rates(bench, rates, alone):
    """With what is known of one alone by now."""
    alone.report()
    for variant, rate in rates.items():
        name = name_of(variant) + "_aggregate"
        alone.report_shared(name, rate)
        bench.figures.judge(name + "_over_alone", at_least=WEIGHTS_TARGET if variant == "weights" else AGGREGATE_TARGET,
                            judged=not bench.args.quick)


def run(bench):
    alone, rates = trainings.Alone(bench), {}
    alone.measure("before")
    for variant in bench.args.only:
        with sharing.noted(bench, variant):
            rates[variant] = run_variant(bench, variant)
            bench.figures.add(name_of(variant) + "_aggregate", rates[variant], "it/s")
    with sharing.noted(bench, "alone, after"):
        alone.measure("after")
    judge_rates(bench, rates, alone)


if __name__ == "__main__":
    sharing.main("fair", parse_arguments, run)
