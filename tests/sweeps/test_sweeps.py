"""A tuner's early stopping with many jobs: a trial that is pruned ends its job, and the next trial starts in its place.
Skipped without Optuna (pip install --target BUILD/python optuna).
usage: test_sweeps.py BUILD"""
import csv
import os
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
except ImportError as missing:
    print(missing)
    sys.exit(77)

build = os.path.realpath(sys.argv[1])
TRIAL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "trial.py")
CTL = os.path.join(build, "daemon/gpusharectl")
PATIENCE_S = 120
GOOD, BAD = 0.5, 5.0
LOSSES = [GOOD, BAD, BAD, BAD, BAD, GOOD]
EPOCHS = 5


class Sweeps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.socket = os.path.join(folder.name, "daemon.sock")
        self.environment = dict(
            os.environ, GPUSHARE_SOCKET=self.socket, GPUSHARE_SIM_CARD="p100,capacity=64MiB",
            GPUSHARE_SIM_STATE=os.path.join(folder.name, "card"), LD_LIBRARY_PATH=os.path.join(build, "tests/sim"))
        self.environment.pop("LD_PRELOAD", None)
        self.daemon = subprocess.Popen([os.path.join(build, "daemon/gpushare-daemon"), "--socket", self.socket])
        self.addCleanup(self.daemon.wait, PATIENCE_S)
        self.addCleanup(self.daemon.terminate)
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run([CTL, "--socket", self.socket, "status"], capture_output=True, check=False).returncode != 0:
            self.assertLess(time.monotonic(), deadline, "the daemon does not answer")
            time.sleep(0.05)

    # Of two places, the first trial has one until the others are over: they come and go through the second.
    def test_a_pruned_trial_makes_room_for_the_next(self):
        journal = os.path.join(self.folder, "journal")
        study = optuna.create_study(study_name="toy", storage=JournalStorage(JournalFileBackend(journal)))
        for loss in LOSSES:
            study.enqueue_trial({"loss": loss})
        jobs, output = (os.path.join(self.folder, name) for name in ("jobs", "output"))
        with open(jobs, "w", encoding="utf-8") as file:
            file.write(f"{journal} {EPOCHS}\n" * len(LOSSES))
        done = subprocess.run([CTL, "run", "-n", "2", "--jobs", jobs, "--output", output, "--", sys.executable, TRIAL],
                              env=self.environment, timeout=PATIENCE_S, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = [(trial.params["loss"], trial.state.name, len(trial.intermediate_values)) for trial in study.trials]
        self.assertEqual(sorted(told), sorted([(GOOD, "COMPLETE", EPOCHS)] * 2 + [(BAD, "PRUNED", 1)] * 4))
        with open(os.path.join(output, "results.tsv"), encoding="utf-8") as file:
            self.assertEqual(len(list(csv.DictReader(file, delimiter="\t"))), len(LOSSES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
