#!/usr/bin/env python3
"""Tests of fair.py, pair.py, short.py, many.py and ddp.py without a GPU: fake trainings, servers, ranks and daemon.

What matters: shares that are not equal, a target that is missed, wrong weights or answers, and a job that hangs or dies
are told and end with status 1; what was measured before is still there; the chart shows who ran when.
"""
import json
import os
import struct
import threading
import time
import types
import unittest
import zlib
from unittest import mock

import chart
import fair
import many
import selftest
import serve
import steady
import timeline
import trainings
import turns
import watch

FAKE_JOB = r'''#!/usr/bin/env python3
"""Speaks like steady.py, serve.py and ddp_train.py under torchrun; 100 iterations per second by itself.

Under a daemon whose policy is fair FAKE_SHARE of that, else FAKE_ALONE; where iterations are counted FAKE_SRTF and so
on, by the policy."""
import gpubench, json, os, pathlib, sys, time
words = sys.argv[1:]
env = os.environ.get
if words[0] == "-c":
    if "device_count" in words[1]:
        print(env("FAKE_GPUS", "2"))
        sys.exit(0)
    sys.exit(int(env("FAKE_GPU", "0")))
if "--list" in words:
    print(env("FAKE_MODELS", "a b c d e f"))
    sys.exit(0)
value = lambda name: words[words.index(name) + 1]
socket = env("GPUSHARE_SOCKET")
ours, fake = "LD_PRELOAD" in os.environ, env("FAKE", "same") if "LD_PRELOAD" in os.environ else "same"
preloaded = "libunified" in pathlib.Path("/proc/self/maps").read_text()
reach = gpubench.Stages(True).reach
def pids():
    return pathlib.Path(socket + ".pids").read_text().split()
def appear():
    if ours:
        with open(socket + ".pids", "a") as known:
            known.write(f"{os.getpid()}\n")
        return pids().index(str(os.getpid()))
def be_seen():
    """By somebody who looks at the status: one look is over."""
    while ours and not pathlib.Path(f"{socket}.seen.{os.getpid()}").exists():
        time.sleep(0.01)
def policy():
    path = pathlib.Path(socket + ".policy")
    return path.read_text() if path.exists() else "rr"

def train():
    order = reach("imported")
    appear()
    be_seen()
    if fake == "failed":
        sys.exit("it went wrong")
    start, rate = time.monotonic(), 100.0
    if ours:
        rate *= float(env("FAKE_" + policy().upper(), "1") if "iterations" in order else
                      env("FAKE_SHARE" if policy() == "fair" else "FAKE_ALONE", "1"))
    if "iterations" in order:
        if policy() == "srtf" and not 0 < float(env("GPUSHARE_EXPECTED_RUNTIME", "0")) < 100:
            sys.exit("nobody told how long it takes")
        if policy() == "srtf" and env("GPUSHARE_EXPECTED_MEMORY") != "7168M":
            sys.exit("nobody told how much memory it takes")
        end = start + order["iterations"] / rate
    elif "seconds" in order:
        end = start + order["seconds"]
    elif "until_s" in order:
        end = order["until_s"]
        time.sleep(max(0, end - time.monotonic()))
    else:
        sys.stdin.readline()
        end = time.monotonic()
    weights = pathlib.Path(socket + ".weights") if ours else None
    if weights and weights.exists():
        told = dict(line.split() for line in weights.read_text().splitlines())
        rate = 96 * float(told[str(pids().index(str(os.getpid())) + 1)]) / sum(map(float, told.values()))
    count = order.get("iterations", int((end - start) * rate))
    reach("done", {"begun_s": start, "start_s": start, "end_s": end,
                   "ends_s": [start + (index + 0.5) / rate for index in range(count)]})
    reach("result", {"hash": "x" if fake == "DIFFERENT" else f"h{count}", "memory_right": fake != "memory",
                     "memory_gib": 7, "preloaded": preloaded})

def serve():
    """Every second one is away (as the fake gpusharectl tells): what that adds is FAKE_AWAY."""
    reach("imported")
    if env("FAKE_DEAD") == value("--model"):
        sys.exit("no memory")
    place = appear()
    order = reach("ready")
    warm = 0
    while "warm" in order:
        warm, order = warm + 1, reach("warm")
    if warm != int(env("FAKE_WARM", "1")):
        sys.exit(f"{warm} requests before the first that is timed")
    added = 0 if not ours else float(env("FAKE_HERE", "1") if place % 2 == 0 else env("FAKE_AWAY", "200"))
    reach("result", {"requests": [[order["start_s"] + at_s, 10 + added] for at_s in order["requests_s"]],
                     "answer": fake, "preloaded": preloaded})

def ranks():
    appear()
    be_seen()
    time.sleep(1000 if fake == "hang" else 0)
    start = time.monotonic()
    for rank in (0, 1):
        print("@rank " + json.dumps({
            "rank": rank, "pid": os.getpid(), "iterations": 7, "start_s": start, "end_s": start + (2 if ours else 1),
            "hash": "x" if fake == "DIFFERENT" else f"r{rank}", "memory_right": True,
            "memory_gib": 7, "preloaded": preloaded}), flush=True)

if words[0] == "-m":
    ranks()
elif words[0].endswith("serve.py"):
    serve()
else:
    train()
'''

