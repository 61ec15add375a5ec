"""What the selftests of the GPU benchmarks share: fakes of all that these start, and tables of runs over them.

A *case* is a run of a program: Case(PROGRAM, options, env, code, figures, says, then). Expected of it are its exit
status (None: any), its figures and words on its stderr. A figure is expected as a value; as (value, places) to be so
near it; as a function that tells whether it is right; as ... to be there, or None not to be. then(test, ran) looks
further. alone: it runs by itself, as its figures come of the moments at which it looks.
"""
import collections
import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

import gpubench

AT_ONCE = 3  # they wait most of the time

Case = collections.namedtuple("Case", "program options env code figures says then alone",
                              defaults=("", "", 0, {}, (), None, False))
Ran = collections.namedtuple("Ran", "code figures errors root")

DAEMON = '''
import pathlib, signal, sys
value = lambda name: sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""
socket = value("--socket")
(pathlib.Path(__file__).parents[2] / "capacity").write_text(value("--capacity"))
if value("--spatial"):
    logs = pathlib.Path(socket + ".mps/log")
    logs.mkdir(parents=True)
    (logs / "control.log").write_text("spatial = " + value("--spatial"))
pathlib.Path(socket).write_text(value("--mode"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
'''

# All jobs get the same GPU time under fair, but the first FAKE_FIRST times as much; once a capacity is set every second one is away.
CTL = '''
import json, os, pathlib, sys, time
words, env = sys.argv[1:], os.environ.get
socket = pathlib.Path(words[words.index("--socket") + 1])
beside = lambda what: pathlib.Path(f"{socket}.{what}")
read = lambda what: beside(what).read_text() if beside(what).exists() else ""
known = [line.split() for line in read("pids").splitlines()]
def note(what, text):
    with open(beside(what), "a") as told:
        told.write(text + "\\n")
if "set-weight" in words:
    note("weights", f"{words[-2]} {env('FAKE_WEIGHT', words[-1])}")
for setting in ("policy", "capacity"):
    if "set-" + setting in words:
        beside(setting).write_text(words[-1])
if "status" not in words:
    sys.exit(0)
first = 3 if read("policy") != "fair" else float(env("FAKE_FIRST", "1"))
since_s, jobs = time.time() - socket.stat().st_mtime, []
for place, (pid, *side) in enumerate(known):
    (beside("seen." + pid) if beside("once." + pid).exists() else beside("once." + pid)).touch()
    ran_s = since_s / 3 * (first if place == 0 else 1)
    jobs.append({"pid": int(pid), "job": place + 1, "gpu_ns": int(ran_s * 1e9), "held_ns": int(ran_s * 1.25e9),
                 "waited_ns": int((since_s - ran_s * 1.25) * 1e9), "turns": 0, "moved_bytes": 0,
                 "drain_max_ns": (20 + place) * 10**6, "used_bytes": 1 << 30,
                 "resident_bytes": 0 if read("capacity") and place % 2 else 1 << 30,
                 "limit_share": 0.3 if side == ["opportunistic"] else None})
handovers = int(env("FAKE_HANDOVERS", "120"))
told = {"drain_ns": handovers * 9 * 10**6, "hidden_bytes": 0}
fake = env("FAKE_MPS", "")
served = {"mps": "down" if fake == "broken" else "runs", "mps_programs": 0 if fake == "lonely" else len(known)}
print(json.dumps({"daemon": served, "gpus": [{"index": 0, "handovers": handovers, "moved_bytes": 9, "handover": told,
                                              "jobs": jobs}]}))
'''

# A daemon of MPS is a process that sleeps. FAKE_MPS: broken, lonely (it serves nobody), deaf (it does not quit).
MPS = '''
import os, pathlib, signal, subprocess, sys
fake = os.environ.get("FAKE_MPS", "")
pid = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "pid"
if "-d" in sys.argv:
    if fake == "broken":
        sys.exit("no such thing here")
    pid.write_text(str(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid))
    sys.exit(0)
order = sys.stdin.readline().split()
if order[0] == "quit" and fake != "deaf":
    os.kill(int(pid.read_text()), signal.SIGKILL)
elif order[0] == "get_server_list":
    print(4711)
elif order[0] == "get_client_list":
    print("" if fake == "lonely" else pid.with_name("clients").read_text())
with open(pathlib.Path(__file__).parents[1] / "mps", "a") as orders:
    orders.write(order[0] + "\\n")
'''


