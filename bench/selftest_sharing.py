#!/usr/bin/env python3
"""Tests of thesis.py, hidden.py, rounds.py and alone.py without a GPU: fake copies of bursts.py and workloads.py, and
a fake daemon.

What matters: wrong memory, a missed target and a run that did not happen are told and end with status 1; whatever was
measured before is still there; without a GPU the status is 77.
"""
import json
import struct
import types
import unittest
import zlib

import alone
import gpubench
import rounds
import selftest
import thesis

FAKE_BURSTS = r'''#!/usr/bin/env python3
"""Speaks like bursts.py. It takes as long as its work, times the factor of the daemon's mode (FAKE_ON, FAKE_AUTO)."""
import gpubench, os, pathlib, sys, time
words = sys.argv[1:]
if words[0] == "-c":
    sys.exit(int(os.environ.get("FAKE_GPU", "0")))
socket = pathlib.Path(os.environ.get("GPUSHARE_SOCKET", "/nonexistent"))
ours, mode, fake = "LD_PRELOAD" in os.environ, "stock", os.environ.get("FAKE", "same")
if ours:
    mode = socket.read_text()
    with open(str(socket) + ".pids", "a") as pids:
        pids.write(f"{os.getpid()}\n")
reach = gpubench.Stages(True).reach
reach("imported")
reach("allocated")
if ours and fake == "failed":
    sys.exit("it went wrong")
if ours and fake == "unknown setting":
    print("gpushare: GPUSHARE_MEMORY is managed or off, not 'swap': the default is taken", file=sys.stderr)
work = reach("ready", {"pass_s": 0.5})
factor = {"on": float(os.environ.get("FAKE_ON", "1.2")), "auto": float(os.environ.get("FAKE_AUTO", "1")),
          "off": 1.0, "stock": 1.0}[mode]
start = time.monotonic() if "FAKE_SLEEP" in os.environ else 1000.0  # else the same for all, however late
gpu_s = work["rounds"] * work["passes"] * 0.5
end = start + (gpu_s + work["rounds"] * work["cpu_s"]) * factor
if ours and "FAKE_SLEEP" in os.environ:
    end = start + float(os.environ["FAKE_SLEEP"])
    time.sleep(end - start)
reach("done")
reach("result", {"start_s": start, "end_s": end, "gpu_s": gpu_s, "memory_gib": 8,
                 "hash": "x" if ours and fake == "DIFFERENT" else f"h{work}",
                 "preloaded": "libunified" in pathlib.Path("/proc/self/maps").read_text()})
'''

FAKE_WORKLOADS = r'''#!/usr/bin/env python3
"""Speaks like workloads.py. Under libunified an iteration takes as much longer as FAKE_MANAGED and FAKE_SWAP say."""
import gpubench, os, pathlib, sys
if sys.argv[1] == "-c":
    sys.exit(int(os.environ.get("FAKE_GPU", "0")))
memory = os.environ.get("GPUSHARE_MEMORY", "stock")
daemon = os.environ.get("GPUSHARE_SOCKET", "")
if os.path.exists(daemon):
    with open(daemon + ".pids", "a") as pids:
        pids.write(f"{os.getpid()}\n")
slower = float(os.environ.get("FAKE_" + memory.upper(), "1"))
fails = os.environ.get("FAKE_FAILS", "").split(":")  # VARIANT:WORKLOAD:error or dead
reach = gpubench.Stages(True).reach
reach("imported")
answer = {"preloaded": "libunified" in pathlib.Path("/proc/self/maps").read_text()}
while order := reach("ready", answer):
    answer = {}
    if order["do"] == "build":
        if fails[:2] == [memory, order["workload"]]:
            if fails[2] == "dead":
                sys.exit("it went wrong")
            answer = {"error": "no such kernel"}
    if order["do"] == "run":
        count = order.get("iterations", 50)
        answer = {"iterations": count, "seconds": count * 0.01 * slower}
'''