FAKE_DAEMON = '''#!/usr/bin/env python3
import pathlib, signal, sys
pathlib.Path(sys.argv[sys.argv.index("--socket") + 1]).write_text("")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
'''

# Jobs get the same GPU time under fair, but the first FAKE_FIRST times as much, or turns of FAKE_TURNS seconds; once
# there is a capacity every second one is away.
FAKE_CTL = '''#!/usr/bin/env python3
import json, os, pathlib, sys, time
words = sys.argv[1:]
socket = pathlib.Path(words[words.index("--socket") + 1])
if "set-policy" in words:
    pathlib.Path(str(socket) + ".policy").write_text(words[-1])
if "set-weight" in words:
    with open(str(socket) + ".weights", "a") as weights:
        weights.write(" ".join((words[-2], os.environ.get("FAKE_WEIGHT", words[-1]))) + "\\n")
if "set-capacity" in words:
    pathlib.Path(str(socket) + ".capacity").write_text(words[-1])
if "status" in words:
    pids = pathlib.Path(str(socket) + ".pids")
    known = [int(text) for text in pids.read_text().split()] if pids.exists() else []
    policy, tight = pathlib.Path(str(socket) + ".policy"), pathlib.Path(str(socket) + ".capacity").exists()
    is_fair = policy.exists() and policy.read_text() == "fair"
    first = float(os.environ.get("FAKE_FIRST", "1")) if is_fair else 3
    since_ns = int((time.time() - socket.stat().st_mtime) * 1e9)
    jobs = []
    for place, pid in enumerate(known):
        once = pathlib.Path(f"{socket}.once.{pid}")
        (pathlib.Path(f"{socket}.seen.{pid}") if once.exists() else once).touch()
        ran_ns, turns = int(since_ns / 3 * (first if place == 0 else 1)), 0
        if "FAKE_TURNS" in os.environ:
            turn_ns = int(float(os.environ["FAKE_TURNS"]) * 1e9)
            rounds, rest_ns = divmod(since_ns - place * turn_ns, 3 * turn_ns)
            ran_ns, turns = max(rounds * turn_ns + min(rest_ns, turn_ns), 0), rounds + 1
        jobs.append({"pid": pid, "job": place + 1, "gpu_ns": ran_ns, "held_ns": ran_ns * 5 // 4, "waited_ns": since_ns - ran_ns * 5 // 4,
                     "turns": turns, "moved_bytes": 0, "drain_max_ns": (20 + place) * 10**6,
                     "used_bytes": 1 << 30, "resident_bytes": 0 if tight and place % 2 else 1 << 30})
    handovers = int(os.environ.get("FAKE_HANDOVERS", "120"))
    told = {"drain_ns": handovers * 9 * 10**6, "hidden_bytes": 0}
    print(json.dumps({"gpus": [{"index": 0, "handovers": handovers, "handover": told, "jobs": jobs}]}))
'''


