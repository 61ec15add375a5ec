"""What fair.py, pair.py and short.py share: trainings (bench/steady.py) that come and go, and what was seen of them."""
import bisect
import contextlib

import gpubench
import sharing
import watch

PROGRAM = gpubench.HERE / "steady.py"
IMPORT_S, PREPARE_S, HASH_S = 90, 120, 60


def arguments(parser):
    sharing.arguments(parser)
    parser.add_argument("--gib", type=float, default=7, help="memory of each training (default: %(default)g)")
    parser.add_argument("--batch", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--memory", choices=("swap", "managed"), default="swap", help="default: %(default)s")


class Trainings:
    """Some of them, stock or under one daemon, from their start to their end."""

    def __init__(self, bench, stack, daemon=None):
        self.bench, self.stack, self.daemon = bench, stack, daemon
        self.variant = "daemon" if daemon else "stock"
        self.jobs = {}  # name -> Job
        self.results = {}

    def environment(self, expected_s):
        env = gpubench.variant_env(self.variant, self.bench.build, self.daemon, memory=self.bench.args.memory)
        if self.daemon and expected_s:
            env["GPUSHARE_EXPECTED_RUNTIME"] = f"{expected_s:g}"
        return env

    def add(self, name, seed=1, expected_s=None):
        """One that is imported, and waits for its order."""
        bench, args = self.bench, self.bench.args
        bench.serial += 1
        command = [args.python, PROGRAM, "--held", "--gib", f"{args.gib:g}", "--batch", args.batch, "--seed", seed]
        guard = bench.guard if self.daemon and args.memory == "managed" else None
        job = gpubench.Job(f"{bench.name}-{bench.serial:02}-{name}", command, self.environment(expected_s), bench.out,
                           bench.budget, guard, args.gib)
        self.jobs[name] = self.stack.enter_context(job)

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

    def panel(self, title, looks):
        return watch.panel(title, looks, {job.process.pid: name for name, job in self.jobs.items()})


def iterations(result, from_s, to_s):
    """Done in that time."""
    ends_s = result["ends_s"]
    return bisect.bisect(ends_s, to_s) - bisect.bisect(ends_s, from_s)


def aggregate(results, from_s, to_s):
    """Iterations per second, of all together."""
    if to_s - from_s <= 0:
        raise gpubench.BenchError("the trainings did not run at the same time")
    return sum(iterations(result, from_s, to_s) for result in results) / (to_s - from_s)


def run_alone(bench, seconds):
    """A stock training by itself; its result."""
    with contextlib.ExitStack() as stack:
        alone = Trainings(bench, stack)
        alone.add("alone")
        alone.wait_imported()
        alone.go("alone", {"seconds": seconds})
        alone.wait_done("alone", 2 * seconds)
        alone.conclude()
        bench.figures.add(f"{bench.name}_memory", alone.results["alone"]["memory_gib"], "GiB")
        return alone.results["alone"]


def rate_of(result):
    return aggregate([result], result["start_s"], result["end_s"])