FAKE_DAEMON = '''#!/usr/bin/env python3
import pathlib, signal, sys
value = lambda name: sys.argv[sys.argv.index(name) + 1]
pathlib.Path(value("--socket")).write_text(value("--mode"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
'''

# A hand-over each half second since the daemon began; every second one moves 8 GiB each way.
FAKE_CTL = '''#!/usr/bin/env python3
import json, os, pathlib, sys, time
socket = pathlib.Path(sys.argv[sys.argv.index("--socket") + 1])
pids = pathlib.Path(str(socket) + ".pids")
known = [int(text) for text in pids.read_text().split()] if pids.exists() else []
turn = int((time.time() - socket.stat().st_mtime) / 0.5)
moved = turn // int(os.environ.get("FAKE_EVERY", "2")) * 2 * (8 << 30)
if "status" in sys.argv:
    print(json.dumps({"gpus": [{"handovers": turn, "moved_bytes": moved, "jobs": [{"pid": pid} for pid in known],
                                "handover": {"drain_ns": turn * 1000000, "move_ns": 0, "hidden_bytes": moved // 2,
                                             "evicted_bytes": moved // 4, "restored_bytes": moved // 4}}]}))
'''


class SharingFakes(selftest.Fakes):
    JOB, DAEMON, CTL = FAKE_BURSTS, FAKE_DAEMON, FAKE_CTL


class ThesisTest(SharingFakes):
    def test_required_points(self):
        code, figures, errors = self.run_bench("thesis.py", FAKE_ON="1.2")
        self.assertEqual(code, 0, errors)
        self.assertAlmostEqual(figures["thesis_swap_big_90_tq20_over_serial"], 0.6)  # two in 1.2 times the time of one
        self.assertEqual(figures["thesis_swap_big_50_tq20_over_serial_verdict"], "pass")
        self.assertEqual(figures["thesis_managed_big_90_tq5_results"], "same")
        self.assertAlmostEqual(figures["thesis_swap_small_90_auto_over_pair"], 1, 2)
        self.assertAlmostEqual(figures["thesis_big_90_gpu_share"], 0.9)
        self.assertIn("thesis_swap_big_90_tq2_hidden", figures)
        written = json.loads((self.root / "out/thesis.json").read_text())
        self.assertEqual(set(written), set(figures))

    def test_table_and_chart_are_written(self):
        self.run_bench("thesis.py", "--only", "swap:big_90:5", FAKE_ON="1.5")
        lines = (self.root / "out/thesis.txt").read_text().splitlines()
        row = next(line for line in lines if line.startswith("TQ 5 s"))
        self.assertEqual(row.split("|")[1].split(), ["1.94", "0.75", "-"])
        data = (self.root / "out/thesis.png").read_bytes()
        self.assertTrue(data.startswith(b"\x89PNG\r\n\x1a\n"))
        width, height = struct.unpack(">II", data[16:24])
        start = data.index(b"IDAT") + 4
        pixels = zlib.decompress(data[start:start + struct.unpack(">I", data[start - 8:start - 4])[0]])
        self.assertEqual(len(pixels), height * (3 * width + 1))
        self.assertIn(bytes((20, 90, 200)), pixels)  # ours is there

    def test_missed_target(self):
        code, figures, errors = self.run_bench("thesis.py", "--only", "swap:big_90:20,swap:big_90:2", FAKE_ON="2.04")
        self.assertEqual(code, 1)
        self.assertEqual(figures["thesis_swap_big_90_tq20_over_serial_verdict"], "MISSED")
        self.assertEqual(figures["thesis_swap_big_90_tq2_over_serial_verdict"], "pass")
        self.assertIn("WRONG thesis_swap_big_90_tq20_over_serial is 1.02", errors)

    def test_missed_beside_the_stock_pair(self):
        code, figures, _ = self.run_bench("thesis.py", "--programs", "small_50", "--modes", "pair,auto",
                                          FAKE_AUTO="1.1")
        self.assertEqual(code, 1)
        self.assertEqual(figures["thesis_managed_small_50_auto_over_pair_verdict"], "MISSED")

    def test_quick_is_not_judged(self):
        code, figures, _ = self.run_bench("thesis.py", "--quick", "--only", "swap:big_90:20", FAKE_ON="9")
        self.assertEqual((code, figures["thesis_swap_big_90_tq20_over_serial_verdict"]), (0, "not_judged"))

    def test_wrong_memory(self):
        code, figures, errors = self.run_bench("thesis.py", "--only", "managed:big_90:5", FAKE="DIFFERENT")
        self.assertEqual((code, figures["thesis_managed_big_90_tq5_results"]), (1, "DIFFERENT"))
        self.assertIn("WRONG thesis_managed_big_90_tq5_results", errors)

    def test_failure_leaves_the_rest(self):
        code, figures, errors = self.run_bench("thesis.py", "--only", "swap:small_90:auto,stock:small_90:pair",
                                               FAKE="failed")
        self.assertEqual(code, 1)
        self.assertIn("it went wrong", errors)
        self.assertEqual(figures["thesis_small_90_pair_results"], "same")

    def test_library_that_does_not_know_swap(self):
        code, _, errors = self.run_bench("thesis.py", "--only", "swap:big_90:5", FAKE="unknown setting")
        self.assertEqual(code, 1)
        self.assertIn("does not know a setting", errors)

    def test_no_time(self):
        code, figures, errors = self.run_bench("thesis.py", "--seconds", "30", "--only", "swap:big_90:20")
        self.assertEqual((code, figures["thesis_wrong"]), (1, 1))
        self.assertIn("no time left", errors)
        self.assertTrue((self.root / "out/thesis.txt").exists())

    def test_no_gpu(self):
        for program in ("thesis.py", "hidden.py", "rounds.py"):
            self.assertEqual(self.run_bench(program, FAKE_GPU="77")[0], 77)
        self.assertEqual(self.run_bench("thesis.py", FAKE_GPU="1")[0], 1)

    def test_points(self):
        self.assertEqual(len(thesis.whole_table()), 2 + 4 + 8 + 4 * 2 * len(thesis.QUANTA))
        self.assertLessEqual(2 * max(program.gib for program in thesis.PROGRAMS.values()), gpubench.MANAGED_LIMIT_GIB)
        for text in ("swap:big_90:off", "stock:big_90:pair", "stock:small_90:20", "swap:big_90:0", "swap:big_90"):
            with self.assertRaises(gpubench.BenchError):
                thesis.Point.parse(text)


