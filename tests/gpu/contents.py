"""No byte differs, ever: three programs that know what their memory should hold, in a capacity that is too small for two
of them, with a quantum of some milliseconds that changes, as the capacity does, while one after the other is killed and
replaced. GS_TEST_SEED repeats a run's choices; GS_TEST_SECONDS says how long each case goes on."""
import contextlib
import os
import random
import time

import harness

JOBS = 3
QUANTA_S = (0.02, 0.05)
PAUSES_S = (0.05, 0.5)  # between two changes
KILL_EVERY_S = 7
# Of the hand-overs that an H200 makes in that time, less than a half.
SECONDS, LEAST_PER_S = 30, {"swap": 3, "managed": 1, "mixed": 1}
MIXED_SECONDS = 8


class Sizes:
    def __init__(self):
        if harness.is_simulated():
            self.job, self.largest, self.capacities = 24, 12, (36, 72)
        else:  # unified memory of all together: 12 GiB
            self.job, self.largest, self.capacities = 4096, 2048, (5120, 6144)


class Storm:
    """Some jobs under a daemon of their own, and what befalls them."""

    def __init__(self, test, daemon, memories, chance, sizes):
        self.test, self.daemon, self.chance, self.sizes = test, daemon, chance, sizes
        self.memories = memories
        self.jobs = {}
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        for index in range(len(self.memories)):
            self.start(index)
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self, index):
        env = self.test.env(self.daemon, extra={"GPUSHARE_MEMORY": self.memories[index]})
        arguments = ("--bytes", f"{self.sizes.job}M", "--max", f"{self.sizes.largest}M", "--threads", "2", "--contexts",
                     self.chance.randint(1, 2), "--seed", self.chance.randrange(1, 1 << 48), "--wait")
        job = self.jobs[index] = self.stack.enter_context(self.test.start("churn", *arguments, env=env))
        job.expect("ready")
        job.go()

    def check_alive(self):
        for job in self.jobs.values():
            if job.process.poll() is not None:
                job.expect("ok")  # it says why not
                raise job.trouble("has ended")

    def kill_one(self):
        index = self.chance.randrange(len(self.jobs))
        self.jobs[index].kill()
        self.jobs[index].end()
        self.start(index)

    def change_something(self):
        if self.chance.random() < 0.5:
            self.daemon.ctl("set-tq", f"{self.chance.uniform(*QUANTA_S):.4f}")
        else:
            self.daemon.ctl("set-capacity", f"{self.chance.randint(*self.sizes.capacities)}M")

    def rage(self, seconds):
        end, next_kill = time.monotonic() + seconds, time.monotonic() + KILL_EVERY_S
        while time.monotonic() < end:
            time.sleep(self.chance.uniform(*PAUSES_S))  # chooses the moments; nothing depends on its length
            self.change_something()
            self.check_alive()
            if time.monotonic() > next_kill:
                self.kill_one()
                next_kill += KILL_EVERY_S

    def finish(self):
        """Every job compares all of its memory once more, with room for all; what each has done."""
        self.daemon.ctl("set-capacity", f"{len(self.jobs) * self.sizes.job * 2}M")
        for job in self.jobs.values():
            job.say("stop")
        return [job.finish()[-1] for job in self.jobs.values()]


def contents(test, name, memories, chance, seconds):
    sizes = Sizes()
    with test.daemon(tq_s=QUANTA_S[0], capacity=f"{sizes.capacities[1]}M") as daemon:
        with Storm(test, daemon, memories, chance, sizes) as storm:
            storm.rage(seconds)
            status = daemon.status()
            sums = storm.finish()
    count, moved = harness.handovers_of(status), harness.moved_of(status)
    print(f"{name}: {count} hand-overs, {moved / harness.GIB:.1f} GiB moved in {seconds} s", *sums, sep="\n  ", flush=True)
    harness.check(count >= LEAST_PER_S[name] * seconds, f"only {count} hand-overs in {seconds} s")
    harness.check(moved > sizes.job * harness.MIB, f"only {moved} bytes were moved")


def alone(test):
    """Is it we who break it?"""
    sizes = Sizes()
    with test.start("churn", "--bytes", f"{sizes.job}M", "--max", f"{sizes.largest}M", "--seconds", "5",
                    env=test.env()) as job:
        job.finish()


def run_all(test):
    seed = int(os.environ.get("GS_TEST_SEED") or random.randrange(1 << 32))
    seconds = int(os.environ.get("GS_TEST_SECONDS") or (6 if harness.is_simulated() else SECONDS))
    print(f"seed {seed}", flush=True)
    for name, memories, length in (("swap", ["swap"] * JOBS, seconds), ("managed", ["managed"] * JOBS, seconds),
                                   ("mixed", ["swap", "managed", "swap"], min(seconds, MIXED_SECONDS))):
        test.case(name, lambda: contents(test, name, memories, random.Random(seed), length), lambda: alone(test))


harness.main(run_all)
