"""Jobs by class beside each other: how those of bench/pairs.py and bench/sweep.py run; and their
modes: what these take, and what becomes of one that can't be had."""
import collections
import pathlib
import time

import gpubench
import mps
import opportune
import sharing
import speeds

PROGRAM = gpubench.HERE / "opportune.py"
ORDER_S = 0.1  # an order is there before its time
START_S = 14  # about what jobs take until they are ready
IMPORT_S, BUILD_S, ANSWER_S = 90, 120, 60
PATTERN_SEED, LEAD_SEED = 1, 2

Side = collections.namedtuple("Side", "workload batch gib", defaults=(0, 0))


def is_ours(mode):
    return mode.startswith("ours")


def word(mode):
    return mode.replace("-", "_")


def class_of(side):
    """opportunistic_2 is opportunistic."""
    return side.partition("_")[0]


class Company:
    """A job for each side, in one mode. sides: name -> Side. tq_s: turns are that long; always: they are taken even if
    all fits."""

    def __init__(self, bench, stack, name, mode, sides, capacity=None, tq_s=None, always=True):
        self.bench, self.stack, self.name, self.mode = bench, stack, name, mode
        self.sides, self.capacity, self.tq_s, self.always = sides, capacity, tq_s, always
        self.rates = {}  # of requests per second; side ->
        self.mps = stack.enter_context(mps.Mps(bench.out)) if "mps" in mode and not is_ours(mode) else None
        self.daemon = self.start_daemon() if is_ours(mode) else None
        self.variant = "daemon" if self.daemon else "stock"
        self.jobs = {}

    def start_daemon(self):
        """With ours, MPS is the daemon's."""
        spatial = "mps" if "mps" in self.mode else None
        daemon = self.stack.enter_context(self.bench.daemon("on" if self.tq_s and self.always else "auto", self.tq_s,
                                                             self.capacity, spatial, "debug"))
        if spatial:
            self.stack.callback(mps.keep_logs, f"{daemon.socket}.mps/log", pathlib.Path(self.bench.out) / "mps.log")
            mps.await_of_daemon(daemon)
        return daemon

    def check_mps(self):
        if self.mps:
            mps.check_programs(self.mps.clients(), len(self.sides))
        elif "mps" in self.mode:
            mps.check_programs(self.daemon.status()["daemon"]["mps_programs"], len(self.sides))

    def command_of(self, side):
        """And how much memory it may have, in GiB."""
        what = self.sides[side]
        command = [PROGRAM, "--held", "--workload", what.workload, "--gib", f"{what.gib:g}"]
        return command + (["--batch", what.batch] if what.batch else []), opportune.LIMIT_GIB

    def launch(self, side):
        env = {}
        if self.daemon:
            env["GPUSHARE_CLASS"] = class_of(side)
        if self.mps:
            env |= self.mps.env()
        if self.mode == "mps-priority" and class_of(side) == "opportunistic":
            env["CUDA_MPS_CLIENT_PRIORITY"] = "1"
        command, gib = self.command_of(side)
        job = self.bench.job(f"{self.name}-{self.mode}-{side}", command, self.variant, self.daemon,
                             self.bench.args.memory, gib)
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
        self.check_mps()
        for side, what in self.sides.items():
            if what.workload == "llm":
                self.jobs[side].go({"do": "time"})
                self.rates[side] = opportune.BUSY / self.answer(side)["request_s"]

    def begin(self, sides, lead_s, seconds, offset_s=0):
        """They run now. side -> its piece, of which nothing is told yet."""
        start_s = time.monotonic() + ORDER_S
        from_s = start_s + lead_s
        empty = {}
        for side in sides:
            order, places = {"do": "run", "start_s": start_s, "until_s": from_s + seconds}, None
            if self.sides[side].workload in opportune.SERVERS:
                rate_per_s = self.rates.get(side, opportune.RATE_PER_S)
                order["requests_s"], places = requests_of(lead_s, seconds, offset_s, rate_per_s)
            self.jobs[side].go(order)
            empty[side] = speeds.Piece(None, start_s, from_s, from_s + seconds, places)
        return empty

    def answer(self, side, piece=None):
        left_s = max(piece.to_s - time.monotonic(), 0) if piece else 0
        told = self.jobs[side].expect("ready", left_s + ANSWER_S)
        if "error" in told:
            raise self.jobs[side].trouble(told["error"])
        return piece._replace(told=told) if piece else told

    def run(self, sides, lead_s, seconds, offset_s=0):
        return {side: self.answer(side, piece)
                for side, piece in self.begin(sides, lead_s, seconds, offset_s).items()}

    def check(self, side):
        """Its memory still holds what it should."""
        self.jobs[side].go({"do": "check"})
        if not self.answer(side)["memory_right"]:
            self.bench.wrong.append(f"{self.jobs[side].name}: memory does not hold what was written to it")


def requests_of(lead_s, seconds, offset_s, rate_per_s=opportune.RATE_PER_S):
    """Some requests for the lead, then a part of the pattern that all runs share; which ones of it they are."""
    lead = opportune.arrivals(LEAD_SEED, rate_per_s, lead_s)
    pattern = opportune.arrivals(PATTERN_SEED, rate_per_s, offset_s + seconds)
    part = [(index, at_s) for index, at_s in enumerate(pattern) if at_s >= offset_s]
    return ([*lead, *(lead_s + at_s - offset_s for _, at_s in part)], [None] * len(lead) + [index for index, _ in part])


def tell_plan(bench, plans):
    """plans: name -> {mode: seconds}."""
    for name, parts_s in plans.items():
        gpubench.note(f"{name}: " + ", ".join(f"{mode} {seconds:.0f} s" for mode, seconds in parts_s.items()))
    total_s = sum(sum(parts_s.values()) for parts_s in plans.values())
    gpubench.note(f"in all about {total_s:.0f} s, of {bench.budget.left():.0f}")


def leave_out_mps(bench, modes, error):
    """It does not start here: nor will it the next time. Those of the modes that are left."""
    for mode in modes:
        if "mps" in mode:
            bench.figures.add(f"{bench.name}_{word(mode)}_verdict", "skipped")
    gpubench.note(f"without MPS: {error}")
    return [mode for mode in modes if "mps" not in mode]


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
                modes = leave_out_mps(bench, modes, error)
