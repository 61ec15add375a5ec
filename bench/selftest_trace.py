#!/usr/bin/env python3
"""Runs bench_trace on a few seeds: it says the same twice, FIFO does as the paper's, timeline and chart are right."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import chart
import trace_chart

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

    def test_the_timeline_has_every_job_and_one_at_a_time_under_fifo(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "timeline.json")
            run("--timeline", str(path), seeds=1)
            policies = {policy["name"]: policy["jobs"] for policy in json.loads(path.read_text())["policies"]}
        for name in ("fifo", "fair", "reference_fifo", "reference_srtf", "reference_pack", "reference_fair"):
            self.assertEqual(len(policies[name]), 100)
            self.assertTrue(all(job["ran_s"] and job["ran_s"][0][0] >= job["arrives_s"] for job in policies[name]))
        for name in ("fifo", "fair"):
            spans = sorted(span for job in policies[name] for span in job["ran_s"])
            self.assertTrue(all(first[1] <= second[0] for first, second in zip(spans, spans[1:])), name)
            work = sum(to - start for start, to in spans)
            self.assertAlmostEqual(work / 60, 303.4, delta=0.1)
        self.assertTrue(all(len(job["ran_s"]) == 1 for job in policies["fifo"]))

    def test_the_chart_shows_who_ran_when(self):
        canvas = chart.Canvas(trace_chart.WIDTH + 1, trace_chart.ROW)
        job = {"bytes": 0, "arrives_s": 10, "ran_s": [[20, 30], [40, 50]]}
        trace_chart.draw_job(canvas, 0, 0, job, 1.0)
        seen = [tuple(canvas.rows[0][3 * second:3 * second + 3]) for second in (5, 15, 25, 35, 45, 55)]
        waits, runs = trace_chart.WAITS, trace_chart.LIGHT
        self.assertEqual(seen, [chart.PAPER, waits, runs, waits, runs, chart.PAPER])


if __name__ == "__main__":
    unittest.main()
