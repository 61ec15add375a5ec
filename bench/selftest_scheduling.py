#!/usr/bin/env python3
"""Tests of fair.py, pair.py, short.py, many.py and ddp.py without a GPU, over fakes.

What matters: shares that are not equal, a target that is missed, wrong weights or answers, and a job that hangs or dies
are told and end with status 1; what was measured before is still there.
"""
import os
import threading
import time
import types
import unittest
from unittest import mock

import fair
import many
import selftest_fakes
import serve
import steady
import trainings
import watch
from selftest_fakes import Case, more_than

FAIR = "--stagger 0.2 --together 2.2 --window 0.5 --alone-seconds 1 "
WEIGHTS = "--only weights --weights-seconds 6 --alone-seconds 1"
PAIR = "--pair-seconds 3 --alone-seconds 2 "
SHORT = "--lead 0.3 --short-seconds 3 "
MANY = "--request-seconds 20 "


def by_turns(test, ran):
    test.assertEqual(ran.figures["many_requests_resident"] + ran.figures["many_requests_evicted"], 20)


CASES = {
    "fair": Case("fair.py", FAIR + "--only tight", "FAKE_SHARE=0.33 FAKE_ALONE=0.95", 0, {
        "fair_aggregate_over_alone": (0.99, 1), "fair_aggregate_over_ours_alone": (0.99 / 0.95, 1),
        "fair_ours_alone_over_stock": (0.95, 2), "fair_jain_worst": more_than(0.99),
        "fair_jain_iterations_worst": more_than(0.99)}, alone=True),
    "fair: unequal and slow": Case("fair.py", FAIR + "--only tight", "FAKE_SHARE=0.3 FAKE_FIRST=2", 1, {
        "fair_jain_worst_verdict": "MISSED", "fair_jain_worst": (16 / 18, 2),
        "fair_aggregate_over_alone_verdict": "MISSED"}),
    # The fakes have 0.96 of one alone together, in shares of their weights.
    "fair: weights": Case("fair.py", WEIGHTS, "", 0, {
        "fair_weights_error_worst_verdict": "pass", "fair_weights_aggregate_over_alone": (0.96, 1),
        "fair_weights_aggregate_over_alone_verdict": "pass"}, alone=True),
    "fair: weights that are equal": Case("fair.py", WEIGHTS, "FAKE_WEIGHT=100", 1, {
        "fair_weights_error_worst_verdict": "MISSED", "fair_weights_error_worst": (4 / 3, 1)}, alone=True),
    "fair: one fails": Case("fair.py", FAIR + "--only tight", "FAKE=failed", 1, {
        "fair_alone_before": lambda value: 98 <= value <= 102, "fair_ours_alone_before": None}, "it went wrong"),
    "pair": Case("pair.py", PAIR, "FAKE_SHARE=0.51 FAKE_ALONE=0.9 PATH=/usr/bin:/bin", 0, {
        "pair_stock_over_alone": (2, 1), "pair_tq1_over_alone": (1.02, 1), "pair_tq1_over_ours_alone": (1.02 / 0.9, 1),
        "pair_ours_alone_over_stock": (0.9, 2), "pair_auto_handovers": ..., "pair_stock_over_ours_alone": None,
        "pair_mps_verdict": "skipped"}),
    "pair: missed": Case("pair.py", PAIR + "--only stock,auto", "FAKE_SHARE=0.48", 1,
                         {"pair_best_over_alone_verdict": "MISSED"}),
    "pair: turns have targets of their own": Case("pair.py", PAIR + "--only 0.05,1", "FAKE_SHARE=0.485", 1, {
        "pair_tq0.05_over_alone_verdict": "pass", "pair_tq1_over_alone_verdict": "MISSED", "pair_best_over_alone": None}),
    "pair: what does not fit is not judged": Case("pair.py", PAIR + "--only 1 --capacity 10GiB --empty-cache", "FAKE_SHARE=0.3", 0, {
        "pair_tq1_over_alone": ..., "pair_tq1_moved": ..., "pair_tq1_over_alone_verdict": "not_judged"}),
    "pair: wrong memory": Case("pair.py", PAIR + "--only 5", "FAKE=memory", 1,
                               says="memory does not hold what was written"),
    "pair: failure leaves the rest": Case("pair.py", PAIR + "--only stock,auto", "FAKE=failed", 1,
                                          {"pair_stock_over_alone": ...}, "WRONG auto"),
    "short": Case("short.py", SHORT, "FAKE_SRTF=0.95 FAKE_RR=0.5", 0, {
        "short_srtf_over_alone": (1.05, 1), "short_rr_over_alone": (2, 1), "short_srtf_results": "same"}),
    "short: missed, and wrong weights": Case("short.py", SHORT + "--policies srtf", "FAKE_SRTF=0.8 FAKE=DIFFERENT", 1, {
        "short_srtf_over_alone_verdict": "MISSED", "short_srtf_results": "DIFFERENT"}, "WRONG short_srtf_results"),
    "many: one does not start": Case("many.py", MANY, "FAKE_DEAD=c", 0, {
        "many_models": 5, "many_capacity": (5 / 3, 7), "many_added_ms_resident": (1, 7), "many_added_ms_evicted": (200, 7),
        "many_p99_ms": (210, 7), "many_stock_p99_ms": (10, 7), "many_requests_evicted": more_than(3)},
        ("left out: many-", "stock-c")),
    "many: slow and wrong": Case("many.py", MANY + "--models 2", "FAKE_HERE=6 FAKE=DIFFERENT", 1, {
        "many_added_ms_resident_verdict": "MISSED", "many_results": "DIFFERENT", "many_models": 2}),
    "many: all stay": Case("many.py", MANY + "--models 2 --resident", "FAKE_HERE=1 FAKE_AWAY=2", 0, {
        "many_capacity": None, "many_requests_evicted": 0, "many_added_ms": lambda value: 1 < value < 2,
        "many_added_ms_verdict": "pass"}),
    "many: all stay, and are slow": Case("many.py", MANY + "--models 2 --resident", "FAKE_HERE=9", 1, {
        "many_added_ms_verdict": "MISSED"}),
    # Added: 200 ms to the one that is away, 6 to the other; the fakes move nothing.
    "many: by turns": Case("many.py", MANY + "--names llm,llm_b --capacity 20GiB --alternate 1", "FAKE_HERE=6", 1, {
        "many_models": 2, "many_rest_ms_verdict": "MISSED", "many_rest_ms": (103, 0)}, then=by_turns),
    "ddp": Case("ddp.py", "", "FAKE_HANDOVERS=320", 0, {
        "ddp_results": "same", "ddp_handovers": 320, "ddp_alone": 1, "ddp_over_serial_verdict": "pass",
        "ddp_drain_mean_ms": 9, "ddp_drain_longest_ms": 21}, alone=True),
    "ddp: wrong weights and too few hand-overs": Case("ddp.py", "", "FAKE=DIFFERENT FAKE_HANDOVERS=299", 1, {
        "ddp_results": "DIFFERENT", "ddp_handovers_verdict": "MISSED"}, "WRONG ddp_results"),
    "ddp: deadlock": Case("ddp.py", "--seconds 5", "FAKE=hang", 1, {
        "ddp_handovers": 120, "ddp_drain_mean_ms": 9, "ddp_results": None}, "no @rank in time"),
    "ddp: one GPU": Case("ddp.py", "", "FAKE_GPUS=1", 77),
} | {f"{program}: no GPU": Case(f"{program}.py", "", "FAKE_GPU=77", 77)
     for program in ("fair", "pair", "short", "many", "ddp")}


