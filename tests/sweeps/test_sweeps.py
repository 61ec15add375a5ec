"""A tuner's early stopping with many jobs: a trial that is pruned ends its job, and the next trial starts in its place.
Skipped without Optuna (pip install --target BUILD/python optuna).
usage: test_sweeps.py BUILD"""
import csv
import os
import subprocess
import sys
import unittest

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
except ImportError as missing:
    print(missing)
    sys.exit(77)

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCES, "tests", "metrics"))
from scene import QuietScene  # noqa: E402

build = os.path.realpath(sys.argv[1])
TRIAL = os.path.join(SOURCES, "tests", "sweeps", "trial.py")
PATIENCE_S = 120
GOOD, BAD = 0.5, 5.0
LOSSES = [GOOD, BAD, BAD, BAD, BAD, GOOD]
EPOCHS = 5


class Sweeps(unittest.TestCase):
    # Of two places, the first trial has one until the others are over: they come and go through the second.
    def test_a_pruned_trial_makes_room_for_the_next(self):
        scene = QuietScene(build)
        self.addCleanup(scene.end)
        journal = os.path.join(scene.folder, "journal")
        study = optuna.create_study(study_name="toy", storage=JournalStorage(JournalFileBackend(journal)))
        for loss in LOSSES:
            study.enqueue_trial({"loss": loss})
        jobs, output = (os.path.join(scene.folder, name) for name in ("jobs", "output"))
        with open(jobs, "w", encoding="utf-8") as file:
            file.write(f"{journal} {EPOCHS}\n" * len(LOSSES))
        done = subprocess.run(
            [scene.program("daemon", "gpusharectl"), "run", "-n", "2", "--jobs", jobs, "--output", output, "--", sys.executable, TRIAL],
            env=scene.environment, timeout=PATIENCE_S, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = [(trial.params["loss"], trial.state.name, len(trial.intermediate_values)) for trial in study.trials]
        self.assertEqual(sorted(told), sorted([(GOOD, "COMPLETE", EPOCHS)] * 2 + [(BAD, "PRUNED", 1)] * 4))
        with open(os.path.join(output, "results.tsv"), encoding="utf-8") as file:
            self.assertEqual(len(list(csv.DictReader(file, delimiter="\t"))), len(LOSSES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