class HiddenTest(SharingFakes):
    def test_figures(self):
        code, figures, errors = self.run_bench("hidden.py", FAKE_ON="4.04")
        self.assertEqual(code, 0, errors)
        self.assertAlmostEqual(figures["hidden_over_serial"], 0.99, 2)
        self.assertIn("hidden_hidden", figures)

    def test_missed(self):
        code, figures, _ = self.run_bench("hidden.py", FAKE_ON="5")
        self.assertEqual((code, figures["hidden_over_serial_verdict"]), (1, "MISSED"))

    def test_managed_memory_is_bounded(self):
        code, figures, errors = self.run_bench("hidden.py", "--memory", "managed", "--jobs", "6")
        self.assertEqual(code, 1)
        self.assertIn("of managed memory at once", errors)
        self.assertIn("hidden_alone", figures)  # what was measured before


class RoundsTest(SharingFakes):
    @selftest.by_itself
    def test_whole_run(self):
        code, figures, errors = self.run_bench("rounds.py", FAKE_SLEEP="5")
        self.assertEqual(figures["rounds_results"], "same", errors)
        # a busy machine may look too late to see half
        self.assertEqual(code, 0 if figures["rounds_over_lru_verdict"] == "pass" else 1)
        self.assertEqual(figures["rounds_lru_per_turn"], 16)

    def judged(self, turns):
        bench = types.SimpleNamespace(args=types.SimpleNamespace(jobs=3, quick=False), figures=gpubench.Figures(True))
        rounds.judge_turns(bench, [moved << 30 for moved in turns], 8 << 30)
        return bench.figures.value("rounds_over_lru"), bench.figures.missed

    def test_half_of_lru(self):
        self.assertEqual(self.judged([16, 16, 16, 16, 0, 16, 0, 16]), (0.5, []))  # the odd last one does not count

    def test_as_much_as_lru(self):
        ratio, missed = self.judged([0, 0, 0, 16, 16])
        self.assertEqual((ratio, len(missed)), (1, 1))

    def test_too_few_turns(self):
        code, figures, errors = self.run_bench("rounds.py", FAKE_SLEEP="1.2")
        self.assertEqual((code, figures["rounds_results"]), (1, "same"))
        self.assertIn("whole turns were seen", errors)

    def test_middles(self):
        samples = [(0, 0, 0), (1, 0, 5), (2, 0, 7), (3, 1, 8), (4, 1, 20), (5, 1, 20), (6, 2, 20), (7, 2, 21),
                   (8, 2, 30), (9, 3, 30)]
        samples = [(at_s, (turn, moved)) for at_s, turn, moved in samples]
        self.assertEqual(rounds.moved_in_turns(samples, 0, 9), [15, 1])
        self.assertEqual(rounds.moved_in_turns(samples, 3, 9), [1])
        self.assertEqual(rounds.moved_in_turns([], 0, 9), [])


