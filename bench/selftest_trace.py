#!/usr/bin/env python3
"""Runs bench_trace on a few seeds: it says the same twice; FIFO does as the paper's."""
import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


def run(*words, seeds=3):
    command = [PROGRAM, "--seeds", str(seeds), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout


class Trace(unittest.TestCase):
    def test_the_same_seeds_give_the_same_figures(self):
        self.assertEqual(run(), run())
        self.assertNotEqual(run(), run("--seed", "1000"))

    def test_fifo_does_as_the_papers(self):
        for mix in ("production", "minutes"):
            figures = json.loads(run("--json", "--mix", mix, seeds=9))
            for name in ("makespan", "jct", "jct_95"):
                self.assertEqual(figures[f"calibration_{name}_verdict"], "pass", (mix, name))
                self.assertAlmostEqual(figures[f"calibration_{name}"], 1, delta=0.1)

    def test_few_seeds_are_not_judged(self):
        self.assertEqual(json.loads(run("--json"))["reference_srtf_jct_gain_verdict"], "not_judged")

    def test_wrong_words_are_refused(self):
        for words in (["--mix", "unknown"], ["--seeds", "0"], ["--seeds", "many"], ["more"]):
            self.assertEqual(subprocess.run([PROGRAM, *words], stderr=subprocess.DEVNULL).returncode, 2)


if __name__ == "__main__":
    unittest.main()
