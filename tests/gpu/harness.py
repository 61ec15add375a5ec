"""What the tests for a real GPU share. Each test is an archive with a program per job to start; the daemon is private.

A test's jobs print "ready" when they have allocated, go on when they read a line, verify what they computed, and print
"ok". So a test looks at the daemon's status while they stand still, and nobody guesses with sleeps.

Prints `name pass`, `name FAIL: why` or `name skip: why` per case, at last `N passed, N failed, N skipped`.
Exit status: 0 all passed, 1 something failed, 77 no GPU, or nothing could be run.

GS_TEST_MEMORY=swap: what GPUSHARE_MEMORY is for all jobs that don't say otherwise.

Without a GPU the cases that need only the driver also run on the simulated one:
    LD_LIBRARY_PATH=build/tests/sim GPUSHARE_SIM_CARD=tests/sim/cards/... build/tests/gpu/modes [CASE...]
"""
import contextlib
import ctypes
import importlib.util
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile

from gpubench import BenchError, Budget, Build, Daemon, clean_env, kill_group, tail

PROGRAM_S = 30  # for one line of a job, or its end
TOTAL_S = 110  # for the whole test, unless it says otherwise; scripts/gpu-test allows 180
MIB = 1 << 20
GIB = 1 << 30


class Failure(Exception):
    """A case has failed; the text says why in one line."""


class Skip(Exception):
    """A case cannot be run here."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def driver_missing():
    """Why there is no GPU to test on, or None. Makes no context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver ({error})"
    count = ctypes.c_int()
    result = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if result or count.value == 0:
        return f"no NVIDIA GPU (error {result})"
    return None


def is_simulated():
    return "GPUSHARE_SIM_CARD" in os.environ