class SchedulingFakes(selftest.Fakes):
    JOB, DAEMON, CTL = FAKE_JOB, FAKE_DAEMON, FAKE_CTL

    def pixels(self, name):
        data = (self.root / "out" / name).read_bytes()
        self.assertTrue(data.startswith(b"\x89PNG\r\n\x1a\n"))
        width, height = struct.unpack(">II", data[16:24])
        start = data.index(b"IDAT") + 4
        pixels = zlib.decompress(data[start:start + struct.unpack(">I", data[start - 8:start - 4])[0]])
        self.assertEqual(len(pixels), height * (3 * width + 1))
        return pixels


class FairTest(SchedulingFakes):
    SHORT = ("--stagger", "0.2", "--together", "2.2", "--window", "0.5", "--alone-seconds", "1")

    @selftest.by_itself
    def test_equal(self):
        code, figures, errors = self.run_bench("fair.py", *self.SHORT, FAKE_SHARE="0.33", FAKE_ALONE="0.95")
        self.assertEqual(code, 0, errors)
        self.assertAlmostEqual(figures["fair_aggregate_over_alone"], 0.99, 1)
        self.assertAlmostEqual(figures["fair_fitting_aggregate_over_ours_alone"], 0.99 / 0.95, 1)
        self.assertAlmostEqual(figures["fair_ours_alone_over_stock"], 0.95, 2)
        self.assertGreater(figures["fair_jain_worst"], 0.99)
        self.assertGreater(figures["fair_fitting_jain_iterations_worst"], 0.99)
        told = json.loads((self.root / "out/timeline.json").read_text())
        self.assertEqual([panel["title"] for panel in told["panels"]], ["tight, fair", "fitting, fair"])
        self.assertEqual([row["name"] for row in told["panels"][0]["rows"]], ["training 1", "training 2", "training 3"])
        self.pixels("fair.png")

    def test_unequal_and_slow(self):
        code, figures, errors = self.run_bench("fair.py", *self.SHORT, "--only", "tight", FAKE_SHARE="0.3",
                                               FAKE_FIRST="2")
        self.assertEqual((code, figures["fair_jain_worst_verdict"]), (1, "MISSED"), errors)
        self.assertAlmostEqual(figures["fair_jain_worst"], 16 / 18, 2)
        self.assertEqual(figures["fair_aggregate_over_alone_verdict"], "MISSED")

    @selftest.by_itself
    def test_turns(self):
        _, figures, errors = self.run_bench("fair.py", *self.SHORT, "--only", "tight", "--together", "4",
                                            FAKE_SHARE="0.5", FAKE_TURNS="0.4")
        self.assertGreater(figures["fair_turns_seen"], 2, errors)
        self.assertAlmostEqual(figures["fair_first_iterations_over_median"], 1, 2)
        self.assertAlmostEqual(figures["fair_iteration_over_ours_alone"], 2, 1)
        told = json.loads((self.root / "out/turns.json").read_text())["tight"]
        self.assertEqual(set(told), {"training 1", "training 2", "training 3"})
        turn = next(turn for ran in told.values() for turn in ran)
        self.assertAlmostEqual(turn["to_s"] - turn["from_s"], 0.4, 2)
        self.assertIn(turn["iterations"], range(16, 26))
        self.assertEqual((turn["first_s"][0], turn["rest_median_s"]), (0.02, 0.02))

    @selftest.by_itself
    def test_weights(self):
        """The fakes have 0.96 of one alone together, in shares of these weights."""
        short = ("--only", "weights", "--weights-seconds", "6", "--alone-seconds", "1")
        code, figures, errors = self.run_bench("fair.py", *short)
        self.assertEqual((code, figures["fair_weights_error_worst_verdict"]), (0, "pass"), errors)
        self.assertAlmostEqual(figures["fair_weights_aggregate_over_alone"], 0.96, 1)
        self.assertEqual(figures["fair_weights_aggregate_over_alone_verdict"], "pass")
        code, figures, _ = self.run_bench("fair.py", *short, FAKE_WEIGHT="100")
        self.assertEqual((code, figures["fair_weights_error_worst_verdict"]), (1, "MISSED"))
        self.assertAlmostEqual(figures["fair_weights_error_worst"], 4 / 3, 1)

    def test_share_errors(self):
        self.assertEqual(max(fair.share_errors([4, 2, 1])), 0)
        self.assertAlmostEqual(max(fair.share_errors([1, 1, 1])), 4 / 3)
        self.assertAlmostEqual(max(fair.share_errors([4, 2, 1.1])), 1.1 * 7 / 7.1 - 1)

    def test_one_fails(self):
        code, figures, errors = self.run_bench("fair.py", *self.SHORT, "--only", "tight", FAKE="failed")
        self.assertEqual(code, 1)
        self.assertIn("it went wrong", errors)
        self.assertAlmostEqual(figures["fair_alone_before"], 100, delta=2)
        self.assertNotIn("fair_ours_alone_before", figures)

    def test_jain(self):
        self.assertEqual(fair.jain([2, 2, 2]), 1)
        self.assertAlmostEqual(fair.jain([4, 3, 3]), 0.980, 3)
        self.assertEqual(fair.jain([0, 0]), 0)

    def test_the_worst_window_counts(self):
        def amounts(start_s, _):
            return [1, 0.5 if start_s == 102 else 1]
        self.assertAlmostEqual(fair.worst_jain(amounts, 100, 115, 10), 0.9)
        self.assertEqual(fair.worst_jain(amounts, 100, 111, 10), 1)
        with self.assertRaises(fair.gpubench.BenchError):
            fair.worst_jain(amounts, 100, 109, 10)

    def test_no_gpu(self):
        for program in ("fair.py", "pair.py", "short.py", "many.py", "ddp.py"):
            self.assertEqual(self.run_bench(program, FAKE_GPU="77")[0], 77)


