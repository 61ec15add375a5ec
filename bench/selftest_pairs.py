#!/usr/bin/env python3
"""Tests of pairs.py and sweep.py without a GPU, over fakes.

What matters: targets that are missed, who has less than the other, memory that is wrong, jobs that die or are not MPS'
clients are told and end with status 1; what was measured before is still there; no MPS
outlives the program; a host that is slower in one round than in another one changes no ratio, and one that changes within
a round is told; a mode takes no longer than was planned for it.
"""
import contextlib
import io
import subprocess
import sys
import time
import types
import unittest
from unittest import mock

import company
import gpubench
import pairs
import selftest_fakes
import speeds
import sweep
import workloads
from selftest_fakes import Case, more_than

QUICK = ("--measure-seconds 0.6 --alone-seconds 0.8 --lead 0.05 --settle 0.2 --idle 0 ")
ONE = QUICK + "--pairs shufflenet_mobilenet "
NAME = "pairs_shufflenet_mobilenet_"
OURS, SERVER, TURNS = NAME + "ours_", "pairs_server_transformer_", "pairs_server_turns_ours_"
SWEEP = "--measure-seconds 0.3 --lead 0.05 "


def less_than(most):
    return lambda value: value < most


def under(prefix, figures):
    return {prefix + name: expected for name, expected in figures.items()}


def all_modes():
    figures = {}
    for mode in ("stock", "mps"):
        figures |= under(f"{NAME}{mode}_production_", {"over_alone": (0.5, 1), "p99_over_alone": (2, 1)})
    return figures | under(OURS, {
        "production_over_alone": (1, 2), "opportunistic_over_alone": (0.3, 1), "production_alone_over_stock": (1, 2),
        "opportunistic_over_stock_alone": (0.3, 1)})


def mps_ends(test, ran):
    test.assertEqual((ran.root / "mps").read_text().split().count("quit"), 1)


def capacity(test, ran):
    test.assertEqual((ran.root / "capacity").read_text(), "12G")


def told_once(test, ran):
    test.assertEqual(ran.errors.count("without MPS: nvidia-cuda-mps-control -d: exit status 1: no such thing here"), 1)


def sweep_table(test, ran):
    rows = (ran.root / "out/sweep.txt").read_text().splitlines()
    test.assertEqual([row.split()[:2] for row in rows[2:]], [["dcgan", mode] for mode in ("stock", "mps", "ours", "turns")])
    test.assertEqual(rows[3].split()[2:4], ["1.000", "1.0"])


