"""What fair.py, pair.py and short.py share: trainings (bench/steady.py) that come and go, and what was seen of them."""
import bisect
import contextlib
import math
import statistics

import gpubench
import sharing

PROGRAM = gpubench.HERE / "steady.py"
IMPORT_S, PREPARE_S, HASH_S = 90, 120, 60
POLICY = "fair"  # of several together


def parser(description):
    made = sharing.parser(description)
    sharing.option(made, "--gib", 7.0, "memory of each training")
    sharing.option(made, "--batch", 64)
    return made


def shared_parser(description):
    """Of those that compare what several do together with one alone (class Alone)."""
    made = parser(description)
    sharing.option(made, "--alone-seconds", 6.0, "of each")
    return made


class Trainings:
    """Some of them, stock or under one daemon, from their start to their end."""

    def __init__(self, bench, stack, daemon=None):
        self.bench, self.stack, self.daemon = bench, stack, daemon
        self.variant = "daemon" if daemon else "stock"
        self.jobs = {}  # name -> Job
        self.results = {}

    def add(self, name, seed=1, expected_s=None, expected_gib=None, settings=None):
        """One that is imported, and waits for its order. It tells what it is expected to take, if that is given."""
        args, env = self.bench.args, dict(settings or {})
        if self.daemon and expected_s:
            env["GPUSHARE_EXPECTED_RUNTIME"] = f"{expected_s:g}"
        if self.daemon and expected_gib:
            env["GPUSHARE_EXPECTED_MEMORY"] = f"{math.ceil(expected_gib * 1024)}M"
        command = [PROGRAM, "--gib", f"{args.gib:g}", "--batch", args.batch, "--seed", seed]
        self.jobs[name] = self.stack.enter_context(
            self.bench.job(name, command, self.variant, self.daemon, args.memory, args.gib, env))

    def wait_imported(self):
        for job in self.jobs.values():
            job.expect("imported", IMPORT_S)

    def go(self, name, order=None):
        self.jobs[name].go(order)

    def wait_done(self, name, seconds):
        """So many seconds at most, after its preparation."""
        self.results[name] = self.jobs[name].expect("done", PREPARE_S + seconds)

    def conclude(self):
        """All are done: are they right?"""
        for name, job in self.jobs.items():
            job.go()
            told = job.expect("result", HASH_S)
            gpubench.check_guest(self.variant, told, job, self.daemon)
            if not told["memory_right"]:
                self.bench.wrong.append(f"{job.name}: memory does not hold what was written to it")
            self.results[name] |= told
        for job in self.jobs.values():
            job.finish(HASH_S)


def iterations(result, from_s, to_s):
    """Done in that time."""
    ends_s = result["ends_s"]
    return bisect.bisect(ends_s, to_s) - bisect.bisect(ends_s, from_s)


def aggregate(results, from_s, to_s):
    """Iterations per second, of all together."""
    if to_s - from_s <= 0:
        raise gpubench.BenchError("the trainings did not run at the same time")
    return sum(iterations(result, from_s, to_s) for result in results) / (to_s - from_s)


def run_imported(alone, seconds):
    """A training by itself, which waits for its order; its result."""
    alone.go("alone", {"seconds": seconds})
    alone.wait_done("alone", 2 * seconds)
    alone.conclude()
    return alone.results["alone"]


def imported(bench, stack, daemon=None):
    alone = Trainings(bench, stack, daemon)
    alone.add("alone")
    return alone


def run_alone(bench, seconds):
    """A stock training by itself; its result."""
    with contextlib.ExitStack() as stack:
        alone = imported(bench, stack)
        alone.wait_imported()
        result = run_imported(alone, seconds)
        bench.figures.add(f"{bench.name}_memory", result["memory_gib"], "GiB")
        return result


def rate_of(result):
    return aggregate([result], result["start_s"], result["end_s"])


class Alone:
    """One training by itself, ours and stock: measured before and after the others. Two processes that do the same
    differ by several percent, so all figures over one alone are over the mean of those that are known."""

    def __init__(self, bench):
        self.bench = bench
        self.results = {"alone": [], "ours_alone": []}

    def measure(self, when):
        """Both are imported at once, which takes half the time."""
        bench = self.bench
        gpubench.note(f"alone, {when}, {bench.budget.left():.0f} s left")
        with contextlib.ExitStack() as stack:
            stock = imported(bench, stack)
            with sharing.noted(bench, f"ours alone, {when}"), bench.daemon("auto", None, None) as daemon, \
                    contextlib.ExitStack() as own:
                ours = imported(bench, own, daemon)
                stock.wait_imported()
                ours.wait_imported()
                self.add("ours_alone", when, run_imported(ours, bench.args.alone_seconds))
            self.add("alone", when, run_imported(stock, bench.args.alone_seconds))

    def add(self, kind, when, result):
        self.results[kind].append(result)
        self.bench.figures.add(f"{self.bench.name}_{kind}_{when}", rate_of(result), "it/s")

    def rate(self, kind):
        return statistics.mean(map(rate_of, self.results[kind]))

    def report(self):
        self.bench.figures.add(f"{self.bench.name}_memory", self.results["alone"][0]["memory_gib"], "GiB")
        if self.results["ours_alone"]:
            self.bench.figures.add(f"{self.bench.name}_ours_alone_over_stock",
                                   round(self.rate("ours_alone") / self.rate("alone"), 4))

    def report_shared(self, name, rate):
        """Of several under libunified: what the library costs is in the first figure, what sharing costs in both."""
        for kind, results in self.results.items():
            if results:
                self.bench.figures.add(f"{name}_over_{kind}", round(rate / self.rate(kind), 4))