class Programs(selftest_fakes.Fakes):
    def test_all(self):
        self.check_all(CASES)

    def test_hot_ones(self):
        """One of two. Which of them the fake status tells to be away is a matter of who starts first."""
        def counts(hot):
            ran = self.run_bench("many.py", MANY + f"--models 2 --hot {hot}")
            self.assertEqual(ran.code, 0, ran.errors)
            return [ran.figures[f"many_requests_{where}"] for where in ("resident", "evicted")]
        rare, hot = counts(0), counts(1)
        self.assertLess(max(rare), 11)
        self.assertGreater(max(hot), 40)
        self.assertIn(min(hot), rare)


class Parts(unittest.TestCase):
    def test_share_errors(self):
        self.assertEqual(max(fair.share_errors([4, 2, 1])), 0)
        self.assertAlmostEqual(max(fair.share_errors([1, 1, 1])), 4 / 3)
        self.assertAlmostEqual(max(fair.share_errors([4, 2, 1.1])), 1.1 * 7 / 7.1 - 1)

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

    def test_requests_by_turns(self):
        args = types.SimpleNamespace(alternate=2, request_seconds=9)
        self.assertEqual([many.requests_of(args, "x", False, place, 2) for place in (0, 1)], [[0, 4], [2, 6]])

    def test_resident_when_it_came(self):
        looks = [(1, {"resident_bytes": 5, "used_bytes": 5}), (2, {"resident_bytes": 0, "used_bytes": 5})]
        self.assertEqual([many.was_resident(looks, at_s) for at_s in (0.5, 1.5, 9)], [None, True, False])

    def test_percentile(self):
        self.assertEqual(many.percentile(list(range(200)), 0.99), 198)
        self.assertEqual(many.percentile([7], 0.99), 7)