CASES = {
    "sweep": Case("sweep.py", SWEEP + "--models dcgan --counts 1,3", "FAKE_SPEED=0.9", 0, {
        "sweep_dcgan_stock_1": lambda value: 6000 < value < 6500, "sweep_dcgan_stock_3_over_serial": (3, 1),
        "sweep_dcgan_ours_3_over_serial": (2.7, 1), "sweep_dcgan_turns_memory_each": 1}, then=sweep_table),
    "sweep: Salus' jobs, wrong memory": Case(
        "sweep.py", SWEEP + "--models salus_kept,salus_freed --modes ours --counts 1,2 --capacity 12GiB", "FAKE=memory", 1, {
            "sweep_salus_freed_ours_2_over_serial": (2, 1), "sweep_salus_kept_stock_2": None, "sweep_wrong": 2},
        "WRONG salus_kept, ours: memory does not hold"),
    "sweep: one model fails": Case(
        "sweep.py", SWEEP + "--models pointnet,dcgan --modes stock,ours --counts 2", "FAKE_FAILS=swap:sweep_pointnet:error", 1,
        {"sweep_pointnet_stock_2": ..., "sweep_dcgan_ours_2": ...}, "no such kernel"),
    "sweep: no MPS": Case("sweep.py", SWEEP + "--models dcgan --modes mps --counts 1", "FAKE_MPS=broken", 0,
                          {"sweep_mps_verdict": "skipped", "sweep_dcgan_stock_1": ...}),
    "all modes": Case("pairs.py", ONE, "", 0, all_modes(), "shufflenet_mobilenet: stock 17 s, mps 17 s, ours 17 s",
                      mps_ends),
    "one round": Case("pairs.py", ONE + "--modes ours --rounds 1", "", 0, under(OURS, {
        "production_over_alone_verdict": "pass", "production_over_alone_spread": None})),
    "production slowed": Case("pairs.py", ONE + "--modes ours", "FAKE_AUTO=0.4", 1, under(OURS, {
        "production_over_alone": (0.9, 2), "production_over_alone_verdict": "MISSED",
        "production_p99_over_alone_verdict": "MISSED"})),
    "server": Case("pairs.py", QUICK + "--pairs server_transformer --modes stock,ours", "", 1, under(SERVER, {
        "ours_opportunistic_over_stock_alone_verdict": "MISSED",  # 0.75 can't be had beside the fakes
        "stock_production_p99_over_alone": 2,
        "ours_production_p99_over_alone": 1}) | {"pairs_wrong": 1}),
    "least share": Case("pairs.py", QUICK + "--pairs shufflenet4_mobilenet4 --modes stock,ours", "FAKE_AUTO=0.05",
                        1, {"pairs_shufflenet4_mobilenet4_ours_opportunistic_over_stock_alone_verdict": "MISSED"}),
    # As many requests as take 40 % of its time.
    "language model": Case("pairs.py", QUICK + "--pairs llm_resnet50 --modes ours", "", 0, under(
        "pairs_llm_resnet50_ours_production_", {"p99_over_alone_verdict": "pass", "p99_added_ms": 0})),
    "turns": Case("pairs.py", QUICK + "--pairs server_turns --modes ours", "FAKE_AUTO=0.9", 1, under(TURNS, {
        "production_p99_added_ms_target": 5, "production_p99_added_ms": (5 / 0.4 - 5, 1)})),
    "more memory than there is": Case("pairs.py", QUICK + "--pairs tight --modes ours", "", 0, under("pairs_tight_ours_", {
        "production_over_alone_verdict": "pass"}), then=capacity),
    "no MPS": Case("pairs.py", ONE + "--modes stock,mps,ours", "FAKE_MPS=broken", 0, {
        "pairs_mps_verdict": "skipped", OURS + "production_over_alone": ..., NAME + "stock_production_over_alone": ...},
        then=told_once),
    "no clients of MPS": Case("pairs.py", ONE + "--modes stock,mps", "FAKE_MPS=lonely", 1, {
        NAME + "mps_production_over_alone": None}, "MPS serves 0 of 2 jobs"),
    "MPS does not quit": Case("pairs.py", ONE + "--modes mps", "FAKE_MPS=deaf"),
    "no time": Case("pairs.py", ONE + "--modes stock,ours --seconds 18.5", "", 1, {
        NAME + "stock_production_over_alone": ...}, "no time left for it"),
    "sweep: no GPU": Case("sweep.py", "", "FAKE_GPU=77", 77),
    "no GPU": Case("pairs.py", "", "FAKE_GPU=77", 77),
}
for fake, text, known in (("dies", "it went wrong later", None), ("failed", "it went wrong", None),
                          ("memory", "memory does not hold", ...)):
    CASES[f"{fake}: the rest is there"] = Case("pairs.py", ONE + "--modes stock,ours", f"FAKE={fake}", 1, {
        NAME + "stock_production_over_alone": ..., OURS + "production_over_alone": known}, text)
for pair, over in (("shufflenet_mobilenet", "over_alone"), ("server_transformer", "answers_over_alone")):
    figure, options = f"pairs_{pair}_stock_production_{over}", QUICK + f"--pairs {pair} --modes stock"
    CASES[f"{pair}: the host differs between rounds"] = Case("pairs.py", options, "FAKE_HOST=1,1,0.6,0.6,1.3,1.3", None, {
        figure: (0.5, 2), figure + "_spread": less_than(0.03)})
    CASES[f"{pair}: the host differs within a round"] = Case("pairs.py", options, "FAKE_HOST=1,1,1,0.6,1,1", None, {
        figure: less_than(0.49), figure + "_spread": (0.2, 2)})


