"""Restarts lose nothing that has been answered with "ok": a hundred of them, at random moments, orderly and not; and what a
full disk costs. usage: test_restarts.py DAEMON GPUSHARECTL [SEED [RESTARTS]]"""
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "campaign")]
from played import Client, Gone, Silent  # noqa: E402

daemon, ctl = sys.argv[1:3]
seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
restarts = int(sys.argv[4]) if len(sys.argv) > 4 else 100
PATIENCE_S = 60
JOBS, MIB = 4, 1 << 20


def stay(path, number):
    """A job, for ever, with a connection whenever there is a daemon."""
    gang, chance = b"gang" if number >= JOBS - 2 else b"", random.Random(number)
    while True:
        try:
            with Client(path) as client:
                client.register(f"job{number}")
                client.send("DECLARE", 1, 0, 0, 0, gang, 0, 0, 0, 0)
                client.attach(bytes([number + 1] * 16), 64 * MIB, MIB)
                while True:
                    client.receive(PATIENCE_S)
        except (Gone, Silent):
            time.sleep(chance.choice((0.001, chance.uniform(0, 0.1))))


class Person:
    """Sets these, one after the other, and remembers what must be so: what was answered with "ok" last, or one of those that
    have been tried since."""

    def __init__(self, case, chance, *kinds):
        self.case, self.chance, self.kinds = case, chance, kinds
        self.said_ok, self.tried = 0, 0
        self.may_be = {key: [value] for key, value in self.seen().items()}

    def seen(self):
        status = self.case.status()
        if self.kinds == ("tq",):
            return {("tq", None): status["daemon"]["default_tq_ns"] // 10**6}
        return {(kind, job["job"]): job[kind] for kind in self.kinds for gpu in status["gpus"] for job in gpu["jobs"]}

    def lost(self):
        return [f"{key} is {value}, none of {self.may_be[key]}" for key, value in self.seen().items()
                if value not in self.may_be[key]]

    def set_on_and_on(self, stop):
        while not stop.is_set():
            self.set(*self.chance.choice(list(self.may_be)))

    def set(self, kind, job):
        self.tried += 1
        value = {"tq": self.tried, "weight": self.tried % 10000 + 1, "priority": self.tried % 41 - 20,
                 "class": self.chance.choice(("production", "standard", "opportunistic")),
                 "paused": self.chance.choice((True, False))}[kind]
        words = {"tq": ["set-tq", f"{value}ms"], "paused": ["pause" if value else "resume", str(job)]}.get(
            kind, [f"set-{kind}", str(job), str(value)])
        keys = [(kind, job)]
        if kind == "paused" and job in self.case.gang:  # as a whole
            keys = [(kind, member) for member in self.case.gang]
        for key in keys:
            self.may_be[key].append(value)
        if self.case.ctl(*words).returncode == 0:
            self.said_ok += 1
            for key in keys:
                self.may_be[key] = [value]


class Restarts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.socket_path = self.path("daemon.sock")
        self.process = None
        with open(self.path("gpushare.conf"), "w", encoding="utf-8"):
            pass

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self):
        """Through another program, for whom there is no limit of files, comes the log."""
        with open(self.path("log"), "ab") as log:
            writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        self.process = subprocess.Popen([daemon, "--config", self.path("gpushare.conf"), "--socket", self.socket_path,
                                         "--state", self.path("state")], stderr=writer.stdin)
        writer.stdin.close()
        self.addCleanup(writer.wait)
        self.addCleanup(self.end)
        self.await_that(lambda: self.ctl("status", "--json").returncode == 0, "it answers")

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def restart(self, how):
        self.process.send_signal(how)
        self.process.wait(PATIENCE_S)
        self.start()

    def ctl(self, *arguments):
        return subprocess.run([ctl, *arguments, "--socket", self.socket_path], capture_output=True, text=True, check=False)

    def await_that(self, holds, what):
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            self.assertLess(time.monotonic(), deadline, f"never: {what}\n{self.log()}")
            time.sleep(0.002)

    def log(self):
        with open(self.path("log"), encoding="utf-8") as file:
            return file.read()

    def status(self):
        return json.loads(self.ctl("status", "--json").stdout)

    def tq_ms(self):
        return self.status()["daemon"]["default_tq_ns"] // 10**6

    def jobs(self):
        """The numbers of those that are there."""
        return sorted(job["job"] for gpu in self.status()["gpus"] for job in gpu["jobs"])

    def start_jobs(self):
        """Processes that come back as the library does. The last two are a gang."""
        for number in range(JOBS):
            pid = os.fork()
            if pid == 0:
                try:
                    stay(self.socket_path, number)
                finally:
                    os._exit(1)
            self.addCleanup(os.waitpid, pid, 0)
            self.addCleanup(os.kill, pid, signal.SIGKILL)
            self.await_that(lambda wanted=number + 1: len(self.jobs()) == wanted, "each has come")
        self.gang = self.jobs()[-2:]

    def test_at_random_moments(self):
        """Persons set one thing after the other: at once, also for those that have yet to come back, or once it has been seen
        that all is as it was."""
        print(f"seed {seed}")
        chance = random.Random(seed)
        self.start()
        self.start_jobs()
        numbers = self.jobs()
        persons = [Person(self, random.Random(seed + 1 + i), *kinds)
                   for i, kinds in enumerate((["tq"], ["weight", "class"], ["priority"], ["paused"]))]
        lost = []
        for turn in range(restarts):
            if turn:
                self.start()
            stop = threading.Event()
            threads = [threading.Thread(target=person.set_on_and_on, args=(stop,)) for person in persons]
            looks = turn > 0 and chance.random() < 0.5
            if looks:
                self.await_that(lambda: self.jobs() == numbers, "they come back, with the numbers that they had")
                lost += [f"restart {turn}: {text}" for person in persons for text in person.lost()]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0, 0.1))
            self.process.send_signal(chance.choice((signal.SIGTERM, signal.SIGKILL)))
            stop.set()
            self.process.wait(PATIENCE_S)
            for thread in threads:
                thread.join(PATIENCE_S)
        self.start()
        self.await_that(lambda: self.jobs() == numbers, "they come back at last")
        lost += [f"at last: {text}" for person in persons for text in person.lost()]
        said_ok = {" ".join(person.kinds): person.said_ok for person in persons}
        print(f"{restarts} restarts, settings: {said_ok}, lost: {len(lost)}")
        self.assertEqual(lost, [])
        self.assertGreater(min(said_ok.values()), restarts // 2, "hardly anything was set")
        self.assertNotIn("damaged", self.log())

    def limit(self, size):
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def test_a_full_disk(self):
        self.start()
        self.assertEqual(self.ctl("set-tq", "3").returncode, 0)
        self.limit(1)
        for tq in range(4, 9):
            self.assertEqual(self.ctl("set-tq", str(tq)).returncode, 0)
        self.assertEqual(self.tq_ms(), 8000, "it goes on")
        self.await_that(lambda: self.log().count("what is set can't be kept in") == 1, "it says so, once")
        self.limit(resource.RLIM_INFINITY)
        self.await_that(lambda: "is kept in " in self.log(), "it is tried again")
        self.restart(signal.SIGKILL)
        self.assertEqual(self.tq_ms(), 8000)
        self.assertNotIn("damaged", self.log())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
