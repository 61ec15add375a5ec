#!/usr/bin/env python3
"""Tests of the GPU benchmarks' own machinery, without a GPU: fake jobs, a fake daemon, a library that does nothing.

What matters here is that a wrong result is called wrong: DIFFERENT hashes, programs that fail, hang, or run without
libunified, and more managed memory than allowed.
"""
import concurrent.futures
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

import framework_checks
import frameworks
import gpubench

FAKE_JOB = r'''#!/usr/bin/env python3
"""Speaks like framework_checks.py and train.py. What it does under libunified is told by FAKE."""
import gpubench, os, pathlib, subprocess, sys, time
words = sys.argv[1:]
ours = "LD_PRELOAD" in os.environ
fake = os.environ.get("FAKE", "same") if ours else os.environ.get("FAKE_STOCK", "same")
daemon = os.environ.get("GPUSHARE_SOCKET", "")
if os.path.exists(daemon) and fake != "unknown":
    with open(daemon + ".pids", "a") as pids:
        pids.write(f"{os.getpid()}\n")
reach = gpubench.Stages(True).reach
if fake == "stopped" and os.environ.get("GPUSHARE_LOG") == "debug":
    print("gpushare: GPU work stands still\n" * 3, file=sys.stderr)
if fake == "failed":
    sys.exit("it went wrong")
if fake == "hang":
    pathlib.Path(os.environ["FAKE_PID"]).write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
    time.sleep(1000)
seed = words[words.index("--seed") + 1] if "--seed" in words else "1"
value = seed + {"same": "", "DIFFERENT": "x", "unstable": str(time.monotonic_ns())}.get(fake, "")
preloaded = "libunified" in pathlib.Path("/proc/self/maps").read_text()
if not words[0].endswith("train.py"):
    reach("result", {"hash": value, "preloaded": preloaded})
    sys.exit(3 if fake == "crash_at_end" else 0)
reach("imported")
count = int(words[words.index("--iterations") + 1]) if "--iterations" in words else 100
for batch in words[words.index("--batch") + 1].split(","):
    reach("ready")
    start = time.monotonic()
    time.sleep(0.05)
    rate = 50.0 if ours else 100.0
    reach("result", {"hash": value, "preloaded": preloaded, "rate": rate, "iterations": count, "start_s": start,
                     "end_s": start + count / rate, "ballast_right": fake != "ballast", "batch": int(batch)})
'''

FAKE_DAEMON = '''#!/usr/bin/env python3
import pathlib, signal, sys
pathlib.Path(sys.argv[sys.argv.index("--socket") + 1]).write_text("")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
'''

FAKE_CTL = '''#!/usr/bin/env python3
import json, pathlib, sys
socket = pathlib.Path(sys.argv[sys.argv.index("--socket") + 1])
pids = pathlib.Path(str(socket) + ".pids")
known = [int(text) for text in pids.read_text().split()] if pids.exists() else []
rates = pathlib.Path(str(socket) + ".rates")
if "set-rate" in sys.argv:
    with open(rates, "a") as told:
        told.write(" ".join(sys.argv[-2:]) + "\\n")
if "status" in sys.argv:
    held_ns = 10 ** 9 if rates.exists() else 0
    print(json.dumps({"gpus": [{"handovers": 3, "moved_bytes": 9, "jobs": [
        {"pid": pid, "job": place + 1, "held_ns": held_ns} for place, pid in enumerate(known)]}]}))
'''