class Programs(selftest_fakes.Fakes):
    def test_all(self):
        self.check_all(CASES)

    def test_sigterm_takes_everybody_along(self):
        root = self.make_root()
        bench = subprocess.Popen(selftest_fakes.command_of(root, "pairs.py", ONE + "--modes mps"), stdout=subprocess.DEVNULL,
                                 env=selftest_fakes.environment_of(root, ""), stderr=subprocess.DEVNULL)
        end_s = time.monotonic() + 30
        while not list(root.glob("span.opportunistic.*")) and time.monotonic() < end_s:
            time.sleep(0.01)
        self.assertGreater(len(selftest_fakes.living(root)), 3)  # MPS and two jobs among them
        bench.terminate()
        self.assertNotEqual(bench.wait(timeout=30), 0)
        self.assertFalse(selftest_fakes.outlive(root))


def trained(ends_s, from_s, to_s, start_s=0):
    told = {"start_s": start_s, "ends_s": ends_s, "end_s": ends_s[-1]}
    return speeds.of([speeds.Piece(told, start_s, from_s, to_s, None)])


class SpeedsTest(unittest.TestCase):
    def test_parts_of_iterations_count(self):
        speed = trained([1, 2, 4], 0.5, 3)
        self.assertEqual(speed.throughput(), 0.8)

    def test_a_long_iteration_counts_though_it_ends_too_late(self):
        self.assertEqual(trained([1, 2, 9], 1, 3).times_ms(), [1000, 7000])
        self.assertEqual(trained([1], 1, 3).times_ms(), [])

    def test_only_requests_that_both_had(self):
        def served(told, places):
            return speeds.of([speeds.Piece({"requests": told}, 0, 0, 10, places)])
        alone, beside = served([[1, 5], [2, 50]], [0, 1]), served([[0.5, 900], [1, 10]], [None, 0])
        self.assertEqual((beside.answers_over(alone), beside.p99_over(alone)), (0.5, 2))
        self.assertEqual([served([[1, 5], [9, ms]], [0, 1]).throughput() for ms in (900, 3500)], [1, 0.8])

    def test_what_is_added(self):
        self.assertEqual(trained([1, 2, 9], 1, 3).p99_added_ms(trained([1, 2, 3], 1, 3)), 6000)


class PlayedDuo:
    """Tells what pairs.py has done with it, in its order."""

    def __init__(self, name, mode):
        self.name, self.mode, self.told = name, mode, []
        self.jobs = {side: types.SimpleNamespace(finish=lambda _: None) for side in pairs.SIDES}

    def start(self):
        pass

    def check(self, _):
        pass

    def run(self, sides, lead_s, seconds, offset_s=0):
        self.told.append((sides, lead_s, seconds, offset_s))
        return {side: speeds.Piece(None, 0, lead_s, lead_s + seconds, None) for side in sides}


