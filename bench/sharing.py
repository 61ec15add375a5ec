"""The frame of all programs that measure sharing; and copies of bench/bursts.py at once,
and the same job by itself, as bench/thesis.py has them.

A *work* is what each copy does in its measured part: rounds, passes of each GPU burst, seconds of each CPU burst. It is
fixed by the first run, which is stock; every later run does the same and must end with the same memory.
"""
import argparse
import contextlib
import signal
import sys

import gpubench

PROGRAM = gpubench.HERE / "bursts.py"
IMPORT_S = 90
PREPARE_S = 150  # allocate, fill and go round the memory once, with hand-overs and the making of pinned memory
GIB = 1 << 30


class Bench:
    """Where things are, what may still be spent, and what was wrong."""

    def __init__(self, args, name):
        gpubench.require_gpu(args.python)
        self.args = args
        self.name = name
        self.build, self.out, self.budget, self.guard, self.figures = gpubench.prepare(args, name)
        self.serial = 0
        self.wrong = []
        gpubench.note(f"logs in {self.out}")

    def job(self, name, command, variant, daemon=None, memory=None, gib=0, env=None):
        """A program of Python's. gib: what it may have; only unified memory is counted. env: besides the variant's."""
        self.serial += 1
        env = gpubench.variant_env(variant, self.build, daemon, memory=memory) | (env or {})
        guard = self.guard if variant != "stock" and memory not in ("swap", "off") else None
        return gpubench.Job(f"{self.name}-{self.serial:02}-{name}", [self.args.python, *command], env, self.out,
                            self.budget, guard, gib)

    def daemon(self, mode, tq_s, capacity, spatial=None, log="info"):
        return gpubench.Daemon(self.build, self.out, mode, tq_s, capacity, self.args.host_memory, spatial, log)

    def finish(self):
        """The exit status; all that is known is printed, whatever happened."""
        self.wrong += self.figures.missed
        self.figures.add(f"{self.name}_wrong", len(self.wrong))
        self.figures.finish()
        for line in self.wrong:
            gpubench.note(f"WRONG {line}")
        return 1 if self.wrong else 0


@contextlib.contextmanager
def noted(bench, what, kind=gpubench.BenchError):
    """A part that can't be had does not stop the others."""
    try:
        yield
    except kind as error:
        bench.wrong.append(f"{what}: {error}")
        gpubench.note(bench.wrong[-1])


class Told:
    """The daemon's status around what was measured."""

    def __init__(self, before=None, after=None):
        self.before, self.after = before, after

    def told(self, name):
        """How much a counter of the daemon has grown."""
        return gpubench.counter(self.after, name) - gpubench.counter(self.before, name)

    def moves(self):
        before, after = gpubench.moves(self.before), gpubench.moves(self.after)
        return {name: after[name] - before.get(name, 0) for name in after}


class Run(Told):
    """What came of some copies at once."""

    def __init__(self, results):
        super().__init__()
        self.start_s = min(result["start_s"] for result in results)
        self.first_end_s = min(result["end_s"] for result in results)
        self.end_s = max(result["end_s"] for result in results)
        self.wall_s = self.end_s - self.start_s
        self.gpu_s = sum(result["gpu_s"] for result in results)
        self.memory_gib = max(result["memory_gib"] for result in results)
        self.hashes = [result["hash"] for result in results]


def prepare(stack, jobs):
    """Bring all jobs to their measured part, one after the other: each has then been off the card and on it again.
    What they tell about the time of a pass."""
    for job in jobs:
        stack.enter_context(job)
    for job in jobs:
        job.expect("imported", IMPORT_S)
    for stage in ("allocated", "ready"):
        told = []
        for job in jobs:
            job.go()
            told.append(job.expect(stage, PREPARE_S))
    return [item["pass_s"] for item in told]


def measure(jobs, work, timeout_s):
    """Let prepared jobs do their work at once. The last one starts first: its memory is on the card."""
    for job in reversed(jobs):
        job.go(work)
    for job in jobs:
        job.expect("done", timeout_s)


