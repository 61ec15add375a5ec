#!/usr/bin/env python3
"""Tests of guests.py without a GPU: the fake jobs, daemon and MPS of selftest_pairs.py.

What matters: who has less than the other is told, as is production that is slowed, memory that is wrong, and a job that
dies; what was measured before is still there; a mode takes no longer than was planned for it.
"""
import argparse
import sys
import unittest
from unittest import mock

import company
import guests
import selftest
import selftest_pairs

ONE = ("--modes", "ours")


class GuestsTest(selftest_pairs.PairsFakes):
    PROGRAM = "guests.py"
    QUICK = ("--measure-seconds", "0.4", "--alone-seconds", "0.4", "--lead", "0.05", "--settle", "0.1", "--idle", "0",
             "--rest-seconds", "0.3")

    def run_fakes(self, *options, **env):
        return super().run_fakes(*options, **{"FAKE_BACK": "0"} | env)

    @selftest.by_itself
    def test_all_modes(self):
        code, figures, errors = self.run_fakes("--idle", "0.35", FAKE_BACK="0.3")
        self.assertEqual(code, 0, errors)
        for mode in ("ours", "ours_mps"):
            name = f"guests_{mode}_"
            self.assertAlmostEqual(figures[name + "production_over_alone"], 1, 2)
            for guest in guests.GUESTS:
                self.assertAlmostEqual(figures[f"{name}{guest}_over_alone"], 0.3, 1)
                self.assertAlmostEqual(figures[f"{name}{guest}_limit"], 30)
                self.assertAlmostEqual(figures[f"{name}rest_{guest}_over_alone"], 0.5, 1)
            self.assertGreater(figures[name + "fairness"], 0.99)
            self.assertGreater(figures[name + "rest_fairness"], 0.99)
            for judged in ("fairness", "production_over_alone"):
                self.assertEqual(figures[f"{name}{judged}_verdict"], "pass")
            self.assertNotIn(name + "rest_fairness_verdict", figures)
        self.assertIn("resnet50_resnet50_shufflenet: ours 17 s, ours-mps 17 s", errors)

    def test_one_has_less(self):
        code, figures, errors = self.run_fakes(*ONE, FAKE_AUTO_shufflenet="0.1")
        self.assertAlmostEqual(figures["guests_ours_opportunistic_1_over_alone"], 0.3, 1, errors)
        self.assertAlmostEqual(figures["guests_ours_opportunistic_2_over_alone"], 0.1, 1)
        self.assertAlmostEqual(figures["guests_ours_fairness"], 0.8, 1)
        self.assertEqual((code, figures["guests_ours_fairness_verdict"]), (1, "MISSED"))
        self.assertGreater(figures["guests_ours_rest_fairness"], 0.99)

    def test_production_slowed(self):
        code, figures, errors = self.run_fakes(*ONE, "--production", "mobilenet:128", "--guests", "transformer",
                                               "graph:16", FAKE_AUTO="0.4")
        self.assertIn("mobilenet_transformer_graph, ours", errors)
        self.assertAlmostEqual(figures["guests_ours_production_over_alone"], 0.9, 2, errors)
        self.assertEqual((code, figures["guests_ours_production_over_alone_verdict"]), (1, "MISSED"))
        self.assertEqual(figures["guests_ours_fairness_verdict"], "pass")

    def test_failure_leaves_the_rest(self):
        for fake, text, known in (("dies", "it went wrong later", False), ("memory", "memory does not hold", True)):
            code, figures, errors = self.run_fakes(*ONE, FAKE=fake)
            self.assertEqual((code, "guests_ours_fairness" in figures), (1, known))
            self.assertIn(text, errors)

    def test_jobs_that_do_not_use_the_daemons_mps(self):
        code, figures, errors = self.run_fakes("--modes", "ours-mps", FAKE_MPS="lonely")
        self.assertEqual(code, 1)
        self.assertIn("MPS serves 0 of 3 jobs", errors)
        self.assertNotIn("guests_ours_mps_fairness", figures)

    def test_no_time(self):
        code, figures, errors = self.run_fakes("--seconds", "18")
        self.assertEqual((code, "guests_ours_fairness" in figures), (1, True))
        self.assertIn("resnet50_resnet50_shufflenet, ours-mps: no time left for it", errors)


class PartsTest(unittest.TestCase):
    def test_a_mode_takes_less_than_45_seconds(self):
        with mock.patch.object(sys, "argv", ["guests.py"]):
            self.assertLess(guests.plan_s(guests.parse_arguments()), 45)

    def test_classes_of_sides(self):
        self.assertEqual([company.class_of(side) for side in guests.SIDES], ["production"] + 2 * ["opportunistic"])

    def test_workloads(self):
        self.assertEqual(guests.side_of("resnet50:64"), company.Side("resnet50", 64))
        self.assertEqual(guests.side_of("transformer"), company.Side("transformer"))
        for text in ("server", "resnet", "resnet50:", "resnet50:0", "resnet50:x", ""):
            with self.subTest(text), self.assertRaises(argparse.ArgumentTypeError):
                guests.side_of(text)


if __name__ == "__main__":
    selftest.main()
