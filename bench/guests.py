#!/usr/bin/env python3
"""A production training beside two opportunistic ones (bench/opportune.py): do these share fairly what it leaves over?

  ours       libunified and its daemon, by class
  ours-mps   that, and the daemon's MPS (spatial = mps)

All start once. Each is measured alone while the others wait, then all together, and at last the opportunistic ones
while production rests. Judged is what production keeps of its speed alone, and *fairness*: Jain's index of the parts of
their speed alone that the opportunistic ones have. It is 1 if these are the same, 0.95 if one has 1.6 times the
other's, and 0.5 if one has everything.

What the daemon makes equal is the GPU time that each may have (max-min: both want more); _limit is the mean of that.
The same GPU time may be another part of the speed alone: kernels slow each other down, by caches and memory, with MPS
also at the same time, and some more than others; and a job that leaves the GPU idle when it is alone needs less than
all of it for its speed. A kernel is let through whole and paid for afterwards, so kernels differ in length here. With
production at rest nothing limits the others, and how they share is the GPU's doing: rest_fairness is told, not judged.
"""
import argparse
import contextlib
import statistics

import fair
import opportune
import sharing
import speeds
from company import ANSWER_S, ORDER_S, START_S, Company, Side, measure_all, word

GUESTS = ("opportunistic_1", "opportunistic_2")
SIDES = ("production", *GUESTS)
MODES = ("ours", "ours-mps")
KEPT, FAIR = 0.98, 0.95


def side_of(text):
    """WORKLOAD:BATCH, or WORKLOAD with the batch that bench/opportune.py takes."""
    workload, colon, batch = text.partition(":")
    if workload not in opportune.NAMES or workload in opportune.SERVERS:
        raise argparse.ArgumentTypeError(f"{workload}: not a training of bench/opportune.py")
    if colon and not (batch.isdigit() and int(batch)):
        raise argparse.ArgumentTypeError(f"{text}: a batch of {batch}")
    return Side(workload, int(batch or 0))


def parse_arguments():
    parser = sharing.parser(__doc__)
    parser.add_argument("--production", type=side_of, default="resnet50:64", metavar="WORKLOAD:BATCH",
                        help="default: %(default)s")
    parser.add_argument("--guests", type=side_of, nargs=2, metavar="WORKLOAD:BATCH",
                        default=(Side("resnet50", 64), Side("shufflenet", 256)),
                        help="the opportunistic ones (default: resnet50:64 shufflenet:256)")
    sharing.option(parser, "--modes", ",".join(MODES))
    sharing.option(parser, "--measure-seconds", 10.0, "of all at once; what is left over of a GPU in time slices is 2 %%")
    sharing.option(parser, "--alone-seconds", 1.8, "of production, half of it before and half after the others; these "
                   "have half as long each")
    sharing.option(parser, "--lead", 0.3, "before each measurement")
    sharing.option(parser, "--idle", 2.5, "until production that has nothing to do is taken for idle")
    sharing.option(parser, "--settle", 6.0, "for the controller")
    sharing.option(parser, "--rest-seconds", 4.0, "of the opportunistic ones with production at rest")
    args = parser.parse_args()
    args.modes = sharing.words_of(parser, args.modes, MODES)
    if args.rest_seconds <= 0:
        parser.error("--rest-seconds: more than 0")
    if args.quick:
        args.measure_seconds, args.rest_seconds = min(args.measure_seconds, 5), min(args.rest_seconds, 2)
        args.settle = min(args.settle, 5)
    return args


def rest_lead_s(args):
    """From production's end until the opportunistic ones are measured without it."""
    return args.idle + args.lead


def plan_s(args):
    """About how long a mode takes."""
    alone_s = 4 * (args.lead + args.alone_seconds / 2 + ORDER_S) + args.idle
    together_s = args.settle + args.measure_seconds + rest_lead_s(args) + args.rest_seconds + ORDER_S
    return START_S + alone_s + together_s


class Seen:
    """What is known in a mode: pieces by side."""

    def __init__(self):
        self.alone = {side: [] for side in SIDES}
        self.together, self.rest = {}, {}

    def over_alone(self, pieces):
        return {side: speeds.of([piece]).throughput_over(speeds.of(self.alone[side])) or 0
                for side, piece in pieces.items()}


def run_together(args, jobs, seen):
    """The opportunistic ones go on when production rests: so no limit that is over delays what they have begun."""
    begun = jobs.begin(GUESTS, args.settle, args.measure_seconds + rest_lead_s(args) + args.rest_seconds)
    begun |= jobs.begin(("production",), args.settle, args.measure_seconds)
    run = {side: jobs.answer(side, begun[side]) for side in SIDES}
    from_s, to_s = run["production"].from_s, run["production"].to_s
    seen.together = {side: piece._replace(from_s=from_s, to_s=to_s) for side, piece in run.items()}
    seen.rest = {side: run[side]._replace(from_s=to_s + rest_lead_s(args)) for side in GUESTS}


def measure(bench, jobs, seen):
    """Everything in its order; what is known lies in seen, whatever becomes of the rest."""
    args = bench.args

    def alone(side, lead_s):
        seen.alone[side] += jobs.run((side,), lead_s, args.alone_seconds / 2).values()
    jobs.start()
    alone(GUESTS[0], args.idle + args.lead)
    alone(GUESTS[1], args.lead)
    alone("production", args.lead)
    run_together(args, jobs, seen)
    alone("production", args.lead)
    for side in SIDES:
        jobs.check(side)
    for side in SIDES:
        jobs.jobs[side].finish(ANSWER_S)


def mean_limit(jobs, side, piece):
    """In percent of the GPU; None if nobody has looked."""
    shares = [share for at_s, share in jobs.limits_of(side) if piece.from_s <= at_s < piece.to_s]
    return 100 * statistics.mean(shares) if shares else None


def report_fairness(figures, name, over):
    """over: side -> part of its speed alone."""
    for side, value in over.items():
        figures.add(f"{name}_{side}_over_alone", value)
    figures.add(f"{name}_fairness", round(fair.jain([over[side] for side in GUESTS]), 4))


def report(bench, jobs, seen):
    figures, name, judged = bench.figures, f"guests_{word(jobs.mode)}", not bench.args.quick
    for side in SIDES:
        alone = speeds.of(seen.alone[side])
        figures.add(f"{name}_{side}_alone", alone.throughput(), alone.UNIT)
    for side in GUESTS:
        limit = mean_limit(jobs, side, seen.together[side])
        if limit is not None:
            figures.add(f"{name}_{side}_limit", limit, "%")
    report_fairness(figures, name, seen.over_alone(seen.together))
    figures.judge(f"{name}_production_over_alone", at_least=KEPT, judged=judged)
    figures.judge(f"{name}_fairness", at_least=FAIR, judged=judged)
    report_fairness(figures, f"{name}_rest", seen.over_alone(seen.rest))


def run_mode(bench, name, mode, sides):
    """Measured and reported as far as it went."""
    seen = Seen()
    with contextlib.ExitStack() as stack:
        jobs = Company(bench, stack, name, mode, sides)
        try:
            measure(bench, jobs, seen)
        finally:
            if seen.together:
                report(bench, jobs, seen)


def run(bench):
    args = bench.args
    sides = dict(zip(SIDES, (args.production, *args.guests)))
    plans = {"_".join(side.workload for side in sides.values()): {mode: plan_s(args) for mode in args.modes}}
    measure_all(bench, plans, lambda name, mode: run_mode(bench, name, mode, sides))


if __name__ == "__main__":
    sharing.main("guests", parse_arguments, run)