class PairTest(SchedulingFakes):
    SHORT = ("--pair-seconds", "3", "--alone-seconds", "2")

    def test_figures(self):
        code, figures, errors = self.run_bench("pair.py", *self.SHORT, FAKE_SHARE="0.51", FAKE_ALONE="0.9")
        self.assertEqual(code, 0, errors)
        self.assertAlmostEqual(figures["pair_stock_over_alone"], 2, 1)
        self.assertAlmostEqual(figures["pair_tq1_over_alone"], 1.02, 1)
        self.assertAlmostEqual(figures["pair_tq1_over_ours_alone"], 1.02 / 0.9, 1)
        self.assertAlmostEqual(figures["pair_ours_alone_over_stock"], 0.9, 2)
        self.assertIn("pair_auto_handovers", figures)
        self.assertNotIn("pair_stock_over_ours_alone", figures)
        self.assertEqual(figures["pair_mps_verdict"], "skipped")

    def test_alone_is_the_mean_of_before_and_after(self):
        bench = types.SimpleNamespace(name="pair", figures=trainings.gpubench.Figures(json_only=True))
        alone = trainings.Alone(bench)
        for when, ours, stock in (("before", 80, 100), ("after", 100, 140)):
            for kind, rate in (("ours_alone", ours), ("alone", stock)):
                alone.add(kind, when, {"start_s": 5, "end_s": 6, "memory_gib": 7,
                                       "ends_s": [5 + (at + 1) / rate for at in range(rate)]})
        alone.report()
        alone.report_shared("pair_auto", 60)
        self.assertEqual({name: item["value"] for name, item in bench.figures.values.items()}, {
            "pair_ours_alone_before": 80, "pair_alone_before": 100, "pair_ours_alone_after": 100,
            "pair_alone_after": 140, "pair_memory": 7, "pair_ours_alone_over_stock": 0.75,
            "pair_auto_over_alone": 0.5, "pair_auto_over_ours_alone": 0.6667})

    def test_missed(self):
        code, figures, _ = self.run_bench("pair.py", *self.SHORT, "--only", "stock,auto", FAKE_SHARE="0.48")
        self.assertEqual((code, figures["pair_best_over_alone_verdict"]), (1, "MISSED"))

    def test_turns_have_targets_of_their_own(self):
        code, figures, errors = self.run_bench("pair.py", *self.SHORT, "--only", "0.05,1", FAKE_SHARE="0.485")
        self.assertEqual((code, figures["pair_tq0.05_over_alone_verdict"]), (1, "pass"), errors)
        self.assertEqual(figures["pair_tq1_over_alone_verdict"], "MISSED")
        self.assertNotIn("pair_best_over_alone", figures)

    def test_wrong_memory(self):
        code, _, errors = self.run_bench("pair.py", *self.SHORT, "--only", "5", FAKE="memory")
        self.assertEqual(code, 1)
        self.assertIn("memory does not hold what was written", errors)

    def test_failure_leaves_the_rest(self):
        code, figures, errors = self.run_bench("pair.py", *self.SHORT, "--only", "stock,auto", FAKE="failed")
        self.assertEqual(code, 1)
        self.assertIn("WRONG auto", errors)
        self.assertIn("pair_stock_over_alone", figures)


