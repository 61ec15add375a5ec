"""Looks at a private daemon's status many times a second."""
import bisect
import subprocess
import threading
import time

import gpubench

PERIOD_S = 0.05
JOB_KEYS = ("gpu_ns", "held_ns", "waited_ns", "turns", "used_bytes", "resident_bytes", "moved_bytes", "drain_max_ns")


class Watch:
    """Until its `with` block ends: samples, each (time, what keep(status) has kept)."""

    def __init__(self, daemon, keep, period_s=PERIOD_S):
        self.daemon, self.keep, self.period_s = daemon, keep, period_s
        self.samples = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.look_often, daemon=True)

    def look(self):
        before_s = time.monotonic()
        try:
            kept = self.keep(self.daemon.status())
        except (gpubench.BenchError, ValueError, OSError, subprocess.SubprocessError):
            return
        self.samples.append(((before_s + time.monotonic()) / 2, kept))

    def look_often(self):
        due_s = time.monotonic()
        while not self.stopped.wait(max(0, due_s - time.monotonic())):
            due_s = max(due_s, time.monotonic() - self.period_s) + self.period_s
            self.look()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()


def keep_jobs(status):
    """(GPU, pid) -> its figures."""
    return {(gpu["index"], job["pid"]): {key: job[key] for key in JOB_KEYS}
            for gpu in status["gpus"] for job in gpu["jobs"]}


class JobWatch(Watch):
    """Of every job on every GPU."""

    def __init__(self, daemon, period_s=PERIOD_S):
        super().__init__(daemon, keep_jobs, period_s)

    def looks(self, who):
        """Those at which it was there."""
        return [(at_s, jobs[who]) for at_s, jobs in self.samples if who in jobs]

    def everybody(self):
        return list(dict.fromkeys(who for _, jobs in self.samples for who in jobs))

    def of_process(self, pid):
        """Of a process with one GPU."""
        who = next((who for who in self.everybody() if who[1] == pid), None)
        if who is None:
            raise gpubench.BenchError(f"no status of the daemon has told of process {pid}")
        return self.looks(who)


class Series:
    """A figure that grows, at any time: between two looks as if it grew evenly."""

    def __init__(self, looks, key):
        self.times = [at_s for at_s, _ in looks]
        self.values = [job[key] for _, job in looks]

    def at(self, at_s):
        index = bisect.bisect(self.times, at_s)
        if index == 0 or index == len(self.times):
            return self.values[min(index, len(self.times) - 1)]
        (before_s, after_s), (before, after) = self.times[index - 1:index + 1], self.values[index - 1:index + 1]
        return before + (after - before) * (at_s - before_s) / (after_s - before_s)
