"""An experiment of Ray Tune with a quarter of a GPU for each trial: trials are jobs, which take turns, and those that the
scheduler stops early make room for the next. Skipped without Ray (pip install --target BUILD/python "ray[tune]").
usage: test_ray.py BUILD"""
import importlib.util
import json
import os
import subprocess
import sys
import unittest

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCES, "tests", "metrics"))
from scene import QuietScene  # noqa: E402

build = os.path.realpath(sys.argv[1])
EXPERIMENT = os.path.join(SOURCES, "tests", "sweeps", "ray_trials.py")
PATIENCE_S = 500
GOOD, BAD = 0.5, 5.0
LOSSES = [GOOD, BAD, BAD, BAD, BAD, BAD]
EPOCHS = 5


class RayTune(unittest.TestCase):
    def test_trials_are_jobs_that_take_turns(self):
        scene = QuietScene(build, "--tq", "100ms")
        self.addCleanup(scene.end)
        done = subprocess.run(
            [scene.program("daemon", "gpusharectl"), "run", "--", sys.executable, EXPERIMENT, scene.folder, *map(str, LOSSES)],
            env={**scene.environment, "RAY_USAGE_STATS_ENABLED": "0"}, timeout=PATIENCE_S, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((told["errors"], told["best"]), ([], 0))
        self.assertEqual([(trial["loss"], trial["epochs"], trial["right"]) for trial in told["trials"]],
                         [(GOOD, EPOCHS, True)] + [(BAD, 1, True)] * (len(LOSSES) - 1))
        runs = json.loads(scene.ctl("history", "--json").stdout)["runs"]
        self.assertEqual(sorted(run["pid"] for run in runs), sorted(trial["pid"] for trial in told["trials"]))
        self.assertGreater(sum(gpu["handovers"] for gpu in scene.status()["gpus"]), 1)


if __name__ == "__main__":
    if not importlib.util.find_spec("ray"):
        print("Ray is not here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
