"""The second half of scripts/demo: runs and measures."""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
MIB = 1 << 20
RUNS = (("lock off", "off", "managed"), ("lock on", "on", "managed"), ("lock on, swap", "on", "swap"))
LIMIT_S = 50  # for one run


class Setup:
    """What is run on which driver."""

    def __init__(self, build, folder, simulate, installed):
        self.build, self.folder, self.simulate, self.installed = build, folder, simulate, installed
        self.environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "GPUSHARE_MEMORY", "GPUSHARE_LIB")}
        self.state = os.path.join(folder, "state")
        if simulate:
            self.bytes, self.capacity, self.rounds, self.spin = 48 * MIB, 64 * MIB, 150, "0.0003"
            self.tq = "0.25"
            self.environment["LD_LIBRARY_PATH"] = os.path.join(build, "tests", "sim")
            self.environment["GPUSHARE_SIM_CARD"] = f"p100,capacity={self.capacity // MIB}MiB"
            self.environment["GPUSHARE_SIM_STATE"] = self.state
        else:
            self.bytes, self.capacity, self.rounds, self.spin = 2048 * MIB, 3072 * MIB, 400, "0.01"
            self.tq = "1"
            self.environment["GS_TEST_MODULE"] = os.path.join(ROOT, "tests", "system", "kernels.ptx")

    def program(self, *path):
        return os.path.join(self.build, *path)

    def own_program(self, name):
        """What is demonstrated, of the build folder or as it is installed."""
        found = shutil.which(name) if self.installed else self.program("daemon", name)
        if not found:
            raise RuntimeError(f"{name} is not installed")
        return found

    def job_command(self, rounds, size):
        return [self.program("tests", "system", "job"), "--bytes", str(size), "--buffers", "4", "--rounds", str(rounds),
                "--spin", self.spin, "--progress", "--wait"]


# In a process of its own: a driver may keep threads and files, or not return.
ASK_DRIVER = """
import ctypes, sys
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(77 if str(error).startswith("libcuda.so.1: cannot open") else str(error))
count = ctypes.c_int(0)
result = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
if result == 100 or (result == 0 and count.value == 0):  # CUDA_ERROR_NO_DEVICE
    sys.exit(77)
if result:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(result, ctypes.byref(text))
    sys.exit(f"cuInit: error {result}: {(text.value or b'').decode()}")
"""


def output_of(command, **options):
    try:
        return subprocess.run(command, text=True, capture_output=True, timeout=30, check=False, **options)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("the GPU does not work: no answer within 30 s (--simulate: without it)") from error


def gpu_there():
    """False: there is no driver, or it knows of no GPU. One that fails is an error, not a reason to simulate."""
    result = output_of([sys.executable, "-c", ASK_DRIVER])
    if result.returncode not in (0, 77):
        said = result.stderr.strip() or f"asking the driver ended with {result.returncode}"
        raise RuntimeError(f"the GPU does not work (--simulate: without it): {said}")
    return result.returncode == 0


def try_gpu(build, folder):
    """A small job on the real driver comes to its end, or RuntimeError."""
    setup = Setup(build, folder, simulate=False, installed=False)
    result = output_of(setup.job_command(1, MIB), env=setup.environment, input="go\n")
    if result.returncode != 0 or not result.stdout.endswith("ok\n"):
        raise RuntimeError("the GPU does not work (--simulate: without it): a small program failed with "
                           f"{result.returncode}:\n{(result.stdout + result.stderr).strip()}")


