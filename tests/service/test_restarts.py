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

daemon, ctl = sys.argv[1:3]
seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
restarts = int(sys.argv[4]) if len(sys.argv) > 4 else 100
PATIENCE_S = 60


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

    def tq_ms(self):
        return json.loads(self.ctl("status", "--json").stdout)["daemon"]["default_tq_ns"] // 10**6

    def test_at_random_moments(self):
        print(f"seed {seed}")
        chance = random.Random(seed)
        said_ok, tried, stop = 0, 0, threading.Event()

        def set_on_and_on():
            nonlocal said_ok, tried
            while not stop.is_set():
                tried += 1
                if self.ctl("set-tq", f"{tried}ms").returncode == 0:
                    said_ok = tried

        lost = 0
        for _ in range(restarts):
            self.start()
            tq_ms = self.tq_ms()
            lost += said_ok > 0 and not said_ok <= tq_ms <= tried
            stop.clear()
            person = threading.Thread(target=set_on_and_on)
            person.start()
            time.sleep(chance.uniform(0, 0.05))
            self.process.send_signal(chance.choice((signal.SIGTERM, signal.SIGKILL)))
            stop.set()
            self.process.wait(PATIENCE_S)
            person.join(PATIENCE_S)
        self.assertGreater(said_ok, restarts // 2, "hardly anything was set")
        print(f"{restarts} restarts, {said_ok} settings, {lost} lost")
        self.assertEqual(lost, 0)
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