class JobsTest(unittest.TestCase):
    """What the jobs themselves do without PyTorch."""

    def train(self, order):
        steps = []
        result = steady.run(selftest_fakes.TORCH, lambda: steps.append(time.sleep(0.002)), order)
        self.assertEqual(len(steps), len(result["ends_s"]))
        self.assertEqual(result["ends_s"], sorted(result["ends_s"]))
        return len(steps), result["end_s"] - result["start_s"]

    def test_so_many_iterations(self):
        self.assertEqual([self.train({"iterations": count})[0] for count in (1, 3, 7)], [1, 3, 7])

    def test_so_long(self):
        self.assertGreaterEqual(self.train({"seconds": 0.05})[1], 0.05)
        until_s = time.monotonic() + 0.05
        self.train({"until_s": until_s})
        self.assertGreaterEqual(time.monotonic(), until_s)

    def test_until_told(self):
        end, other = os.pipe()
        told, begun_s = threading.Timer(0.05, os.write, (other, b"go\n")), time.monotonic()
        with open(end, encoding="ascii") as lines, mock.patch("sys.stdin", lines):
            told.start()
            self.train({})
            self.assertGreaterEqual(time.monotonic() - begun_s, 0.05)
        told.join()
        os.close(other)

    def test_a_request_that_waits_is_late(self):
        told = serve.run(lambda: time.sleep(0.05) or 1, {"start_s": time.monotonic(), "requests_s": [0.02, 0.02]})["requests"]
        self.assertGreaterEqual(told[0][1], 49)
        self.assertGreaterEqual(told[1][1], 99)

    def test_models(self):
        self.assertGreaterEqual(len(set(serve.VISION) | set(serve.TRANSFORMERS)), 42)
        self.assertEqual(len(set(serve.VISION)), len(serve.VISION))


class WatchTest(unittest.TestCase):
    def test_between_two_looks(self):
        series = watch.Series([(10.0, {"gpu_ns": 0}), (11.0, {"gpu_ns": 10**9}), (12.0, {"gpu_ns": 2 * 10**9})], "gpu_ns")
        self.assertEqual([series.at(at_s) for at_s in (9, 10.5, 11, 99)], [0, 5 * 10**8, 10**9, 2 * 10**9])


if __name__ == "__main__":
    unittest.main()