class AloneTest(SharingFakes):
    JOB = FAKE_WORKLOADS

    def test_figures(self):
        code, figures, errors = self.run_bench("alone.py", "--control", FAKE_MANAGED="1.0015", FAKE_SWAP="1.001")
        self.assertEqual(code, 0, errors)
        self.assertEqual((figures["alone_cohorts"], figures["alone_mlp_train_b256_stock"]), (3, 100))
        self.assertEqual(figures["alone_managed_geomean_over_stock"], 0.9985)
        self.assertEqual(figures["alone_gpt_train_b8_swap_over_stock"], 0.999)
        self.assertEqual(figures["alone_control_geomean_over_stock"], 1)

    def test_missed(self):
        code, figures, _ = self.run_bench("alone.py", "--cohorts", "1", "--daemon", FAKE_SWAP="1.03")
        self.assertEqual(code, 1)
        self.assertEqual(figures["alone_swap_geomean_over_stock_verdict"], "MISSED")
        self.assertEqual(figures["alone_swap_worst_over_stock_verdict"], "MISSED")
        self.assertEqual(figures["alone_managed_worst_over_stock_verdict"], "pass")

    def test_workload_that_fails_in_one(self):
        code, figures, errors = self.run_bench("alone.py", FAKE_FAILS="swap:gpt_train_b8:error")
        self.assertEqual((code, figures["alone_cohorts"]), (1, 1))
        self.assertIn("WRONG cohort 1, gpt_train_b8: swap: no such kernel", errors)
        self.assertIn("alone_mlp_train_b256_swap_over_stock", figures)
        self.assertNotIn("alone_gpt_train_b8_swap_over_stock", figures)

    def test_process_that_dies(self):
        code, figures, errors = self.run_bench("alone.py", FAKE_FAILS="managed:gpt_train_b8:dead")
        self.assertEqual(code, 1)
        self.assertIn("it went wrong", errors)
        self.assertIn("alone_resnet50_train_b64_managed_over_stock", figures)
        self.assertIn("only 7 workloads were measured", errors)

    def test_no_gpu(self):
        self.assertEqual(self.run_bench("alone.py", FAKE_GPU="77")[0], 77)

    def test_median_and_spread(self):
        ratios = alone.Ratios(["swap"])
        for values in ([0.9, 1.0, 1.1], [0.98, 0.99, 3.0], [1.01, 1.02, 1.03]):
            ratios.add("x", {"swap": values})
        self.assertEqual(ratios.figure("x", "swap")[0], 1.01)
        self.assertAlmostEqual(ratios.figure("x", "swap")[1], 0.03)


if __name__ == "__main__":
    selftest.main()