def conclude(jobs, variant, daemon):
    """The results of jobs that are done. One that has told its own does not end before all have."""
    results = []
    for job in jobs:
        job.go()
        results.append(job.expect("result", PREPARE_S))
        gpubench.check_guest(variant, results[-1], job, daemon)
    for job in jobs:
        job.finish(60)
    return results


def copy_of(bench, copy, gib, variant, daemon=None, memory=None):
    command = [PROGRAM, "--gib", f"{gib:g}", "--copy", copy]
    return bench.job(variant, command, variant, daemon, memory, gib)


def run_alone(bench, gib, make_work, timeout_s):
    """The stock program by itself: its run, and the work that make_work(seconds of a pass) has given it."""
    with contextlib.ExitStack() as stack:
        jobs = [copy_of(bench, 0, gib, "stock")]
        work = make_work(prepare(stack, jobs)[0])
        measure(jobs, work, timeout_s)
        return Run(conclude(jobs, "stock", None)), work


def run_copies(bench, count, gib, work, timeout_s, daemon=None, memory=None):
    """Copies at once: under this daemon, or stock."""
    variant = "daemon" if daemon else "stock"
    with contextlib.ExitStack() as stack:
        jobs = [copy_of(bench, copy, gib, variant, daemon, memory) for copy in range(count)]
        prepare(stack, jobs)
        before = daemon.status() if daemon else {}
        measure(jobs, work, timeout_s)
        after = daemon.status() if daemon else {}
        run = Run(conclude(jobs, variant, daemon))
        run.before, run.after = before, after
        return run


def check_same(bench, name, found, expected):
    """All must have ended as the stock program did by itself."""
    same = all(item == expected for item in found)
    bench.figures.add(name + "_results", "same" if same else "DIFFERENT")
    if not same:
        bench.wrong.append(f"{name}_results: {found} is not {expected}")


def add_moves(figures, name, run):
    """What the daemon tells about the hand-overs of a run."""
    count = run.told("handovers")
    figures.add(name + "_handovers", count)
    moves = run.moves()
    if not moves:
        figures.add(name + "_moved", run.told("moved_bytes") / GIB, "GiB")
        return
    figures.add(name + "_paid", (moves["evicted_bytes"] + moves["restored_bytes"]) / GIB, "GiB")
    figures.add(name + "_hidden", moves["hidden_bytes"] / GIB, "GiB")
    if count:
        figures.add(name + "_drain", moves["drain_ns"] / count / 1e6, "ms/hand-over")
        figures.add(name + "_move", moves["move_ns"] / count / 1e6, "ms/hand-over")


def parser(description, memory=True, budget="--seconds"):
    """With the options of all these programs; memory: of those that take one kind of it."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpubench.common_arguments(made, budget)
    made.add_argument("--quick", action="store_true", help="short runs for a first look: targets are not judged")
    made.add_argument("--host-memory", metavar="SIZE", help="the daemon's bound (default: the daemon's own)")
    made.add_argument("--python", default=sys.executable, help="with PyTorch (default: this one)")
    if memory:
        made.add_argument("--memory", choices=("swap", "managed"), default="swap", help="default: %(default)s")
    return made


def option(made, name, default, what=""):
    """Of the type of its default."""
    made.add_argument(name, type=type(default), default=default, help=f"{what} (default: %(default)s)".strip())


def words_of(made, text, known):
    """The words of a list with commas, all of them known."""
    words = text.split(",")
    if set(words) - set(known):
        made.error(f"unknown: {' '.join(sorted(set(words) - set(known)))}")
    return words


def main(name, parse_arguments, run):
    """The whole of a program: 0 all right, 1 something wrong or missed, 77 no GPU."""
    signal.signal(signal.SIGTERM, gpubench.end_on_sigterm)
    try:
        args = parse_arguments()
        bench = Bench(args, name)
    except gpubench.BenchError as error:
        raise SystemExit(f"{name}.py: {error}") from None
    try:
        with noted(bench, name):
            run(bench)
    except BaseException:
        bench.wrong.append("ended before its end")
        bench.finish()
        raise
    raise SystemExit(bench.finish())
