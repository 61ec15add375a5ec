#!/usr/bin/env python3
"""Production and opportunistic jobs (bench/workloads.py) in pairs: what each has of its speed alone, beside the other.

  stock   plain time slicing
  mps     NVIDIA's MPS
  ours    libunified and its daemon, by class

The processes of a pair start once per mode, and *alone* is one of them while the other one waits: so what libunified
costs a job that is alone is not in the ratios, but in NAME_alone_over_stock.

The host's own speed may change from one second to the next. So production is measured in rounds: a piece alone, and at
once a piece beside the other; a server by the same requests in both. _over_alone compares all pieces of one kind with
all of the other. _over_alone_spread is the largest ratio of a single round less the smallest: the host's noise. The
opportunistic job is measured alone once, before the rounds.

With ours the controller keeps its level while the opportunistic job has nothing to do: so only the first round lets it
settle.

How soon the opportunistic job stops and goes on is told by bench_react. In the tables its share is over its speed alone
without us (opportunistic_over_stock_alone), which takes the mode stock as well.

In the pair `tight` the two need more memory than the capacity, which only ours has: turns are taken
there, and limits have no effect. The other modes have the whole card, as if it were larger.
In `server_turns` the two fit, but the daemon's mode is on. `llm_resnet50`: a language model of 14 GiB, whose requests
of four tokens keep it busy for 40 % of the time.
"""
import collections
import contextlib

import gpubench
import sharing
import speeds
from company import ANSWER_S, ORDER_S, START_S, Company, Side, measure_all

SIDES = ("production", "opportunistic")
# tq_s: turns are always taken, and so long. least: of the opportunistic one's speed alone.
Pair = collections.namedtuple("Pair", "production opportunistic capacity tq_s least", defaults=(None, None, None))
PAIRS = {
    "shufflenet_mobilenet": Pair(Side("shufflenet", 256), Side("mobilenet", 128)),
    "resnet50_shufflenet": Pair(Side("resnet50", 64), Side("shufflenet", 256)),
    "resnet50_resnet50": Pair(Side("resnet50", 64), Side("resnet50", 64), least=0.02),
    "server_transformer": Pair(Side("server"), Side("transformer"), least=0.75),
    "resnet50_graph": Pair(Side("resnet50", 64), Side("graph", 16)),
    "shufflenet4_mobilenet4": Pair(Side("shufflenet", 4), Side("mobilenet", 4), least=0.06),  # these two are TGS' own
    "resnet8_shufflenet4": Pair(Side("resnet50", 8), Side("shufflenet", 4)),
    "tight": Pair(Side("resnet50", 64, 8), Side("resnet50", 64, 8), "12G"),
    "server_turns": Pair(Side("server"), Side("resnet50", 64), tq_s=1),
    "llm_resnet50": Pair(Side("llm"), Side("resnet50", 64)),
}
MODES = ("stock", "mps", "ours")
KEPT, P99_MOST, ADDED_MOST_MS = 0.98, 1.05, 5


def parse_arguments():
    parser = sharing.parser(__doc__)
    sharing.option(parser, "--pairs", ",".join(PAIRS))
    sharing.option(parser, "--modes", ",".join(MODES))
    sharing.option(parser, "--measure-seconds", 8.0, "of both at once, in all rounds together")
    sharing.option(parser, "--alone-seconds", 8.0, "of production, in all rounds together; the opportunistic job has half "
                   "as long, once")
    sharing.option(parser, "--rounds", 3, "each of production alone, then of both")
    sharing.option(parser, "--lead", 0.5, "before each measurement")
    sharing.option(parser, "--idle", 2.5, "with ours, until production that has nothing to do is taken for idle")
    sharing.option(parser, "--settle", 8.0, "with ours, for the controller, before the first piece of both")
    args = parser.parse_args()
    args.pairs, args.modes = sharing.words_of(parser, args.pairs, PAIRS), sharing.words_of(parser, args.modes, MODES)
    if args.rounds < 1:
        parser.error("--rounds: at least 1")
    if args.quick:
        args.measure_seconds, args.alone_seconds = min(args.measure_seconds, 4), min(args.alone_seconds, 4)
        args.settle = min(args.settle, 5)
    return args


def is_limited(name, mode):
    """No turns are taken, so the controller decides."""
    return mode == "ours" and not PAIRS[name].capacity and not PAIRS[name].tq_s


def plan_s(args, name, mode):
    """About how long a mode of a pair takes."""
    pieces = 1 + 2 * args.rounds
    seconds = START_S + 1.5 * args.alone_seconds + args.measure_seconds + pieces * (args.lead + ORDER_S)
    if mode == "ours":
        waits = 1 if is_limited(name, mode) else 1 + args.rounds  # until production is idle
        seconds += waits * args.idle + args.settle
    return seconds


