#!/usr/bin/env python3
"""The measurements of table 12.2 of Alexopoulos' thesis (nvshare), on this GPU and in minutes.

Four programs, two copies of each at once, in a capacity of 16 GiB:

  big    needs 15.3 GiB, so that two do not fit           _90   90 % of the time on the GPU, 10 % on the CPU
  small  needs 7.2 GiB, so that two do                    _50   half and half

  serial  the stock program by itself, twice its time, as in the thesis
  pair    stock, two at once (small only): what the GPU's own time slicing makes of them
  auto    turns only if memory does not fit           20, for example: always turns, with this quantum in seconds

A program is --rounds times a burst on the GPU and one on the CPU (bench/bursts.py), --program-seconds in all. The
thesis does not tell how its programs alternate; its figures for turns of 1000 s (0.96 and 0.74 of serial) are close to
what one burst of each gives when only the CPU's bursts overlap (0.95 and 0.75). Ours have two of each by default:
bursts of many seconds as there, 18 on the GPU and 2 on the CPU, or 10 and 10; --rounds 1 has one of each. What such
bursts allow at best is f + (1 - f) / (2 * rounds) of serial, f being the GPU's share: 0.925 and 0.625, told beside the
results. A quantum of 20 s is longer than these bursts, so there the GPU changes hands when a burst ends; with
--program-seconds 90 it ends them, too.

What is measured begins when each copy has been on the card and off it, because a program of 40 s can't make up for the
first making of host memory as one of 720 s can. All copies must end with the memory that the stock program ends with.

Points (--only): MEMORY:PROGRAM:MODE, for example swap:big_90:20, managed:big_50:auto, stock:small_90:pair. Default:
`required`, those that have a target, about twenty minutes. Beside each stands what the thesis had, if it has such a point. Managed memory: at most 31 GiB at once.
"""
import collections

import gpubench
import sharing

Program = collections.namedtuple("Program", "gib gpu_share")
PROGRAMS = {"big_90": Program(15.3, 0.9), "big_50": Program(15.3, 0.5),
            "small_90": Program(7.2, 0.9), "small_50": Program(7.2, 0.5)}
CAPACITY = "16GiB"
TARGETS = {f"{memory}:big_90:{tq}": target for memory in ("swap", "managed")
           for tq, target in (("20", 0.96), ("5", 1.0), ("2", 1.08), ("0.5", 1.5))} | {"swap:big_50:20": 0.75}  # of serial
# What the thesis' P100 had, of serial, by quantum; and by pair, its system that splits the memory.
THESIS = {"big_90": {"1000": 0.96, "60": 1.02, "20": 1.10, "10": 1.27, "5": 1.94},
          "big_50": {"1000": 0.74, "60": 0.77, "20": 0.80, "10": 0.89, "5": 1.26},
          "small_90": {"pair": 0.78, "1000": 0.98, "60": 0.97, "20": 0.98, "10": 0.98, "5": 0.96},
          "small_50": {"pair": 0.65, "1000": 0.78, "60": 0.77, "20": 0.76, "10": 0.76, "5": 0.75}}
START_S = 15  # about what a run takes before its measured part
PAIR_TARGET = 1.02  # auto, of stock co-running
REQUIRED = list(TARGETS) + "stock:small_90:pair swap:small_90:auto stock:small_50:pair swap:small_50:auto".split()


class Point(collections.namedtuple("Point", "memory program mode")):
    """One run. mode: a quantum in seconds, or pair, auto."""

    @classmethod
    def parse(cls, text):
        point = cls(*text.split(":")) if text.count(":") == 2 else None
        if point is None or not point.is_possible():
            raise gpubench.BenchError(f"{text} is no point of the table (--help tells)")
        return point

    def is_possible(self):
        if self.program not in PROGRAMS:
            return False
        if self.mode == "pair":
            return self.memory == "stock" and self.program.startswith("small")
        if self.memory not in ("swap", "managed"):
            return False
        return self.mode == "auto" or self.quantum_s() > 0

    def quantum_s(self):
        """0: none."""
        try:
            return float(self.mode)
        except ValueError:
            return 0

    def figure(self):
        mode = f"tq{self.mode}" if self.quantum_s() else self.mode
        return "_".join(("thesis", self.program, mode) if self.memory == "stock" else
                        ("thesis", self.memory, self.program, mode))

    def __str__(self):
        return ":".join(self)


def chosen_points(text):
    """In the order of running."""
    return [Point.parse(name) for name in (REQUIRED if text == "required" else text.split(","))]


def make_work(program, seconds, rounds):
    """What a run does, once it is known how long a pass takes."""
    def work(pass_s):
        gpu_s = program.gpu_share * seconds / rounds
        passes = max(1, round(gpu_s / pass_s))
        return {"rounds": rounds, "passes": passes,
                "cpu_s": passes * pass_s * (1 - program.gpu_share) / program.gpu_share}
    return work