class ShortTest(SchedulingFakes):
    QUICK = ("--lead", "0.3", "--short-seconds", "3")

    def test_figures(self):
        code, figures, errors = self.run_bench("short.py", *self.QUICK, FAKE_SRTF="0.95", FAKE_RR="0.5")
        self.assertEqual(code, 0, errors)
        self.assertAlmostEqual(figures["short_srtf_over_alone"], 1.05, 1)
        self.assertAlmostEqual(figures["short_rr_over_alone"], 2, 1)
        self.assertEqual(figures["short_srtf_results"], "same")

    def test_missed_and_wrong_weights(self):
        code, figures, errors = self.run_bench("short.py", *self.QUICK, "--policies", "srtf", FAKE_SRTF="0.8",
                                               FAKE="DIFFERENT")
        self.assertEqual((code, figures["short_srtf_over_alone_verdict"]), (1, "MISSED"))
        self.assertEqual(figures["short_srtf_results"], "DIFFERENT")
        self.assertIn("WRONG short_srtf_results", errors)


class ManyTest(SchedulingFakes):
    QUICK = ("--request-seconds", "20")

    def test_figures(self):
        """One does not start, and is left out."""
        code, figures, errors = self.run_bench("many.py", *self.QUICK, FAKE_DEAD="c")
        self.assertEqual(code, 0, errors)
        self.assertIn("left out: many-stock-c", errors)
        self.assertEqual(figures["many_models"], 5)
        self.assertAlmostEqual(figures["many_capacity"], 5 / 3)
        self.assertAlmostEqual(figures["many_added_ms_resident"], 1)
        self.assertAlmostEqual(figures["many_added_ms_evicted"], 200)
        self.assertAlmostEqual(figures["many_p99_ms"], 210)
        self.assertAlmostEqual(figures["many_stock_p99_ms"], 10)
        self.assertGreater(figures["many_requests_evicted"], 3)
        self.pixels("many.png")

    def test_hot_ones(self):
        """One of two. Which of them the fake status tells to be away is a matter of who starts first."""
        def counts(*options):
            code, figures, errors = self.run_bench("many.py", *self.QUICK, "--models", "2", *options)
            self.assertEqual(code, 0, errors)
            return [figures[f"many_requests_{where}"] for where in ("resident", "evicted")]
        rare, hot = counts("--hot", "0"), counts("--hot", "1")
        self.assertLess(max(rare), 11)
        self.assertGreater(max(hot), 40)
        self.assertIn(min(hot), rare)

    def test_not_warm(self):
        code, _, errors = self.run_bench("many.py", *self.QUICK, "--models", "2", "--no-warm", FAKE_WARM="0")
        self.assertEqual(code, 0, errors)

    def test_slow_and_wrong(self):
        code, figures, _ = self.run_bench("many.py", *self.QUICK, "--models", "2", FAKE_HERE="6", FAKE="DIFFERENT")
        self.assertEqual((code, figures["many_added_ms_resident_verdict"]), (1, "MISSED"))
        self.assertEqual((figures["many_results"], figures["many_models"]), ("DIFFERENT", 2))

    def test_by_turns(self):
        """Added: 200 ms to the one that is away, 6 to the other; the fakes move nothing."""
        code, figures, errors = self.run_bench("many.py", *self.QUICK, "--names", "llm,llm_b", "--capacity", "20GiB",
                                               "--alternate", "1", FAKE_HERE="6")
        self.assertEqual((code, figures["many_models"], figures["many_rest_ms_verdict"]), (1, 2, "MISSED"), errors)
        self.assertAlmostEqual(figures["many_rest_ms"], 103, 0)
        self.assertEqual(figures["many_requests_resident"] + figures["many_requests_evicted"], 20)

    def test_requests_by_turns(self):
        args = types.SimpleNamespace(alternate=2, request_seconds=9)
        self.assertEqual([many.requests_of(args, "x", False, place, 2) for place in (0, 1)], [[0, 4], [2, 6]])

    def test_resident_when_it_came(self):
        looks = [(1, {"resident_bytes": 5, "used_bytes": 5}), (2, {"resident_bytes": 0, "used_bytes": 5})]
        self.assertEqual([many.was_resident(looks, at_s) for at_s in (0.5, 1.5, 9)], [None, True, False])

    def test_percentile(self):
        self.assertEqual(many.percentile(list(range(200)), 0.99), 198)
        self.assertEqual(many.percentile([7], 0.99), 7)