class Seen:
    """What is known of a pair in a mode."""

    def __init__(self):
        self.alone_pieces = {side: [] for side in SIDES}
        self.rounds = []  # (production's piece alone, {side: piece} of both)

    def alone(self, side):
        return speeds.of(self.alone_pieces[side])

    @property
    def together(self):
        """side -> speed; of all rounds."""
        return {side: speeds.of([run[side] for _, run in self.rounds]) for side in SIDES}

    def over_by_round(self, over):
        """over(production's speed beside the other, its speed alone), of each round."""
        return [over(speeds.of([run["production"]]), speeds.of([alone])) or 0 for alone, run in self.rounds]

    def add_round(self, alone, run):
        self.alone_pieces["production"].append(alone)
        self.rounds.append((alone, run))


def run_round(args, duo, index):
    """Production alone, then both, by the same part of the pattern: the piece, and {side: piece}."""
    alone_s, both_s = args.alone_seconds / args.rounds, args.measure_seconds / args.rounds
    offset_s = index * max(alone_s, both_s)
    alone = duo.run(("production",), args.lead, alone_s, offset_s)["production"]
    settles = duo.mode == "ours" and index == 0
    return alone, duo.run(SIDES, args.settle if settles else args.lead, both_s, offset_s)


def measure(bench, duo, seen):
    """Everything in its order; what is known lies in seen, whatever becomes of the rest."""
    args = bench.args
    duo.start()
    lead_s = args.lead + (args.idle if duo.mode == "ours" else 0)
    seen.alone_pieces["opportunistic"] += duo.run(("opportunistic",), lead_s, args.alone_seconds / 2).values()
    for index in range(args.rounds):
        seen.add_round(*run_round(args, duo, index))
    for side in SIDES:
        duo.check(side)
    for side in SIDES:
        duo.jobs[side].finish(ANSWER_S)


def report_side(figures, prefix, side, mode, seen):
    alone, together, name = seen.alone(side), seen.together[side], f"{prefix}_{mode}_{side}"
    figures.add(name + "_alone", alone.mean_pace(), alone.UNIT)
    stock = figures.value(f"{prefix}_stock_{side}_alone")
    if stock and mode != "stock":
        figures.add(name + "_alone_over_stock", speeds.ratio(alone.mean_pace(), stock))
        figures.add(name + "_over_stock_alone", speeds.ratio(together.mean_pace(), stock) or 0)
    figures.add(name + "_over_alone", together.throughput_over(alone) or 0)
    if isinstance(together, speeds.Served):
        figures.add(name + "_answers_over_alone", together.answers_over(alone) or 0)
    p99_over = together.p99_over(alone)
    if p99_over is not None:
        figures.add(name + "_p99_over_alone", p99_over)
        figures.add(name + "_p99_added_ms", round(together.p99_added_ms(alone), 3), "ms")


def report_spread(figures, name, seen):
    """How much the rounds differ."""
    def add(figure, over):
        ratios = seen.over_by_round(over)
        figures.add(f"{name}_{figure}_spread", round(max(ratios) - min(ratios), 4))
    if len(seen.rounds) < 2:
        return
    add("over_alone", lambda together, alone: together.throughput_over(alone))
    if isinstance(seen.together["production"], speeds.Served):
        add("answers_over_alone", lambda together, alone: together.answers_over(alone))


def report_ours(bench, pair, name):
    figures, judged = bench.figures, not bench.args.quick
    figures.judge(name + "_production_over_alone", at_least=KEPT, judged=judged)
    if pair.tq_s and figures.value(name + "_production_p99_added_ms") is not None:
        figures.judge(name + "_production_p99_added_ms", at_most=ADDED_MOST_MS, judged=judged)
    elif figures.value(name + "_production_p99_over_alone") is not None:
        figures.judge(name + "_production_p99_over_alone", at_most=P99_MOST, judged=judged)
    if pair.least:
        over = "_opportunistic_over_stock_alone"
        over = over if figures.value(name + over) is not None else "_opportunistic_over_alone"
        figures.judge(name + over, at_least=pair.least, judged=judged)


def report(bench, duo, seen):
    """The figures of a mode of a pair."""
    prefix = f"pairs_{duo.name}"
    for side in SIDES:
        report_side(bench.figures, prefix, side, duo.mode, seen)
    report_spread(bench.figures, f"{prefix}_{duo.mode}_production", seen)
    if duo.mode == "ours":
        report_ours(bench, PAIRS[duo.name], f"{prefix}_{duo.mode}")


def run_mode(bench, name, mode):
    """Measured and reported as far as it went."""
    seen, pair = Seen(), PAIRS[name]
    with contextlib.ExitStack() as stack:
        duo = Company(bench, stack, name, mode, dict(zip(SIDES, pair)), pair.capacity, pair.tq_s)
        try:
            measure(bench, duo, seen)
        finally:
            if seen.rounds:
                report(bench, duo, seen)


def run(bench):
    args = bench.args
    plans = {name: {mode: plan_s(args, name, mode) for mode in args.modes} for name in args.pairs}
    measure_all(bench, plans, lambda name, mode: run_mode(bench, name, mode))


if __name__ == "__main__":
    sharing.main("pairs", parse_arguments, run)
