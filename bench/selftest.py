#!/usr/bin/env python3
"""Tests of the GPU benchmarks without a GPU: their own machinery, frameworks.py, thesis.py and alone.py,
over fakes.

What matters: a wrong result is called wrong (DIFFERENT hashes, programs that fail, hang, or run without libunified, more
managed memory than allowed, a target that is missed); what was measured before is still there; without a GPU the status
is 77.
"""
import json
import os
import subprocess
import sys
import time
import types
import unittest

import alone
import framework_checks
import frameworks
import gpubench
import selftest_fakes
import thesis
from selftest_fakes import Case

TWO = "--only jax,numba"
SOME = "--only swap:big_90:20,swap:big_90:2,swap:big_50:20,managed:big_90:5,stock:small_90:pair,swap:small_90:auto"


def verdicts(said):
    return {f"{name}_{variant}": said for name in ("jax", "numba") for variant in frameworks.VARIANTS}




def thesis_figures(test, ran):
    test.assertEqual(set(json.loads((ran.root / "out/thesis.json").read_text())), set(ran.figures))


CASES = {
    "frameworks: the same": Case("frameworks.py", TWO, figures=verdicts("same")),
    "frameworks: different": Case("frameworks.py", TWO, "FAKE=DIFFERENT", 1, verdicts("DIFFERENT")),
    "frameworks: stock does not repeat itself": Case(  # nothing was the same, so nothing was shown
        "frameworks.py", TWO, "FAKE=DIFFERENT FAKE_STOCK=unstable", 1, verdicts("unstable")),
    "frameworks: failure and its reason": Case("frameworks.py", TWO, "FAKE=failed", 1, verdicts("failed"), "it went wrong"),
    "frameworks: crash after the result": Case(
        "frameworks.py", TWO, "FAKE=crash_at_end", 1, verdicts("failed"), "exit status 3"),
    "frameworks: stock fails, which is no verdict": Case(
        "frameworks.py", TWO, "FAKE_STOCK=failed", 1, verdicts("no_stock")),
    "frameworks: stops, as the library logs them": Case(
        "frameworks.py", "--only jax --variants turns,shares", "FAKE=stopped", 0,
        {"frameworks_turns_stops": 3, "frameworks_shares_stops": 3}),
    "frameworks: the daemon does not know it": Case(
        "frameworks.py", "--only jax", "FAKE=unknown", 1, {"jax_unified": "same", "jax_daemon": "failed"},
        "the daemon does not know it"),
    "thesis": Case("thesis.py", SOME, "FAKE_ON=1.2", 0, {
        "thesis_swap_big_90_tq20_over_serial": (0.6, 7), "thesis_swap_big_50_tq20_over_serial_verdict": "pass",
        "thesis_managed_big_90_tq5_results": "same", "thesis_swap_small_90_auto_over_pair": (1, 2),
        "thesis_big_90_gpu_share": (0.9, 7), "thesis_swap_big_90_tq2_hidden": ...}, then=thesis_figures),
    "thesis: what the thesis had": Case("thesis.py", "--only swap:big_90:5", "FAKE_ON=1.5", 0, {
        "thesis_swap_big_90_tq5_over_serial": (0.75, 7), "thesis_swap_big_90_tq5_thesis": 1.94}),
    "thesis: missed": Case(
        "thesis.py", "--only swap:big_90:20,swap:big_90:2", "FAKE_ON=2.04", 1,
        {"thesis_swap_big_90_tq20_over_serial_verdict": "MISSED", "thesis_swap_big_90_tq2_over_serial_verdict": "pass"},
        "WRONG thesis_swap_big_90_tq20_over_serial is 1.02"),
    "thesis: missed beside the stock pair": Case(
        "thesis.py", "--only stock:small_50:pair,managed:small_50:auto", "FAKE_AUTO=1.1", 1,
        {"thesis_managed_small_50_auto_over_pair_verdict": "MISSED"}),
    "thesis: quick is not judged": Case("thesis.py", "--quick --only swap:big_90:20", "FAKE_ON=9", 0,
                                        {"thesis_swap_big_90_tq20_over_serial_verdict": "not_judged"}),
    "thesis: wrong memory": Case("thesis.py", "--only managed:big_90:5", "FAKE=DIFFERENT", 1,
                                 {"thesis_managed_big_90_tq5_results": "DIFFERENT"},
                                 "WRONG thesis_managed_big_90_tq5_results"),
    "thesis: failure leaves the rest": Case("thesis.py", "--only swap:small_90:auto,stock:small_90:pair", "FAKE=failed", 1,
                                            {"thesis_small_90_pair_results": "same"}, "it went wrong"),
    "thesis: a library that does not know swap": Case("thesis.py", "--only swap:big_90:5", "FAKE=_unknown_setting", 1,
                                                      says="does not know a setting"),
    "thesis: no time": Case("thesis.py", "--seconds 30 --only swap:big_90:20", "", 1, {"thesis_wrong": 1}, "no time left"),
    "thesis: a GPU that fails": Case("thesis.py", "", "FAKE_GPU=1", 1),
    "alone": Case("alone.py", "--control", "FAKE_MANAGED=1.0015 FAKE_SWAP=1.001", 0, {
        "alone_cohorts": 3, "alone_mlp_train_b256_stock": 100, "alone_managed_geomean_over_stock": 0.9985,
        "alone_gpt_train_b8_swap_over_stock": 0.999, "alone_control_geomean_over_stock": 1}),
    "alone: missed": Case("alone.py", "--cohorts 1 --daemon", "FAKE_SWAP=1.03", 1, {
        "alone_swap_geomean_over_stock_verdict": "MISSED", "alone_swap_worst_over_stock_verdict": "MISSED",
        "alone_managed_worst_over_stock_verdict": "pass"}),
    "alone: a workload fails in one": Case(
        "alone.py", "", "FAKE_FAILS=swap:gpt_train_b8:error", 1,
        {"alone_cohorts": 1, "alone_mlp_train_b256_swap_over_stock": ..., "alone_gpt_train_b8_swap_over_stock": None},
        "WRONG cohort 1, gpt_train_b8: swap: no such kernel"),
    "alone: a process dies": Case(
        "alone.py", "", "FAKE_FAILS=managed:gpt_train_b8:dead", 1, {"alone_resnet50_train_b64_managed_over_stock": ...},
        ("it went wrong", "only 7 workloads were measured")),
} | {f"{program}: no GPU": Case(f"{program}.py", "", "FAKE_GPU=77", 77)
     for program in ("frameworks", "thesis", "alone")}