class DdpTest(SchedulingFakes):
    @selftest.by_itself
    def test_figures(self):
        code, figures, errors = self.run_bench("ddp.py", FAKE_HANDOVERS="320")
        self.assertEqual(code, 0, errors)
        self.assertEqual((figures["ddp_results"], figures["ddp_handovers"], figures["ddp_alone"]), ("same", 320, 1))
        self.assertEqual(figures["ddp_over_serial_verdict"], "pass")
        self.assertEqual((figures["ddp_drain_mean_ms"], figures["ddp_drain_longest_ms"]), (9, 21))
        self.pixels("ddp.png")

    def test_wrong_weights_and_too_few_hand_overs(self):
        code, figures, errors = self.run_bench("ddp.py", FAKE="DIFFERENT", FAKE_HANDOVERS="299")
        self.assertEqual((code, figures["ddp_results"], figures["ddp_handovers_verdict"]), (1, "DIFFERENT", "MISSED"))
        self.assertIn("WRONG ddp_results", errors)

    def test_deadlock(self):
        code, figures, errors = self.run_bench("ddp.py", "--seconds", "4", FAKE="hang")
        self.assertEqual((code, figures["ddp_handovers"], figures["ddp_drain_mean_ms"]), (1, 120, 9), errors)
        self.assertIn("no @rank in time", errors)
        self.assertNotIn("ddp_results", figures)

    def test_one_gpu(self):
        self.assertEqual(self.run_bench("ddp.py", FAKE_GPUS="1")[0], 77)