class RoundsTest(unittest.TestCase):
    def measured(self, name, mode, *options):
        words = ["pairs.py", "--measure-seconds", "6", "--alone-seconds", "3", *options]
        with mock.patch.object(sys, "argv", words):
            args = pairs.parse_arguments()
        duo, seen = PlayedDuo(name, mode), pairs.Seen()
        pairs.measure(types.SimpleNamespace(args=args), duo, seen)
        return duo.told, seen

    def test_order(self):
        """The controller settles once."""
        alone, both = ("production",), pairs.SIDES
        told, seen = self.measured("server_transformer", "ours")
        self.assertEqual(told, [
            (("opportunistic",), 3, 1.5, 0),
            (alone, 0.5, 1, 0), (both, 8, 2, 0),
            (alone, 0.5, 1, 2), (both, 0.5, 2, 2),
            (alone, 0.5, 1, 4), (both, 0.5, 2, 4)])
        self.assertEqual([len(pieces) for pieces in seen.alone_pieces.values()], [3, 1])
        self.assertEqual(len(seen.rounds), 3)

    def test_order_without_a_controller(self):
        alone, both = ("production",), pairs.SIDES
        told, _ = self.measured("server_transformer", "stock", "--rounds", "2", "--alone-seconds", "8")
        self.assertEqual(told, [(("opportunistic",), 0.5, 4, 0), (alone, 0.5, 4, 0), (both, 0.5, 3, 0),
                                (alone, 0.5, 4, 4), (both, 0.5, 3, 4)])

    def test_rounds_have_requests_of_their_own(self):
        """Those of production alone, of which both has the same ones, as far as it goes."""
        told, _ = self.measured("server_transformer", "stock")
        alone, both = ([{place for place in company.requests_of(*run[1:])[1] if place is not None}
                        for run in told if run[0] == sides] for sides in (("production",), pairs.SIDES))
        self.assertTrue(all(few and few < many for few, many in zip(alone, both)))
        self.assertEqual(sum(map(len, both)), len(set.union(*both)))

    def test_rounds_take_only_their_leads_longer(self):
        def added_s(name, mode):
            plans_s = []
            for rounds in ("3", "1"):
                with mock.patch.object(sys, "argv", ["pairs.py", "--rounds", rounds]):
                    plans_s.append(pairs.plan_s(pairs.parse_arguments(), name, mode))
            return plans_s[0] - plans_s[1]
        leads_s = 4 * (0.5 + company.ORDER_S)
        self.assertAlmostEqual(added_s("shufflenet_mobilenet", "stock"), leads_s)
        self.assertAlmostEqual(added_s("shufflenet_mobilenet", "ours"), leads_s)
        self.assertAlmostEqual(added_s("tight", "ours"), leads_s + 2 * 2.5)  # each time production is to be idle first

    def test_at_least_one(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            self.measured("server_transformer", "stock", "--rounds", "0")


class PartsTest(unittest.TestCase):
    def test_parts_of_the_pattern_are_the_whole(self):
        whole, places = company.requests_of(0.5, 8, 0)
        first, second = company.requests_of(0.5, 4, 0), company.requests_of(0.5, 4, 4)
        lead = places.count(None)
        self.assertEqual([place for place in places if place is not None],
                         [place for part in (first, second) for place in part[1] if place is not None])
        self.assertEqual(first[0], whole[:len(first[0])])
        self.assertAlmostEqual(second[0][lead] + 4, whole[len(first[0])])
        self.assertEqual(whole, sorted(whole))

    def test_two_jobs_fit_the_bound(self):
        self.assertLessEqual(2 * company.LIMIT_GIB, gpubench.MANAGED_LIMIT_GIB)
        self.assertLessEqual(16 * max(sweep.MODELS[name].gib for name in ("pointnet", "dcgan", "resnet18")),
                             gpubench.MANAGED_LIMIT_GIB)

    def test_a_run_begins_when_it_should(self):
        torch = selftest_fakes.TORCH
        player = workloads.Player(torch, None)
        player.step, player.ballast = lambda: time.sleep(0.002), types.SimpleNamespace(is_right=lambda: False)
        player.workloads = workloads.Workloads(torch, None)
        start_s = time.monotonic() + 0.05
        told = player.obey({"do": "run", "start_s": start_s, "until_s": start_s + 0.05})
        self.assertGreaterEqual(told["start_s"], start_s)
        self.assertGreaterEqual(told["end_s"], start_s + 0.05)
        self.assertEqual(player.obey({"do": "check"}), {"memory_right": False})
        player.step = lambda: time.sleep(0.01) or 1
        request_s = player.obey({"do": "time"})["request_s"]  # of ten; a busy machine may be late
        self.assertTrue(0.01 <= request_s < 0.08, request_s)


if __name__ == "__main__":
    unittest.main()