class Programs(selftest_fakes.Fakes):
    def test_all(self):
        self.check_all(CASES)

    def test_library_that_is_not_loaded(self):
        ran = self.run_bench("frameworks.py", TWO,
                             prepare=lambda root: (root / "build/src/libunified.so").write_bytes(b"not a library"))
        self.check(Case("", code=1, figures=verdicts("failed"), says="libunified is not loaded"), ran)

    def test_hanging_program_is_ended_with_its_children(self):
        start_s = time.monotonic()
        ran = self.run_bench("frameworks.py", "--only jax --variants unified --seconds 4", "FAKE=hang FAKE_PID=/dev/null")
        self.assertEqual((ran.code, ran.figures["jax_unified"]), (1, "failed"))
        self.assertLess(time.monotonic() - start_s, 500)  # it hangs for 1000

    def test_sigterm_takes_the_daemon_along(self):
        root = self.make_root()
        bench = subprocess.Popen(selftest_fakes.command_of(root, "thesis.py", "--only swap:small_90:auto"), stdout=subprocess.DEVNULL,
                                 env=selftest_fakes.environment_of(root, f"FAKE=hang FAKE_PID={root}/grandchild"),
                                 stderr=subprocess.DEVNULL)
        end_s = time.monotonic() + 20
        while not (root / "grandchild").exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        self.assertGreater(len(selftest_fakes.living(root)), 2)
        bench.terminate()
        self.assertNotEqual(bench.wait(timeout=30), 0)
        self.assertFalse(selftest_fakes.outlive(root))


class Machinery(unittest.TestCase):
    def test_guard_refuses_and_remembers(self):
        guard = gpubench.MemoryGuard(10)
        guard.claim(6)
        with self.assertRaises(gpubench.BenchError):
            guard.claim(5)
        guard.release(6)
        guard.claim(10)

    def test_what_runs_at_once_fits_the_bound(self):
        sizes = sorted((item["managed_gib"] for item in framework_checks.CHECKS.values()), reverse=True)
        self.assertLessEqual(sum(sizes[:8]), gpubench.MANAGED_LIMIT_GIB)
        self.assertLessEqual(2 * max(program.gib for program in thesis.PROGRAMS.values()), gpubench.MANAGED_LIMIT_GIB)

    def test_variant_environment(self):
        build, base = gpubench.Build("/some/build"), {"PATH": "/bin"}
        self.assertEqual(gpubench.variant_env("stock", build, base=base), base)
        ours = gpubench.variant_env("unified", build, base=base)
        self.assertEqual(ours["LD_PRELOAD"], "/some/build/src/libunified.so")
        self.assertFalse(os.path.exists(ours["GPUSHARE_SOCKET"]))

    def test_sigterm_while_a_process_starts(self):
        """It comes once there is a process, and before anybody knows that: in the main thread, or in another one."""
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
"""
        for then in ("start()", "threading.Thread(target=start).start(); threading.Event().wait(30)"):
            done = subprocess.run([sys.executable, "-c", program + then], capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertIn("ended by SIGTERM", done.stderr)
            self.assertNotEqual(done.returncode, 0)
            with self.assertRaises(ProcessLookupError):
                os.kill(int(done.stdout), 0)

    def test_spent_budget(self):
        with self.assertRaises(gpubench.BenchError):
            gpubench.Budget(0).clip(5)

    def test_each_job_is_given_its_rate_once(self):
        said = []
        shares = frameworks.Shares(types.SimpleNamespace(ctl=lambda *words: said.append(words)), 50)
        for jobs in ([7], [7, 8], [8]):
            shares.look({"gpus": [{"jobs": [{"job": job} for job in jobs]}]})
        self.assertEqual(said, [("set-rate", "7", "50%"), ("set-rate", "8", "50%")])

    def test_points(self):
        self.assertEqual(list(map(str, thesis.chosen_points("required"))), thesis.REQUIRED)
        for text in ("swap:big_90:off", "stock:big_90:pair", "stock:small_90:20", "swap:big_90:0", "swap:big_90"):
            with self.assertRaises(gpubench.BenchError):
                thesis.Point.parse(text)

    def test_median_and_spread_of_cohorts(self):
        ratios = alone.Ratios(["swap"])
        for values in ([0.9, 1.0, 1.1], [0.98, 0.99, 3.0], [1.01, 1.02, 1.03]):
            ratios.add("x", {"swap": values})
        self.assertEqual(ratios.figure("x", "swap")[0], 1.01)
        self.assertAlmostEqual(ratios.figure("x", "swap")[1], 0.03)


if __name__ == "__main__":
    unittest.main()
