"""NVIDIA's MPS for the jobs of one measurement: a control daemon on directories of its own, gone afterwards.

It changes nothing of the GPU: neither its compute mode nor its clocks.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import gpubench

CONTROL = "nvidia-cuda-mps-control"
START_S, ANSWER_S, END_S = 10, 20, 5


class NotThere(gpubench.BenchError):
    """MPS does not start here."""


def without(env):
    """The environment of a program that does not use the MPS that others may have started."""
    return {name: value for name, value in env.items() if not name.startswith("CUDA_MPS_")}


def keep_logs(folder, kept_path):
    """What MPS has written there, at the end of a file that stays."""
    with open(kept_path, "ab") as kept:
        for path in sorted(pathlib.Path(folder).glob("*.log")):
            kept.write(path.read_bytes())


def await_of_daemon(daemon):
    """gpushare-daemon's own MPS takes programs."""
    if not shutil.which(CONTROL):
        raise NotThere(f"there is no {CONTROL}")
    end_s = time.monotonic() + START_S
    while daemon.status()["daemon"]["mps"] != "runs":
        if time.monotonic() > end_s:
            raise gpubench.BenchError(f"the daemon's MPS does not run: {gpubench.tail(daemon.log_path)}")
        time.sleep(0.05)


def check_programs(programs, count):
    """A comparison means something only if the jobs use it."""
    if programs < count:
        raise gpubench.BenchError(f"MPS serves {programs} of {count} jobs")


class Mps:
    """Runs until its `with` block ends."""

    def __init__(self, out):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpushare-mps-"))
        self.log_path = pathlib.Path(out) / "mps.log"

    def env(self):
        """What makes a program its client."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "pipe"),
                "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")}

    def control(self, *words, order=None):
        """Its exit status, and what it says. What the daemon keeps open must not keep us: its output goes to a file."""
        with tempfile.TemporaryFile("w+") as said:
            try:
                done = subprocess.run([CONTROL, *words], input=None if order is None else order + "\n", stdout=said,
                                      stderr=said, env=without(gpubench.clean_env()) | self.env(), text=True,
                                      timeout=ANSWER_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NotThere(f"{CONTROL}: {error}") from None
            said.seek(0)
            return done.returncode, said.read().strip()

    def processes_of(self, order):
        """The numbers of processes that it answers with."""
        status, said = self.control(order=order)
        return [word for word in said.split() if word.isdigit()] if status == 0 else []

    def servers(self):
        return self.processes_of("get_server_list")

    def clients(self):
        """How many processes it serves."""
        return sum(len(self.processes_of(f"get_client_list {server}")) for server in self.servers())

    def __enter__(self):
        for name in ("pipe", "log"):
            (self.folder / name).mkdir()
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def start(self):
        status, said = self.control("-d")
        if status != 0:
            raise NotThere(f"{CONTROL} -d: exit status {status}: {said or 'no word'}")
        status, said = self.control(order=f"start_server -uid {os.getuid()}")
        end_s = time.monotonic() + START_S
        while status == 0 and not self.servers() and time.monotonic() < end_s:
            time.sleep(0.05)
        if not self.servers():
            raise NotThere(f"no MPS server starts: {said or gpubench.tail(self.folder / 'log' / 'server.log')}")

    def processes(self):
        """The daemon, its servers and whoever else lives on our directories."""
        mark = os.fsencode(f"CUDA_MPS_PIPE_DIRECTORY={self.folder / 'pipe'}")
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def wait_gone(self, seconds):
        end_s = time.monotonic() + seconds
        while self.processes() and time.monotonic() < end_s:
            time.sleep(0.02)
        return not self.processes()

    def __exit__(self, *_):
        """Politely, then not."""
        try:
            self.control(order="quit")
        except NotThere as error:
            gpubench.note(f"MPS does not hear: {error}")
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if self.wait_gone(END_S):
                break
            for pid in self.processes():
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    pass
        keep_logs(self.folder / "log", self.log_path)
        shutil.rmtree(self.folder, ignore_errors=True)