def write_program(path, text):
    """By this Python, and without its packages: it starts in less than half the time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("#!/usr/bin/env python3", f"#!{sys.executable} -S", 1))
    path.chmod(0o755)


@functools.cache
def empty_library():
    with tempfile.TemporaryDirectory(prefix="gpushare-selftest-") as folder:
        source, library = (pathlib.Path(folder, name) for name in ("empty.c", "empty.so"))
        source.write_text("int gpushare_selftest_empty;\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return library.read_bytes()


class Fakes(unittest.TestCase):
    """Each test has its own folder: some run at once (see main)."""
    JOB, DAEMON, CTL = FAKE_JOB, FAKE_DAEMON, FAKE_CTL

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpushare-selftest-")
        self.addCleanup(folder.cleanup)
        root = self.root = pathlib.Path(folder.name)
        write_program(root / "python", self.JOB)
        (root / "gpubench.py").symlink_to(gpubench.HERE / "gpubench.py")  # beside the jobs, which speak by it
        write_program(root / "build/daemon/gpushare-daemon", self.DAEMON)
        write_program(root / "build/daemon/gpusharectl", self.CTL)
        (root / "build/src").mkdir()
        (root / "build/src/libunified.so").write_bytes(empty_library())

    def run_bench(self, program, *options, **env):
        """Exit status, figures and stderr of a benchmark program over the fakes."""
        done = subprocess.run([sys.executable, gpubench.HERE / program, "--build", self.root / "build", "--python",
                               self.root / "python", "--json", "--out", self.root / "out", *options],
                              env=os.environ | env, capture_output=True, text=True, timeout=60, check=False)
        figures = json.loads(done.stdout) if done.stdout.strip() else {}
        return done.returncode, {name: item["value"] for name, item in figures.items()}, done.stderr


def by_itself(test):
    """One whose figures come of the moments at which it looks."""
    test.by_itself = True
    return test


def is_patient(case):
    return isinstance(case, Fakes) and not hasattr(getattr(case, case._testMethodName), "by_itself")


class AtOnce(unittest.TestSuite):
    """Some of its tests at a time: they wait most of the time."""
    TESTS = 3

    def run(self, result, debug=False):
        def run_one(test):
            own = unittest.TestResult()
            test.run(own)
            return own
        with concurrent.futures.ThreadPoolExecutor(self.TESTS) as pool:
            for own in pool.map(run_one, self):
                result.testsRun += own.testsRun
                result.failures += own.failures
                result.errors += own.errors
                result.skipped += own.skipped
        return result


def cases_of(suite):
    for test in suite:
        yield from cases_of(test) if isinstance(test, unittest.TestSuite) else (test,)


class Runner(unittest.TextTestRunner):
    def run(self, test):
        cases = list(cases_of(test))
        empty_library()
        return super().run(unittest.TestSuite((
            AtOnce(case for case in cases if is_patient(case)),
            unittest.TestSuite(case for case in cases if not is_patient(case)))))


def main():
    unittest.main(testRunner=Runner)


class FrameworksTest(Fakes):
    def verdicts(self, *options, **env):
        code, figures, errors = self.run_bench("frameworks.py", "--only", "jax,numba", *options, **env)
        return code, {figures[f"{name}_{variant}"] for name in ("jax", "numba")
                      for variant in ("unified", "daemon", "turns", "shares")}, errors

    def test_same(self):
        code, said, _ = self.verdicts()
        self.assertEqual((code, said), (0, {"same"}))

    def test_each_job_is_given_its_rate_once(self):
        said = []
        shares = frameworks.Shares(types.SimpleNamespace(ctl=lambda *words: said.append(words)), 50)
        for jobs in ([7], [7, 8], [8]):
            shares.look({"gpus": [{"jobs": [{"job": job} for job in jobs]}]})
        self.assertEqual(said, [("set-rate", "7", "50%"), ("set-rate", "8", "50%")])

    def test_stops_are_counted_as_the_library_logs_them(self):
        _, figures, _ = self.run_bench("frameworks.py", "--only", "jax", "--variants", "turns,shares", FAKE="stopped")
        self.assertEqual((figures["frameworks_turns_stops"], figures["frameworks_shares_stops"]), (3, 3))

    def test_different(self):
        code, said, _ = self.verdicts(FAKE="DIFFERENT")
        self.assertEqual((code, said), (1, {"DIFFERENT"}))

    def test_stock_that_does_not_repeat_itself(self):
        code, said, _ = self.verdicts(FAKE="DIFFERENT", FAKE_STOCK="unstable")
        self.assertEqual((code, said), (1, {"unstable"}))  # nothing was the same, so nothing was shown

    def test_failure_and_its_reason(self):
        code, said, errors = self.verdicts(FAKE="failed")
        self.assertEqual((code, said), (1, {"failed"}))
        self.assertIn("it went wrong", errors)

    def test_crash_after_the_result(self):
        code, said, errors = self.verdicts(FAKE="crash_at_end")
        self.assertEqual((code, said), (1, {"failed"}))
        self.assertIn("exit status 3", errors)

    def test_stock_failure_is_no_verdict(self):
        code, said, _ = self.verdicts(FAKE_STOCK="failed")
        self.assertEqual((code, said), (1, {"no_stock"}))

    def test_program_that_the_daemon_does_not_know(self):
        _, figures, errors = self.run_bench("frameworks.py", "--only", "jax", FAKE="unknown")
        self.assertEqual((figures["jax_unified"], figures["jax_daemon"]), ("same", "failed"))
        self.assertIn("the daemon does not know it", errors)

    def test_hanging_program_is_ended_with_its_children(self):
        pid_file = self.root / "grandchild"
        start = time.monotonic()
        code, figures, _ = self.run_bench("frameworks.py", "--only", "jax", "--variants", "unified", "--deadline", "4",
                                          FAKE="hang", FAKE_PID=str(pid_file))
        self.assertEqual((code, figures["jax_unified"]), (1, "failed"))
        self.assertLess(time.monotonic() - start, 20)
        state = pathlib.Path(f"/proc/{pid_file.read_text()}/stat")
        self.assertTrue(not state.exists() or ") Z" in state.read_text())

    def test_library_that_is_not_loaded(self):
        library = self.root / "build/src/libunified.so"
        content = library.read_bytes()
        try:
            library.write_bytes(b"not a library")
            code, said, errors = self.verdicts()
        finally:
            library.write_bytes(content)
        self.assertEqual((code, said), (1, {"failed"}))
        self.assertIn("libunified is not loaded", errors)


class OverheadTest(Fakes):
    QUICK = ("--repeat", "2", "--seconds", "0.1", "--tight-iterations", "20")

    def test_figures(self):
        code, figures, errors = self.run_bench("overhead.py", *self.QUICK)
        self.assertEqual(code, 0, errors)
        self.assertEqual(figures["alone_b4_daemon_over_stock"], 0.5)
        self.assertEqual(figures["alone_b64_stock"], 100)
        self.assertEqual(figures["tight_auto_results"], "same")
        self.assertEqual(figures["tight_on_handovers"], 3)

    def test_wrong_weights(self):
        code, figures, errors = self.run_bench("overhead.py", "--only", "tight", *self.QUICK, FAKE="DIFFERENT")
        self.assertEqual((code, figures["tight_on_results"]), (1, "DIFFERENT"))
        self.assertIn("WRONG tight_auto_results", errors)

    def test_wrong_memory(self):
        code, figures, _ = self.run_bench("overhead.py", "--only", "tight", *self.QUICK, FAKE="ballast")
        self.assertEqual((code, figures["tight_on_results"]), (1, "DIFFERENT"))

    def test_part_that_fails_does_not_stop_the_others(self):
        code, figures, errors = self.run_bench("overhead.py", "--only", "tight,alone", *self.QUICK, FAKE="failed")
        self.assertEqual(code, 1)
        self.assertEqual(figures["overhead_wrong"], 2)
        self.assertIn("WRONG alone", errors)

    def test_sigterm_takes_the_daemon_along(self):
        pid_file = self.root / "grandchild-of-overhead"
        bench = subprocess.Popen([sys.executable, gpubench.HERE / "overhead.py", "--build", self.root / "build",
                                  "--python", self.root / "python", "--out", self.root / "out", "--only", "tight"],
                                 env=os.environ | {"FAKE": "hang", "FAKE_PID": str(pid_file)},
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not pid_file.exists() and time.monotonic() < end:
            time.sleep(0.01)
        own = [str(self.root)]
        self.assertTrue(running(own))
        bench.terminate()
        self.assertNotEqual(bench.wait(timeout=30), 0)
        end = time.monotonic() + 20  # who was killed may still be there for a moment
        while running(own) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse(running(own))


def running(words):
    """Processes with these words in their command lines, other than this one."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_text(errors="replace")
        except OSError:
            continue
        if all(word in text for word in words) and entry.parent.name != str(os.getpid()):
            found.append(text.replace("\0", " "))
    return found


