"""What the GPU benchmarks share: figures, the time budget, the bound on managed memory, jobs and a private daemon.

Nothing here needs a GPU or a package outside the standard library, so bench/selftest.py can test it anywhere.

A *job* is a child that speaks in stages: it prints "@NAME" when it has reached a stage (with JSON after it, if it
has something to tell) and goes on only when it reads a line. So the parent decides
when which job uses the GPU, and nobody guesses with sleeps.
"""
import atexit
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MANAGED_LIMIT_GIB = 40  # more unified memory at once than this could hang a card that others use
KILL_GRACE_S = 5
SKIPPED = 77  # exit status: no GPU here


class BenchError(Exception):
    """Something that makes a figure impossible; its text is one clear line."""


class Stages:
    """The child's side of a job."""

    def reach(self, name, data=None):
        """Goes on when told to; returns what came with it, or None."""
        print("@" + name + ("" if data is None else " " + json.dumps(data)), flush=True)
        word, _, order = sys.stdin.readline().partition(" ")
        if not word:
            raise SystemExit("the benchmark that started this program has gone")
        return json.loads(order) if order.strip() else None


class Figures:
    """Prints each figure as `name value [unit]` the moment it is known; with json_only one object at the end. What is
    known so far also lies in a file, whatever becomes of the program."""

    def __init__(self, json_only=False, path=None):
        self.json_only = json_only
        self.path = path
        self.values = {}
        self.missed = []  # names of figures that are not what they should be

    def add(self, name, value, unit=""):
        self.values[name] = {"value": value, "unit": unit} if unit else {"value": value}
        if not self.json_only:
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            print(" ".join(part for part in (name, text, unit) if part), flush=True)
        if self.path:
            self.path.write_text(json.dumps(self.values, indent=1) + "\n")

    def value(self, name):
        return self.values[name]["value"] if name in self.values else None

    def judge(self, name, at_most=None, at_least=None, judged=True):
        """A figure's target, and whether it is reached. Not judged: the run is too short to tell."""
        target = at_most if at_least is None else at_least
        self.add(name + "_target", target)
        value = self.value(name)
        right = value <= target if at_least is None else value >= target
        self.add(name + "_verdict", ("pass" if right else "MISSED") if judged else "not_judged")
        if judged and not right:
            self.missed.append(f"{name} is {value:.4g}, the target is {target:g}")

    def finish(self):
        if self.json_only:
            print(json.dumps(self.values, indent=1), flush=True)


def note(text):
    """Progress for people; never part of the figures."""
    print(f"# {text}", file=sys.stderr, flush=True)


class Budget:
    """How much time the whole program may still take."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def clip(self, seconds):
        left = self.left()
        if left <= 1:
            raise BenchError("the time budget is spent")
        return min(seconds, left)


class MemoryGuard:
    """Adds up the managed memory that running jobs may ask for and refuses beyond the limit."""

    def __init__(self, limit_gib=MANAGED_LIMIT_GIB):
        self.limit_gib = limit_gib
        self.claimed_gib = 0
        self.lock = threading.Lock()

    def claim(self, gib):
        with self.lock:
            if self.claimed_gib + gib > self.limit_gib:
                raise BenchError(f"refused: {self.claimed_gib + gib:g} GiB of managed memory at once, "
                                 f"the bound is {self.limit_gib:g} GiB")
            self.claimed_gib += gib

    def release(self, gib):
        with self.lock:
            self.claimed_gib -= gib


class Build:
    """Where the programs under test lie: a build directory, or what `scripts/gpu-test --pack` made of one."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.library = self.folder / "src" / "libunified.so"
        self.daemon = self.folder / "daemon" / "gpushare-daemon"
        self.ctl = self.folder / "daemon" / "gpusharectl"

    def check(self):
        for path in (self.library, self.daemon, self.ctl):
            if not path.exists():
                raise BenchError(f"{path} is missing: build first, or name the build directory with --build")

    def env(self):
        """For the daemon and gpusharectl: libraries that were packed beside them are found."""
        env = clean_env()
        packed = self.folder / "lib"
        if packed.is_dir():
            env["LD_LIBRARY_PATH"] = ":".join(filter(None, (str(packed), env.get("LD_LIBRARY_PATH"))))
        return env