def package_folders():
    """Where NVIDIA's Python packages keep the runtime library."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(pathlib.Path(folder).glob("cu*/lib"))


def library_folder(pattern):
    """The folder of a shared library that need not be where the loader looks, or None."""
    places = [pathlib.Path(home, "lib64") for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    for folder in [*places, *package_folders()]:
        if any(folder.glob(pattern)):
            return folder
    return None


class Program:
    """One process under test; `with` makes sure that it and all that it started are gone afterwards."""

    def __init__(self, test, label, command, env):
        self.test = test
        self.label = label
        self.log = test.folder / f"{label}.stderr"
        self.lines = queue.Queue()
        with open(self.log, "wb") as errors:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, env=env, text=True,
                                            start_new_session=True)
        self.pid = self.process.pid
        threading.Thread(target=self.read_lines, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        kill_group(self.process)

    def read_lines(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def trouble(self, what):
        return Failure(f"{self.label}: {what}: {tail(self.log)}")

    def expect(self, wanted):
        """Read lines until `wanted`; those before it."""
        before = []
        budget = Budget(self.test.budget.clip(PROGRAM_S))
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, budget.left()))
            except queue.Empty:
                raise self.trouble(f'no "{wanted}" in time') from None
            if line is None:
                code = self.process.wait(timeout=PROGRAM_S)
                if code == 77:
                    raise Skip(before[-1] if before else "exit 77")
                raise self.trouble(f'ended with {code} before "{wanted}" ({"; ".join(before[-8:]) or "said nothing"})')
            if line == wanted:
                return before
            before.append(line)

    def say(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended: whoever waits for it will tell

    def go(self):
        self.say("go")

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def end(self):
        """Wait for its end: its exit code, negative for a signal."""
        try:
            return self.process.wait(timeout=self.test.budget.clip(PROGRAM_S))
        except subprocess.TimeoutExpired:
            raise self.trouble("did not end in time") from None

    def finish(self):
        """Let it come to its "ok", and insist on a good end; the lines before."""
        lines = self.expect("ok")
        code = self.end()
        check(code == 0, f"{self.label}: exit {code} after ok: {tail(self.log)}")
        return lines


class Test:
    """One run of a test program: its files, its budget, its cases."""

    def __init__(self, total_s):
        archive = pathlib.Path(sys.argv[0]).resolve()
        self.name = archive.name
        self.wanted = sys.argv[1:]
        self.build = Build(os.environ.get("GPUSHARE_BUILD", archive.parent.parent.parent))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpushare-test-"))
        self.programs = self.folder / "programs"
        self.budget = Budget(total_s)
        self.counts = {"pass": 0, "FAIL": 0, "skip": 0}
        self.started = 0
        with zipfile.ZipFile(archive) as files:
            files.extractall(self.programs)
        for file in self.programs.iterdir():
            file.chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def env(self, daemon=None, libraries=(), preload=("libunified.so",), extra=None):
        """Of a job. Without a daemon: as if libunified did not exist."""
        env = clean_env()
        if is_simulated():
            env.update((name, value) for name, value in os.environ.items() if name.startswith("GPUSHARE_SIM_"))
        else:
            env["GS_TEST_MODULE"] = str(self.programs / "kernels.ptx")
        folders = [str(self.programs), *map(str, libraries), env.get("LD_LIBRARY_PATH", "")]
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
        if daemon:
            ours = {"libunified.so": self.build.library}
            env["LD_PRELOAD"] = ":".join(str(ours.get(name, self.programs / name)) for name in preload)
            env["GPUSHARE_SOCKET"] = str(daemon.socket)
            if os.environ.get("GS_TEST_MEMORY"):
                env["GPUSHARE_MEMORY"] = os.environ["GS_TEST_MEMORY"]
        env.update(extra or {})
        return env

    def daemon(self, mode="on", tq_s=0.02, capacity="4G"):
        return Daemon(self.build, self.folder, mode, tq_s, capacity)

    def start(self, program, *arguments, env):
        """A program of the archive, or a Python script of it."""
        self.started += 1
        path = self.programs / program
        command = [sys.executable, path] if path.suffix == ".py" else [path]
        return Program(self, f"{path.stem}.{self.started}", [*command, *arguments], env)

    def case(self, name, run, stock=None):
        """Run one case, print how it went. `stock` runs the same without libunified, and is asked only after a failure:
        whose fault is it?"""
        if self.wanted and name not in self.wanted:
            return
        verdict, why = self.attempt(run)
        if verdict == "FAIL" and stock:
            without, reason = self.attempt(stock)
            why += " [passes without libunified]" if without == "pass" else f" [without libunified too{reason}]"
        self.counts[verdict] += 1
        print(f"{name} {verdict}{why}", flush=True)

    def attempt(self, run):
        """The verdict on one run, and ": why" unless it passed."""
        try:
            self.budget.clip(1)
            run()
        except Skip as reason:
            return "skip", f": {reason}"
        except (Failure, BenchError, OSError, subprocess.SubprocessError) as reason:
            return "FAIL", f": {reason}"
        return "pass", ""

    def status(self):
        print("{pass} passed, {FAIL} failed, {skip} skipped".format(**self.counts), flush=True)
        if self.counts["FAIL"]:
            return 1
        return 0 if self.counts["pass"] else 77


def jobs_of(status):
    """pid -> what the daemon says about the process, over all GPUs."""
    return {job["pid"]: job for gpu in status["gpus"] for job in gpu["jobs"]}


def handovers_of(status):
    return sum(gpu["handovers"] for gpu in status["gpus"])


def moved_of(status):
    return sum(gpu["moved_bytes"] for gpu in status["gpus"])


def watch_turns(daemon, programs):
    """Ask for the status until both are done; the most turns that each was seen to have had."""
    turns = {program.pid: 0 for program in programs}
    while any(program.process.poll() is None for program in programs):
        for pid, job in jobs_of(daemon.status()).items():
            turns[pid] = max(turns.get(pid, 0), job["turns"])
        programs[0].test.budget.clip(1)
    return turns


def run_together(test, daemon, starts, bytes_each=0):
    """Start jobs (program, arguments, env) that share the GPU, let them stand at "ready", go and verify. Checks that the
    daemon has seen their memory and that they took turns. What each said between "ready" and "ok"."""
    before = handovers_of(daemon.status())
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(test.start(name, *arguments, env=env)) for name, arguments, env in starts]
        for program in programs:
            program.expect("ready")
        jobs = jobs_of(daemon.status())
        for program in programs:
            used = jobs.get(program.pid, {}).get("used_bytes", 0)
            check(program.pid in jobs, f"{program.label}: the daemon does not know it")
            check(used >= bytes_each, f"{program.label}: the daemon knows of {used} bytes, not of {bytes_each}")
        for program in programs:
            program.go()
        turns = watch_turns(daemon, programs)
        said = [program.finish() for program in programs]
        for program in programs:
            check(turns[program.pid] > 0, f"{program.label}: it has had no turn, the gate does not hold it")
    count = handovers_of(daemon.status()) - before
    check(count > 0, "no hand-over between the jobs")
    return said


def run_alone(test, program, *arguments, env):
    """What a program says between "ready" and "ok"."""
    with test.start(program, *arguments, env=env) as one:
        one.expect("ready")
        one.go()
        return one.finish()


def main(cases, total_s=TOTAL_S):
    """cases(test) runs them all."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    name = pathlib.Path(sys.argv[0]).name
    missing = driver_missing()
    if missing:
        print(f"{name}: skipped: {missing}")
        sys.exit(77)
    with Test(total_s) as test:
        try:
            test.build.check()
            cases(test)
        except BenchError as error:
            test.counts["FAIL"] += 1
            print(f"{name} FAIL: {error}")
        sys.exit(test.status())