class JobsTest(unittest.TestCase):
    """What the jobs themselves do without PyTorch."""

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

    def train(self, order):
        steps = []
        result = steady.run(self.TORCH, lambda: steps.append(time.sleep(0.002)), order)
        self.assertEqual(len(steps), len(result["ends_s"]))
        self.assertEqual(result["ends_s"], sorted(result["ends_s"]))
        return len(steps), result["end_s"] - result["start_s"]

    def test_so_many_iterations(self):
        self.assertEqual([self.train({"iterations": count})[0] for count in (1, 3, 7)], [1, 3, 7])

    def test_so_long(self):
        self.assertGreaterEqual(self.train({"seconds": 0.05})[1], 0.05)
        self.assertGreaterEqual(self.train({"until_s": time.monotonic() + 0.05})[1], 0.049)

    def test_until_told(self):
        end, other = os.pipe()
        told = threading.Timer(0.05, os.write, (other, b"go\n"))
        with open(end, encoding="ascii") as lines, mock.patch("sys.stdin", lines):
            told.start()
            self.assertGreaterEqual(self.train({})[1], 0.04)
        told.join()
        os.close(other)

    def test_a_request_that_waits_is_late(self):
        told = serve.run(lambda: time.sleep(0.05) or 1, {"start_s": time.monotonic(), "requests_s": [0.02, 0.02]})["requests"]
        self.assertGreaterEqual(told[0][1], 49)
        self.assertGreaterEqual(told[1][1], 99)

    def test_models(self):
        self.assertGreaterEqual(len(set(serve.VISION) | set(serve.TRANSFORMERS)), 42)
        self.assertEqual(len(set(serve.VISION)), len(serve.VISION))


class TurnsTest(unittest.TestCase):
    """Turns of 1 s at 12 and at 15 s; the one before was not seen to begin, the one after not to end."""

    @staticmethod
    def looks():
        def had(at_s):
            return sum(min(max(at_s - begin_s, 0), 1) for begin_s in (9, 12.03, 15.03, 18.03))
        times_s = [10 + step / 10 for step in range(90)]
        return [(at_s, {"gpu_ns": round(had(at_s) * 1e9), "turns": sum(at_s >= begin_s for begin_s in (9, 12, 15, 18)),
                        "resident_bytes": int(at_s >= 12.55), "moved_bytes": 0}) for at_s in times_s]

    def seen(self, ends_s):
        moving = turns.Moving([(at_s, {(0, 1): job}) for at_s, job in self.looks()])
        return turns.Training(self.looks(), ends_s, moving, 10, 17)

    def test_turns(self):
        self.assertEqual([[round(at_s, 3) for at_s in span] for span in turns.turns_of(self.looks())],
                         [[12.03, 13.03], [15.03, 16.03]])

    def test_a_turn_before_which_the_last_look_was_too_early(self):
        looks = [look for look in self.looks() if not 12.5 < look[0] < 15]
        self.assertEqual(turns.turns_of(looks), [])

    def test_times_within_turns(self):
        """The first turn begins slowly, and while memory moves one iteration takes 50 % longer."""
        times_s = [0.08, 0.08, 0.08, 0.04, 0.04, 0.04, 0.06, 0.04] + [0.04] * 10
        ends_s = [round(12.13 + sum(times_s[:count]), 5) for count in range(len(times_s) + 1)]
        training = self.seen(ends_s + [15.06])
        self.assertEqual([turn.count for turn in training.turns], [19, 1])
        figures = fair.gpubench.Figures(json_only=True)
        turns.add_ratios(figures, "x", [training])
        self.assertEqual(figures.value("x_first_iterations_over_median"), 2)
        self.assertAlmostEqual(training.turns[0].before_s, 0.1)
        self.assertAlmostEqual(training.turns[1].after_s, 0.97)
        self.assertEqual(figures.value("x_moving_iterations"), "2 of 15")
        self.assertAlmostEqual(figures.value("x_moving_over_still"), 1.25)
        told = training.turns[0].told()
        self.assertEqual((len(told["first_s"]), told["rest_median_s"]), (10, 0.04))

    def test_only_while_all_are_there(self):
        moving = turns.Moving([])
        self.assertEqual(len(turns.Training(self.looks(), [12.5, 15.5], moving, 13, 17).turns), 1)
        self.assertEqual(turns.Training(self.looks(), [], moving, 13, 17).turns, [])