def clean_env():
    """The environment of a program that knows nothing of us."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith("GPUSHARE_") and name != "LD_PRELOAD"}


class Daemon:
    """A private daemon on a socket of its own; ends with the `with` block."""

    START_S = 10

    def __init__(self, build, out, mode, tq_s=None, capacity=None, host_memory=None, spatial=None, log="info"):
        self.build = build
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpushare-bench-"))
        self.socket = self.folder / "daemon.sock"
        self.log_path = pathlib.Path(out) / "daemon.log"
        config = self.folder / "empty.conf"  # not what this machine's administrator has set
        config.touch()
        self.command = [build.daemon, "--config", config, "--socket", self.socket, "--mode", mode, "--log", log]
        self.command += ["--tq", f"{tq_s:g}"] if tq_s else []
        self.command += ["--capacity", capacity] if capacity else []
        self.command += ["--host-memory", host_memory] if host_memory else []
        self.command += ["--spatial", spatial] if spatial else []
        self.process = None
        self.log = None

    def __enter__(self):
        self.log = open(self.log_path, "ab")
        self.process = start([str(word) for word in self.command], stdin=subprocess.DEVNULL, stdout=self.log,
                             stderr=self.log, env=self.build.env())
        try:
            self.wait_started()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def wait_started(self):
        end = time.monotonic() + self.START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise BenchError(f"gpushare-daemon ended with {self.process.returncode}: {tail(self.log_path)}")
            if self.socket.exists() and self.ctl_run("status").returncode == 0:
                return
            time.sleep(0.02)
        raise BenchError(f"gpushare-daemon did not answer within {self.START_S} s: {tail(self.log_path)}")

    def __exit__(self, *_):
        kill_group(self.process)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ctl_run(self, *args):
        return subprocess.run([str(self.build.ctl), "--socket", str(self.socket), *args], capture_output=True,
                              text=True, timeout=10, env=self.build.env(), check=False)

    def ctl(self, *args):
        done = self.ctl_run(*args)
        if done.returncode != 0:
            raise BenchError(f"gpusharectl {' '.join(args)}: exit {done.returncode}: "
                             f"{(done.stderr or done.stdout).strip()}")
        return done.stdout

    def status(self):
        return json.loads(self.ctl("status", "--json"))

    def knows(self, pid):
        return any(item.get("pid") == pid for item in objects(self.status()))


def objects(value):
    """Every JSON object within value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from objects(item)


def counter(status, name):
    """The sum of a counter over all GPUs: the objects that count hand-overs."""
    return sum(int(item.get(name, 0)) for item in objects(status) if "handovers" in item)


MOVES = ("drain_ns", "move_ns", "evicted_bytes", "restored_bytes", "hidden_bytes")


def moves(status):
    """What hand-overs have cost and moved, all GPUs together; {} if this daemon does not tell."""
    told = [item for item in objects(status) if "hidden_bytes" in item]
    return {name: sum(int(item.get(name, 0)) for item in told) for name in MOVES} if told else {}


def tail(path, lines=3):
    try:
        text = pathlib.Path(path).read_text(errors="replace").strip().splitlines()
    except OSError:
        return "(no output)"
    return " | ".join(text[-lines:]) or "(no output)"


class Started(threading.local):
    """Groups of processes that are not over yet: whoever holds one may be interrupted before it knows it. SIGTERM interrupts the
    main thread only, so only that one's start is waited for."""
    groups = set()  # of all threads
    starting = False
    ends = False


started = Started()


def start(command, **options):
    """A process in a group of its own. It ends with this program at the latest."""
    started.starting = True
    try:
        process = subprocess.Popen(command, start_new_session=True, **options)
        started.groups.add(process)
    finally:
        started.starting = False
    if started.ends:
        end_on_sigterm()
    return process


@atexit.register
def kill_started():
    for process in list(started.groups):
        kill_group(process)


def kill_group(process):
    """End a process and all that it started: politely, then not."""
    if process is None:
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=KILL_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    started.groups.discard(process)


VARIANTS = ("stock", "unified", "daemon")


def variant_env(variant, build, daemon=None, base=None, memory=None):
    """stock: without us. unified: libunified, no daemon to be found. daemon: libunified and this daemon. memory: how it
    leaves the card (managed, swap, off), if not by default."""
    env = dict(clean_env() if base is None else base)
    if variant == "stock":
        return env
    env["LD_PRELOAD"] = str(build.library)
    env["GPUSHARE_SOCKET"] = str(daemon.socket) if variant == "daemon" else "/nonexistent/gpushare.sock"
    if memory:
        env["GPUSHARE_MEMORY"] = memory
    return env


