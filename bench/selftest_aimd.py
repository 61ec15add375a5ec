#!/usr/bin/env python3
"""Runs bench_aimd on a few seeds: it says the same twice, the verdicts follow the figures, and it can fail."""
import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
AT_MOST = {"converge_s": 5, "production_loss_ratio": 0.02}


def run(*words, seeds=1):
    command = [PROGRAM, "--seeds", str(seeds), "--json", *words]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout)


class Aimd(unittest.TestCase):
    def test_the_same_seeds_give_the_same_figures(self):
        self.assertEqual(run("--plant", "training"), run("--plant", "training"))
        self.assertNotEqual(run("--plant", "training"), run("--plant", "training", "--seed", "1000"))

    def test_the_verdicts_follow_the_figures(self):
        for words in ([], ["--constant", "0.9"], ["--constant", "0.001"]):
            figures = run("--plant", "gaps", *words)
            for name, target in AT_MOST.items():
                self.assertEqual(figures[f"{name}_target"], target)
                self.assertEqual(figures[f"{name}_verdict"], "pass" if figures[name] <= target else "MISSED", name)

    def test_what_a_user_feels_is_within_the_targets(self):
        for plant in ("training", "launches", "server", "bursts", "phases"):
            figures = run("--plant", plant, seeds=5)
            for name, target in AT_MOST.items():
                self.assertLessEqual(figures[name], target, f"{plant}: {name}")

    def test_a_level_that_costs_too_much_is_seen(self):
        figures = run("--plant", "training", "--constant", "0.9")
        self.assertEqual(figures["production_loss_ratio_verdict"], "MISSED")
        self.assertGreater(figures["training_harvest_ratio"], 1.5)

    def test_a_level_that_harvests_too_little_is_seen(self):
        figures = run("--plant", "training", "--constant", "0.1")
        self.assertEqual(figures["production_loss_ratio_verdict"], "pass")
        self.assertLess(figures["training_harvest_ratio"], 0.5)

    def test_the_best_level_is_where_production_keeps_98_percent(self):
        best = run("--plant", "training")["training_best_level"]
        loss = run("--plant", "training", "--constant", str(best))["production_loss_ratio"]
        self.assertAlmostEqual(loss, 0.02, delta=0.001)

    def test_the_worst_plant_is_named(self):
        figures = run("--plant", "gaps")
        self.assertEqual(figures["converge_s_plant"], "gaps")
        self.assertEqual(figures["converge_s"], figures["gaps_converge_s"])

    def test_wrong_words_are_refused(self):
        for words in (["--plant", "unknown"], ["--seeds", "0"], ["--constant", "2"], ["--constant", "x"], ["more"]):
            self.assertEqual(subprocess.run([PROGRAM, *words], stderr=subprocess.DEVNULL).returncode, 2)


if __name__ == "__main__":
    unittest.main()