def program_seconds(args, name):
    return args.small_seconds if name.startswith("small") else args.program_seconds


def least(program, rounds):
    """Of serial, if bursts of the two overlap as far as they can and nothing else costs time."""
    return program.gpu_share + (1 - program.gpu_share) / (2 * rounds)


def expected_s(points, args, alone=()):
    """About how long these points take, with the stock runs that they need besides those that are done."""
    programs = {point.program for point in points} - set(alone)
    return (sum(START_S + 2.2 * program_seconds(args, point.program) for point in points) +
            sum(START_S + program_seconds(args, name) for name in programs))


class Series:
    """The points measured so far."""

    def __init__(self, bench):
        self.bench = bench
        self.alone = {}  # program -> (Run, work)
        self.wall_s = {}  # point -> seconds

    def measure_alone(self, name):
        """Once per program."""
        if name in self.alone:
            return self.alone[name]
        program, args, figures = PROGRAMS[name], self.bench.args, self.bench.figures
        seconds = program_seconds(args, name)
        gpubench.note(f"{name}, stock, alone")
        self.alone[name] = run, _ = sharing.run_alone(
            self.bench, program.gib, make_work(program, seconds, args.rounds), 60 + 5 * seconds)
        figures.add(f"thesis_{name}_solo", run.wall_s, "s")
        figures.add(f"thesis_{name}_gpu_share", run.gpu_s / run.wall_s)
        figures.add(f"thesis_{name}_memory", run.memory_gib, "GiB")
        figures.add(f"thesis_{name}_least_over_serial", least(program, args.rounds))
        return self.alone[name]

    def expected_s(self, point):
        """About how long it takes, with what must come before it."""
        return expected_s([point], self.bench.args, self.alone)

    def run_point(self, point, work, timeout_s):
        gib = PROGRAMS[point.program].gib
        if point.mode == "pair":
            return sharing.run_copies(self.bench, 2, gib, work, timeout_s)
        tq_s = point.quantum_s()
        with self.bench.daemon("on" if tq_s else point.mode, tq_s or 20, CAPACITY) as daemon:
            return sharing.run_copies(self.bench, 2, gib, work, timeout_s, daemon, point.memory)

    def measure(self, point):
        bench = self.bench
        if bench.budget.left() < self.expected_s(point):
            raise gpubench.BenchError(f"no time left for it ({bench.budget.left():.0f} of "
                                      f"{self.expected_s(point):.0f} s): --seconds")
        alone, work = self.measure_alone(point.program)
        gpubench.note(f"{point}, {bench.budget.left():.0f} s left")
        run = self.run_point(point, work, 60 + 6 * program_seconds(bench.args, point.program))
        self.wall_s[point] = run.wall_s
        name = point.figure()
        bench.figures.add(name, run.wall_s, "s")
        sharing.check_same(bench, name, run.hashes, alone.hashes[0])
        if run.after:
            sharing.add_moves(bench.figures, name, run)
        self.judge(point, run.wall_s / (2 * alone.wall_s))

    def judge(self, point, ratio):
        bench, name = self.bench, point.figure()
        bench.figures.add(name + "_over_serial", round(ratio, 4))
        if point.mode in THESIS[point.program]:
            bench.figures.add(name + "_thesis", THESIS[point.program][point.mode])
        if str(point) in TARGETS:
            bench.figures.judge(name + "_over_serial", at_most=TARGETS[str(point)], judged=not bench.args.quick)
        pair_s = self.wall_s.get(Point("stock", point.program, "pair"))
        if point.mode == "auto" and pair_s:
            bench.figures.add(name + "_over_pair", round(self.wall_s[point] / pair_s, 4))
            bench.figures.judge(name + "_over_pair", at_most=PAIR_TARGET, judged=not bench.args.quick)


def run(bench):
    points, series = chosen_points(bench.args.only), Series(bench)
    gpubench.note(f"{len(points)} points, about {expected_s(points, bench.args):.0f} s, "
                  f"{bench.budget.left():.0f} s to spend")
    for point in points:
        with sharing.noted(bench, str(point)):
            series.measure(point)


def parse_arguments():
    parser = sharing.parser(__doc__, memory=False)
    sharing.option(parser, "--only", "required", "points")
    sharing.option(parser, "--program-seconds", 40.0, "of a big program")
    sharing.option(parser, "--small-seconds", 15.0, "of a small one")
    sharing.option(parser, "--rounds", 2, "of bursts per program")
    args = parser.parse_args()
    if args.quick:
        args.program_seconds, args.small_seconds = min(args.program_seconds, 8), min(args.small_seconds, 5)
    return args


if __name__ == "__main__":
    sharing.main("thesis", parse_arguments, run)