class Daemon:
    """A private daemon."""

    def __init__(self, setup, mode):
        self.setup = setup
        self.socket = os.path.join(setup.folder, "daemon.sock")
        self.log = open(os.path.join(setup.folder, "daemon.log"), "w+", encoding="utf-8")
        command = [setup.own_program("gpushare-daemon"), "--socket", self.socket, "--mode", mode, "--tq", setup.tq,
                   "--capacity", str(setup.capacity)]
        self.process = subprocess.Popen(command, env=setup.environment, stderr=self.log)
        deadline = time.monotonic() + 10
        while self.status() is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                raise RuntimeError("the daemon does not run:\n" + self.log.read())
            time.sleep(0.01)

    def status(self):
        command = [self.setup.own_program("gpusharectl"), "--socket", self.socket, "status", "--json"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class Job:
    """One of the two programs; what it says goes to a file that is looked at while it runs."""

    def __init__(self, setup, daemon, name, memory):
        self.name, self.setup = name, setup
        self.output = open(os.path.join(setup.folder, f"{name}.out"), "w+", encoding="utf-8")
        self.errors = open(os.path.join(setup.folder, f"{name}.err"), "w+", encoding="utf-8")
        command = [setup.own_program("gpusharectl"), "--socket", daemon.socket, "run", "--memory", memory, "--"]
        self.process = subprocess.Popen(command + setup.job_command(setup.rounds, setup.bytes), env=setup.environment,
                                        text=True, stdin=subprocess.PIPE, stdout=self.output, stderr=self.errors)

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def rounds(self):
        found = re.findall(r"^round (\d+)$", self.text(), flags=re.M)
        return int(found[-1]) if found else 0

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.close()

    def running(self):
        return self.process.poll() is None

    def verified_bytes(self):
        found = re.search(r"^verified (\d+)$", self.text(), flags=re.M)
        if self.process.returncode != 0 or not found:
            self.errors.seek(0)
            last = self.text().strip().splitlines()[-1:] or ["nothing"]
            raise RuntimeError(f"{self.name} failed with {self.process.returncode}: {last[0]}\n{self.errors.read()}")
        return int(found.group(1))

    def stop(self):
        if self.running():
            self.process.kill()
            self.process.wait()
        self.output.close()
        self.errors.close()


def wait_until_ready(jobs):
    deadline = time.monotonic() + 30
    while not all("ready" in job.text() for job in jobs):
        if time.monotonic() > deadline or not all(job.running() for job in jobs):
            for job in jobs:
                if not job.running():
                    job.verified_bytes()
            raise RuntimeError("the programs do not get their memory")
        time.sleep(0.01)


def show(text, end="\n"):
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end=end, flush=True)
    else:
        print(text, flush=True)


def follow(jobs, title):
    """Until both have ended: progress on the screen. Returns the share of each when the first was done."""
    start, shown, shares = time.monotonic(), None, None
    while any(job.running() for job in jobs):
        done = [job.rounds() for job in jobs]
        if shares is None and (max(done) >= jobs[0].setup.rounds or not all(job.running() for job in jobs)):
            shares = [count / max(1, sum(done)) for count in done]
        elapsed = time.monotonic() - start
        if shown is None or elapsed - shown >= (0.2 if sys.stdout.isatty() else 1):
            shown = elapsed
            progress = ", ".join(f"{job.name} {count}/{job.setup.rounds}" for job, count in zip(jobs, done))
            show(f"{title}: {elapsed:5.1f} s  {progress}", end="")
        if elapsed > LIMIT_S:
            raise RuntimeError(f"{title}: not finished after {LIMIT_S} s")
        time.sleep(0.02)
    return time.monotonic() - start, shares or [0.5, 0.5]


def simulated_counters(setup):
    command = [setup.program("tests", "sim", "simstat"), setup.state]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in re.findall(r"^gpu0\.(\w+) (\d+)$", text, flags=re.M)}


def simulated_moves(setup, row, memory):
    """What the simulated driver knows better than the daemon: page faults and what they move."""
    counters = simulated_counters(setup)
    row["faults"] = counters["faults"]
    if memory == "managed":
        row["moved"] = sum(counters[name] for name in ("fault_bytes", "evicted_bytes", "prefetched_in_bytes",
                                                       "prefetched_out_bytes", "remote_bytes"))


