#!/usr/bin/env python3
"""Runs bench_trace, bench_aimd and bench_cluster on a few seeds: they say the same twice, FIFO does as the paper's, the
controller's verdicts follow its figures and can be bad, a whole GPU has one job.

usage: selftest_virtual.py BENCH_TRACE BENCH_AIMD BENCH_CLUSTER
"""
import json
import subprocess
import sys
import unittest

TRACE, AIMD, CLUSTER = sys.argv[1:4]
del sys.argv[1:4]
AT_MOST = {"converge_s": 5, "production_loss_ratio": 0.02}


def run(program, *words, seeds):
    command = [program, "--seeds", str(seeds), "--json", *words]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout)


def trace(*words, seeds=3):
    return run(TRACE, *words, seeds=seeds)


def aimd(plant, *words, seeds=1):
    return run(AIMD, "--plant", plant, *words, seeds=seeds)


def cluster(*words):
    command = [CLUSTER, "--json", "--gpus", "20", "--jobs", "300", "--load", "300", *words]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout)


class Virtual(unittest.TestCase):
    def test_the_same_seeds_give_the_same_figures(self):
        self.assertEqual(trace(), trace())
        self.assertNotEqual(trace(), trace("--seed", "1000"))
        self.assertEqual(aimd("training"), aimd("training"))
        self.assertNotEqual(aimd("training"), aimd("training", "--seed", "1000"))
        self.assertEqual(cluster(), cluster())
        self.assertNotEqual(cluster(), cluster("--seed", "1000"))

    def test_a_cluster_of_whole_and_of_shared_gpus(self):
        """A whole GPU has one job, and so works as much as the jobs of the mix use: 51 to 75 %."""
        figures = cluster()
        self.assertGreater(figures["whole_worked"] / figures["whole_held"], 0.505)
        self.assertLess(figures["whole_worked"] / figures["whole_held"], 0.751)
        self.assertGreater(figures["whole_wait_mean"], figures["fitting_wait_mean"])
        for name in ("whole", "fitting", "turns"):
            self.assertLessEqual(figures[f"{name}_held"], 1)
            self.assertGreaterEqual(figures[f"{name}_stretch_median"], 1)
        pai = cluster("--mix", "pai")
        self.assertEqual(pai["whole_wait_mean"], figures["whole_wait_mean"])
        self.assertLess(pai["whole_worked"], figures["whole_worked"])

    def test_wrong_words_are_refused(self):
        for words in ([TRACE, "--mix", "unknown"], [TRACE, "--seeds", "0"], [TRACE, "--seeds", "many"], [TRACE, "more"],
                      [AIMD, "--plant", "unknown"], [AIMD, "--seeds", "0"], [AIMD, "--constant", "2"],
                      [AIMD, "--constant", "x"], [AIMD, "more"], [CLUSTER, "--mix", "unknown"], [CLUSTER, "--gpus", "0"],
                      [CLUSTER, "--load", "none"]):
            self.assertEqual(subprocess.run(words, stderr=subprocess.DEVNULL).returncode, 2)

    def test_fifo_does_as_the_papers(self):
        for mix in ("production", "minutes"):
            figures = trace("--mix", mix, seeds=9)
            for name in ("makespan", "jct", "jct_95"):
                self.assertEqual(figures[f"calibration_{name}_verdict"], "pass", (mix, name))
                self.assertAlmostEqual(figures[f"calibration_{name}"], 1, delta=0.1)

    def test_few_seeds_are_not_judged(self):
        self.assertEqual(trace()["srtf_jct_gain_verdict"], "not_judged")

    def test_the_verdicts_follow_the_figures(self):
        for words in ([], ["--constant", "0.9"], ["--constant", "0.001"]):
            figures = aimd("gaps", *words)
            self.assertEqual((figures["converge_s_plant"], figures["converge_s"]), ("gaps", figures["gaps_converge_s"]))
            for name, target in AT_MOST.items():
                self.assertEqual(figures[f"{name}_target"], target)
                self.assertEqual(figures[f"{name}_verdict"], "pass" if figures[name] <= target else "MISSED", name)

    def test_what_a_user_feels_is_within_the_targets(self):
        for plant in ("training", "launches", "server", "bursts", "phases"):
            figures = aimd(plant, seeds=3)
            for name, target in AT_MOST.items():
                self.assertLessEqual(figures[name], target, f"{plant}: {name}")

    def test_constant_levels(self):
        """One that costs too much, one that harvests too little, and the best: where production keeps 98 %."""
        much, little = (aimd("training", "--constant", level) for level in ("0.9", "0.1"))
        self.assertEqual(much["production_loss_ratio_verdict"], "MISSED")
        self.assertGreater(much["training_harvest_ratio"], 1.5)
        self.assertEqual(little["production_loss_ratio_verdict"], "pass")
        self.assertLess(little["training_harvest_ratio"], 0.5)
        best = aimd("training", "--constant", str(aimd("training")["training_best_level"]))
        self.assertAlmostEqual(best["production_loss_ratio"], 0.02, delta=0.001)


if __name__ == "__main__":
    unittest.main()
