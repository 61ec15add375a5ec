"""Jobs (bench/workloads.py) by class beside each other: how those of bench/pairs.py and bench/sweep.py run; and their
modes: what these take, and what becomes of one that can't be had."""
import collections
import random
import time

import gpubench
import mps
import sharing
import speeds
import workloads

LIMIT_GIB = 20  # what one job may have
RATE_PER_S = 40  # of requests
BUSY = 0.4  # of the time that of llm keep it busy
ORDER_S = 0.1  # an order is there before its time
START_S = 14  # about what jobs take until they are ready
IMPORT_S, BUILD_S, ANSWER_S = 90, 120, 60
PATTERN_SEED, LEAD_SEED = 1, 2

Side = collections.namedtuple("Side", "workload batch gib", defaults=(0, 0))


def class_of(side):
    """opportunistic_2 is opportunistic."""
    return side.partition("_")[0]


class Company:
    """A job for each side, in one mode. sides: name -> Side, its workload None if it is ordered later. tq_s: turns are
    that long; always: they are taken even if all fits. limit_gib: what a job may have."""

    def __init__(self, bench, stack, name, mode, sides, capacity=None, tq_s=None, always=True,
                 limit_gib=LIMIT_GIB):
        self.bench, self.stack, self.name, self.mode = bench, stack, name, mode
        self.sides, self.capacity, self.tq_s, self.always = sides, capacity, tq_s, always
        self.limit_gib = limit_gib
        self.rates = {}  # of requests per second; side ->
        self.mps = stack.enter_context(mps.Mps(bench.out)) if mode == "mps" else None
        self.daemon = self.start_daemon() if mode == "ours" else None
        self.variant = "daemon" if self.daemon else "stock"
        self.jobs = {}

    def start_daemon(self):
        mode = "on" if self.tq_s and self.always else "auto"
        return self.stack.enter_context(self.bench.daemon(mode, self.tq_s, self.capacity, log="debug"))

    def launch(self, side):
        env = {}
        if self.daemon:
            env["GPUSHARE_CLASS"] = class_of(side)
        if self.mps:
            env |= self.mps.env()
        command = [workloads.__file__, "--limit-gib", f"{self.limit_gib:g}"]
        job = self.bench.job(f"{self.name}-{self.mode}-{side}", command, self.variant, self.daemon,
                             self.bench.args.memory, self.limit_gib)
        job.env = mps.without(job.env) | env
        self.jobs[side] = self.stack.enter_context(job)

    def start(self):
        """All are ready, and wait."""
        for side in self.sides:
            self.launch(side)
        for job in self.jobs.values():
            job.expect("imported", IMPORT_S)
        for job in self.jobs.values():
            job.go()
        for job in self.jobs.values():
            told = job.expect("ready", BUILD_S)
            gpubench.check_guest(self.variant, told, job, self.daemon)
        if self.mps:
            mps.check_programs(self.mps.clients(), len(self.sides))
        self.build({side: what for side, what in self.sides.items() if what.workload})

    def build(self, sides):
        """All at once. How many requests come depends on how long the language model takes."""
        for side, what in sides.items():
            self.jobs[side].go({"do": "build"} | what._asdict())
        for side in sides:
            self.answer(side, BUILD_S)
        for side, what in sides.items():
            if what.workload == "llm":
                self.rates[side] = BUSY / self.order(side, {"do": "time"})["request_s"]

    def begin(self, sides, lead_s, seconds, offset_s=0):
        """They run now. side -> its piece, of which nothing is told yet."""
        start_s = time.monotonic() + ORDER_S
        from_s = start_s + lead_s
        empty = {}
        for side in sides:
            order, places = {"do": "run", "start_s": start_s, "until_s": from_s + seconds}, None
            if self.sides[side].workload in workloads.SERVERS:
                rate_per_s = self.rates.get(side, RATE_PER_S)
                order["requests_s"], places = requests_of(lead_s, seconds, offset_s, rate_per_s)
            self.jobs[side].go(order)
            empty[side] = speeds.Piece(None, start_s, from_s, from_s + seconds, places)
        return empty

    def answer(self, side, timeout_s=ANSWER_S):
        told = self.jobs[side].expect("ready", timeout_s)
        if "error" in told:
            raise self.jobs[side].trouble(told["error"])
        return told

    def order(self, side, order):
        self.jobs[side].go(order)
        return self.answer(side)

    def end(self, side, piece):
        """The piece, and what is told of it."""
        return piece._replace(told=self.answer(side, max(piece.to_s - time.monotonic(), 0) + ANSWER_S))

    def run(self, sides, lead_s, seconds, offset_s=0):
        return {side: self.end(side, piece)
                for side, piece in self.begin(sides, lead_s, seconds, offset_s).items()}

    def check(self, side):
        """Its memory still holds what it should."""
        if not self.order(side, {"do": "check"})["memory_right"]:
            self.bench.wrong.append(f"{self.jobs[side].name}: memory does not hold what was written to it")


def arrivals(seed, rate_per_s, seconds):
    """When requests come, in seconds: at random, independent of each other."""
    chance, times_s = random.Random(seed), []
    at_s = chance.expovariate(rate_per_s)
    while at_s < seconds:
        times_s.append(round(at_s, 4))
        at_s += chance.expovariate(rate_per_s)
    return times_s


def requests_of(lead_s, seconds, offset_s, rate_per_s=RATE_PER_S):
    """Some requests for the lead, then a part of the pattern that all runs share; which ones of it they are."""
    lead = arrivals(LEAD_SEED, rate_per_s, lead_s)
    pattern = arrivals(PATTERN_SEED, rate_per_s, offset_s + seconds)
    part = [(index, at_s) for index, at_s in enumerate(pattern) if at_s >= offset_s]
    return ([*lead, *(lead_s + at_s - offset_s for _, at_s in part)], [None] * len(lead) + [index for index, _ in part])


def tell_plan(bench, plans):
    """plans: name -> {mode: seconds}."""
    for name, parts_s in plans.items():
        gpubench.note(f"{name}: " + ", ".join(f"{mode} {seconds:.0f} s" for mode, seconds in parts_s.items()))
    total_s = sum(sum(parts_s.values()) for parts_s in plans.values())
    gpubench.note(f"in all about {total_s:.0f} s, of {bench.budget.left():.0f}")


def leave_out_mps(bench, error):
    """It does not start here: nor will it the next time."""
    bench.figures.add(f"{bench.name}_mps_verdict", "skipped")
    gpubench.note(f"without MPS: {error}")


def measure_all(bench, plans, measure):
    """measure(name, mode) of all that are planned, where there is time for it."""
    tell_plan(bench, plans)
    modes = list(bench.args.modes)
    for name, mode in [(name, mode) for name, parts_s in plans.items() for mode in parts_s]:
        if mode not in modes:
            continue
        gpubench.note(f"{name}, {mode}, {bench.budget.left():.0f} s left")
        with sharing.noted(bench, f"{name}, {mode}"):
            if bench.budget.left() < plans[name][mode]:
                raise gpubench.BenchError("no time left for it")
            try:
                measure(name, mode)
            except mps.NotThere as error:
                leave_out_mps(bench, error)
                modes.remove("mps")