class Job:
    """One child that speaks in stages; `with` makes sure that it is gone afterwards."""

    def __init__(self, name, command, env, out, budget, guard=None, managed_gib=0):
        self.name = name
        self.command = [str(word) for word in command]
        self.env = env
        self.budget = budget
        self.guard = guard
        self.managed_gib = managed_gib if guard else 0
        self.error_path = pathlib.Path(out) / f"{name}.stderr"
        self.lines = queue.Queue()
        self.process = None
        self.errors = None

    def __enter__(self):
        if self.guard:
            self.guard.claim(self.managed_gib)
        self.errors = open(self.error_path, "wb")  # closed in __exit__
        self.process = start(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=self.env,
                             text=True)
        threading.Thread(target=self.read_lines, daemon=True).start()
        return self

    def read_lines(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def __exit__(self, *_):
        kill_group(self.process)
        self.errors.close()
        if self.guard:
            self.guard.release(self.managed_gib)
            self.guard = None  # once only

    def trouble(self, what):
        return BenchError(f"{self.name}: {what}: {tail(self.error_path)}")

    def expect(self, stage, timeout_s):
        """Wait for a stage; what it told, or None."""
        end = time.monotonic() + self.budget.clip(timeout_s)
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise self.trouble(f"no @{stage} in time") from None
            if line is None:
                raise self.trouble(f"ended with {self.process.wait()} before @{stage}")
            word, _, data = line.partition(" ")
            if word == "@" + stage:
                return json.loads(data) if data else None

    def go(self, order=None):
        try:
            self.process.stdin.write("go\n" if order is None else f"go {json.dumps(order)}\n")
            self.process.stdin.flush()
        except OSError:
            raise self.trouble("ended while held") from None

    def finish(self, timeout_s):
        """Let it end, and insist that it ends well."""
        self.go()
        self.wait_end(timeout_s)

    def wait_end(self, timeout_s):
        """It ends by itself, and well."""
        try:
            code = self.process.wait(timeout=self.budget.clip(timeout_s))
        except subprocess.TimeoutExpired:
            raise self.trouble("did not end in time") from None
        if code != 0:
            raise self.trouble(f"exit status {code} after its result")


def limit_torch(torch, gib):
    """Keep PyTorch's allocator below so many GiB. With a capacity, the card's two totals may differ; PyTorch takes its
    fraction of one of them, so the smaller one makes the bound loose rather than the program fail."""
    total = min(torch.cuda.get_device_properties(0).total_memory, torch.cuda.mem_get_info()[1])
    torch.cuda.set_per_process_memory_fraction(min(1.0, gib * (1 << 30) / total))


def is_preloaded():
    """Whether libunified is in this process (asked by the children)."""
    return "libunified" in pathlib.Path("/proc/self/maps").read_text()


def check_guest(variant, told, job, daemon=None):
    """A comparison means something only if the job ran with us in it, or without."""
    if told.get("preloaded") != (variant != "stock"):
        raise job.trouble(f"libunified is {'not ' if variant != 'stock' else ''}loaded")
    if b": the default is taken" in job.error_path.read_bytes():
        raise job.trouble("libunified does not know a setting")
    if variant == "daemon" and not daemon.knows(job.process.pid):
        raise job.trouble("the daemon does not know it")


# In a process of its own: a driver may keep threads and files, or not return.
ASK_DRIVER = """
import ctypes, sys
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(77)
count = ctypes.c_int(0)
result = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
sys.exit(77 if result == 100 or not (result or count.value) else f"cuInit: error {result}" if result else 0)
"""


def require_gpu(python):
    """Exit status 77 where there is no GPU; one that fails is an error."""
    try:
        asked = subprocess.run([python, "-c", ASK_DRIVER], env=clean_env(), capture_output=True, text=True, timeout=60,
                               check=False)
    except subprocess.TimeoutExpired:
        raise BenchError("the GPU's driver does not answer") from None
    if asked.returncode == SKIPPED:
        note("no NVIDIA GPU on this machine: skipped")
        raise SystemExit(SKIPPED)
    if asked.returncode != 0:
        raise BenchError(f"the GPU does not work: {asked.stderr.strip()[-300:]}")


def common_arguments(parser, budget="--deadline"):
    parser.add_argument("--build", default=str(HERE.parent / "build"), metavar="DIR",
                        help="build directory with src/libunified.so and daemon/ (default: build)")
    parser.add_argument("--out", metavar="DIR", help="where logs go (default: a new folder under /tmp)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument(budget, dest="deadline", type=float, default=480, metavar="SECONDS",
                        help="time for all of it (default: %(default)g)")


def end_on_sigterm(*_):
    """As an exception, so that every `with` ends its job or daemon; but not while one starts."""
    started.ends = True
    if not started.starting:
        raise SystemExit("ended by SIGTERM")


def prepare(args, name=None):
    """Build, output folder, budget, guard and figures (also in NAME.json there) of one benchmark program."""
    signal.signal(signal.SIGTERM, end_on_sigterm)
    build = Build(args.build)
    build.check()
    out = pathlib.Path(args.out or tempfile.mkdtemp(prefix="gpushare-bench-out-"))
    out.mkdir(parents=True, exist_ok=True)
    return build, out, Budget(args.deadline), MemoryGuard(), Figures(args.json, out / f"{name}.json" if name else None)