def run(setup, title, mode, memory):
    """One row of the table."""
    if setup.simulate and os.path.exists(setup.state):
        os.unlink(setup.state)
    daemon, jobs = Daemon(setup, mode), []
    try:
        jobs = [Job(setup, daemon, name, memory) for name in ("A", "B")]
        wait_until_ready(jobs)
        for job in jobs:
            job.go()
        seconds, shares = follow(jobs, title)
        verified = sum(job.verified_bytes() for job in jobs)
        gpu = daemon.status()["gpus"][0]
        row = {"title": title, "seconds": seconds, "shares": shares, "verified": verified,
               "handovers": gpu["handovers"], "moved": gpu["moved_bytes"], "faults": None, "cost": gpu["handover"]}
        if setup.simulate:
            simulated_moves(setup, row, memory)
        show(f"{title}: {seconds:.1f} s, {verified // MIB} MiB verified")
        return row
    finally:
        for job in jobs:
            job.stop()
        daemon.stop()


def cost_columns(row):
    """What a hand-over took, how fast bytes moved in it, and what moved behind turns."""
    cost = row["cost"]
    if not row["handovers"]:
        return "n/a", "n/a", "n/a"
    milliseconds = (cost["drain_mean_ns"] + cost["move_mean_ns"]) / 1e6
    speeds = [cost[name] / 1e9 for name in ("evicted_bytes_per_s", "restored_bytes_per_s")]
    return f"{milliseconds:.1f} ms", " / ".join(f"{speed:.1f}" for speed in speeds), f"{cost['hidden_bytes'] / MIB:.0f} MiB"


LINE = "{:14} {:>11} {:>13} {:>8} {:>11} {:>10} {:>14} {:>11} {:>13}  {}"


def print_table(setup, rows):
    print()
    print(LINE.format("", "total time", "bytes moved", "faults", "hand-overs", "each", "GB/s out / in", "hidden",
                      "share of A/B", "verified"))
    for row in rows:
        faults = "n/a" if row["faults"] is None else str(row["faults"])
        share = " / ".join(f"{share:.0%}" for share in row["shares"])
        print(LINE.format(row["title"], f"{row['seconds']:.1f} s", f"{row['moved'] / MIB:.0f} MiB", faults,
                          row["handovers"], *cost_columns(row), share, f"every byte of {row['verified'] // MIB} MiB"))
    print()
    print("each: mean of a hand-over, until the old holder was done and the new one ran; GB/s: bytes moved in it by its time;")
    print("hidden: bytes moved behind turns; share: of the rounds done when the first program had finished its rounds")
    if setup.simulate:
        print("bytes moved: by page faults, evictions, prefetches and remote access, both directions, as the simulated driver counts;")
        print("with swap as the daemon counts")
        print("These are figures of a simulated card, not of a real GPU.")
    else:
        print("bytes moved: by hand-overs and behind turns, as the daemon counts; the driver does not tell of page faults (n/a)")
        print(f"The card has more memory than the {setup.capacity // MIB} MiB given to the jobs here: with the lock off nothing has to leave it.")


def main():
    parser = argparse.ArgumentParser(prog="demo.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--simulate", action="store_true", help="the simulated driver, even where there is a GPU")
    parser.add_argument("--installed", action="store_true", help="the installed programs; of the build folder only the "
                        "jobs that they share a GPU between, and the simulated driver")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    folder = tempfile.mkdtemp(prefix="gpushare-demo-")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        simulate = options.simulate or not gpu_there()
        if not simulate:
            try_gpu(build, folder)
        setup = Setup(build, folder, simulate, options.installed)
        why = "as asked" if options.simulate else "no GPU here"
        print("demo: " + (f"{why}: the SIMULATED driver is used" if simulate else "on this machine's GPU"))
        print(f"demo: two programs of {setup.bytes // MIB} MiB each, capacity {setup.capacity // MIB} MiB, TQ {setup.tq} s,"
              f" {setup.rounds} rounds over all of their memory", flush=True)
        print_table(setup, [run(setup, *entry) for entry in RUNS])
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


sys.exit(main())