class MachineryTest(unittest.TestCase):
    def test_guard_refuses_and_remembers(self):
        guard = gpubench.MemoryGuard(10)
        guard.claim(6)
        with self.assertRaises(gpubench.BenchError):
            guard.claim(5)
        guard.release(6)
        guard.claim(10)

    def test_checks_fit_the_bound_at_once(self):
        sizes = sorted((item["managed_gib"] for item in framework_checks.CHECKS.values()), reverse=True)
        self.assertLessEqual(sum(sizes[:8]), gpubench.MANAGED_LIMIT_GIB)

    def test_variant_environment(self):
        build = gpubench.Build("/some/build")
        base = {"PATH": "/bin"}
        self.assertEqual(gpubench.variant_env("stock", build, base=base), base)
        ours = gpubench.variant_env("unified", build, base=base)
        self.assertEqual(ours["LD_PRELOAD"], "/some/build/src/libunified.so")
        self.assertFalse(os.path.exists(ours["GPUSHARE_SOCKET"]))

    def end_while_a_process_starts(self, then):
        """SIGTERM comes once there is a process, and before anybody knows that."""
        program = f"""
import os, signal, subprocess, sys, threading
sys.path.insert(0, {str(gpubench.HERE)!r})
import gpubench
heard = threading.Event()
def hear(*_):
    heard.set()
    gpubench.end_on_sigterm()
signal.signal(signal.SIGTERM, hear)
real = subprocess.Popen
def interrupted(*arguments, **options):
    process = real(*arguments, **options)
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    heard.wait(30)
    return process
subprocess.Popen = interrupted
def start():
    gpubench.start(["sleep", "1000"])
{then}
print("it goes on")
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("ended by SIGTERM", done.stderr)
        self.assertNotEqual(done.returncode, 0)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(done.stdout), 0)

    def test_sigterm_while_a_process_starts(self):
        self.end_while_a_process_starts("start()")

    def test_sigterm_while_a_thread_starts_a_process(self):
        self.end_while_a_process_starts("threading.Thread(target=start).start(); threading.Event().wait(30)")

    def test_spent_budget(self):
        with self.assertRaises(gpubench.BenchError):
            gpubench.Budget(0).clip(5)


if __name__ == "__main__":
    main()