class TimelineTest(unittest.TestCase):
    LOOKS = [(10.0, {"gpu_ns": 0, "held_ns": 0, "waited_ns": 0}),
             (11.0, {"gpu_ns": 10**9, "held_ns": 10**9, "waited_ns": 0}),
             (12.0, {"gpu_ns": 2 * 10**9, "held_ns": 2 * 10**9, "waited_ns": 0}),
             (13.0, {"gpu_ns": 2 * 10**9, "held_ns": 3 * 10**9, "waited_ns": 0}),
             (14.0, {"gpu_ns": 2 * 10**9, "held_ns": 3 * 10**9, "waited_ns": 10**9})]

    def test_spans(self):
        self.assertEqual(watch.spans_of(self.LOOKS, 10.0),
                         [[0, 2, 1, 0, 0], [2, 3, 0, 1, 0], [3, 4, 0, 0, 1]])

    def test_between_two_looks(self):
        series = watch.Series(self.LOOKS, "gpu_ns")
        self.assertEqual([series.at(at_s) for at_s in (9, 10.5, 11, 99)], [0, 5 * 10**8, 10**9, 2 * 10**9])

    def test_traces(self):
        """What gpusharectl timeline writes: rows for the jobs that have done something, not for hand-overs and memory."""
        def entry(thread, ph, name, **more):
            return {"pid": 1, "tid": thread, "ph": ph, "name": name, **more}
        names = {1: "hand-overs", 3: "job 1 train (pid 9)", 4: "job 1 memory", 5: "job 2 idle (pid 10)"}
        entries = [entry(0, "M", "process_name", args={"name": "GPU 0 Card"}),
                   *(entry(thread, "M", "thread_name", args={"name": name}) for thread, name in names.items()),
                   entry(3, "X", "waits", ts=0, dur=500000), entry(3, "X", "runs", ts=500000, dur=1000000),
                   entry(4, "X", "restores", ts=0, dur=1000), entry(1, "X", "moves", ts=0, dur=1)]
        self.assertEqual(timeline.of_trace({"traceEvents": entries}), {"panels": [
            {"title": "gpu 0 card", "rows": [{"name": "job 1 train", "spans": [[0, 0.5, 0, 0, 1], [0.5, 1.5, 1, 0, 0]]}]}]})

    def test_chart(self):
        """Coloured, hatched, dark grey, light grey, paper."""
        spans = [[0, 2, 1, 0, 0], [2, 4, 0, 1, 0], [4, 6, 0, 0, 1], [6, 8, 0, 0, 0]]
        canvas = chart.Canvas(timeline.LEFT + timeline.WIDTH + timeline.RIGHT, 120)
        timeline.draw_panel(canvas, 0, {"title": "", "rows": [{"name": "", "spans": spans}]}, 10 / timeline.WIDTH)
        row = canvas.rows[timeline.TITLE]

        def seen(at_s):
            x = timeline.LEFT + round(at_s * timeline.WIDTH / 10)
            return {tuple(row[3 * (x + step):3 * (x + step) + 3]) for step in range(4)}
        color = timeline.COLORS[0]
        self.assertEqual([seen(at_s) for at_s in (1, 3, 5, 7, 9)],
                         [{color}, {color, timeline.THERE}, {timeline.WAITS}, {timeline.THERE}, {chart.PAPER}])


if __name__ == "__main__":
    selftest.main()