# Each job takes 1 GiB.
NVIDIA_SMI = '''
import contextlib, os, pathlib
root = pathlib.Path(__file__).parents[1]
alive = 0
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    with contextlib.suppress(OSError):  # it has ended meanwhile
        alive += os.fsencode(root / "python") in path.read_bytes()
print(1024 * alive)
'''


def more_than(least):
    return lambda value: value > least


@functools.cache
def empty_library():
    with tempfile.TemporaryDirectory(prefix="gpushare-selftest-") as folder:
        source, library = (pathlib.Path(folder, name) for name in ("empty.c", "empty.so"))
        source.write_text("int gpushare_selftest_empty;\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return library.read_bytes()


def make_fakes(root):
    job = f"import sys\nsys.path[0] = {str(gpubench.HERE)!r}\nimport selftest_job\n"
    for name, text in (("python", job), ("build/daemon/gpushare-daemon", DAEMON), ("build/daemon/gpusharectl", CTL),
                       ("bin/nvidia-cuda-mps-control", MPS), ("bin/nvidia-smi", NVIDIA_SMI)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable} -S\n{text}")  # without its packages: it starts in less than half the time
        path.chmod(0o755)
    (root / "build/src").mkdir()
    (root / "build/src/libunified.so").write_bytes(empty_library())


def command_of(root, program, options):
    return [sys.executable, "-S", gpubench.HERE / program, "--build", root / "build", "--python", root / "python", "--out",
            root / "out", *options.split()]


def environment_of(root, text):
    """text: NAME=VALUE ...; a value's underscores are spaces, if it begins with one."""
    told = (word.split("=") for word in text.split())
    return os.environ | {"PYTHONDONTWRITEBYTECODE": ""} | {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"} | {
        name: value[1:].replace("_", " ") if value.startswith("_") else value for name, value in told}


def living(root):
    """Processes of a test: by their command lines or their environments."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.name != str(os.getpid()) and any(
                    os.fsencode(str(root)) in (path / part).read_bytes() for part in ("cmdline", "environ")):
                found.append(path)
    return found


def outlive(root):
    """Those that do not end soon; who was killed may still be there for a moment."""
    end_s = time.monotonic() + 20
    while living(root) and time.monotonic() < end_s:
        time.sleep(0.01)
    return living(root)


class Fakes(unittest.TestCase):
    """Each run has its own folder, which stays until the test ends."""

    def make_root(self, prepare=lambda root: None):
        folder = tempfile.TemporaryDirectory(prefix="gpushare-selftest-")
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        make_fakes(root)
        prepare(root)
        return root

    def run_bench(self, program, options="", env="", prepare=lambda root: None):
        root = self.make_root(prepare)
        done = subprocess.run([*command_of(root, program, options), "--json"], env=environment_of(root, env),
                              capture_output=True, text=True, timeout=200, check=False)
        figures = json.loads(done.stdout) if done.stdout.strip() else {}
        self.assertFalse(outlive(root), "processes outlive the program")
        return Ran(done.returncode, {name: item["value"] for name, item in figures.items()}, done.stderr, root)

    def check_figure(self, figures, name, expected):
        value = figures.get(name)
        if callable(expected):
            self.assertTrue(value is not None and expected(value), f"{name} {value}")
        elif isinstance(expected, tuple):
            self.assertIsNotNone(value, name)
            self.assertAlmostEqual(value, expected[0], expected[1], name)
        elif expected is ...:
            self.assertIn(name, figures)
        else:
            self.assertEqual(value, expected, name)

    def check(self, case, ran):
        if case.code is not None:
            self.assertEqual(ran.code, case.code, ran.errors)
        for name, expected in case.figures.items():
            self.check_figure(ran.figures, name, expected)
        for text in [case.says] if isinstance(case.says, str) else case.says:
            self.assertIn(text, ran.errors)
        if case.then:
            case.then(self, ran)

    def check_all(self, cases):
        """cases: what matters -> Case."""
        empty_library()

        def run(case):
            return self.run_bench(case.program, case.options, case.env)
        for alone, count in ((False, AT_ONCE), (True, 1)):
            chosen = {name: case for name, case in cases.items() if case.alone == alone}
            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                for (name, case), ran in zip(chosen.items(), pool.map(run, chosen.values())):
                    with self.subTest(name):
                        self.check(case, ran)


class Event:
    """Of a GPU that is always done."""

    def __init__(self, enable_timing):
        self.at_s = 0 if enable_timing else None

    def record(self):
        self.at_s = time.monotonic()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at_s - self.at_s) * 1e3


TORCH = types.SimpleNamespace(cuda=types.SimpleNamespace(Event=Event))
