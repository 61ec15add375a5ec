"""The plugin in a real Slurm: a cluster of this machine alone, made for the test, whose one GPU is simulated. Skipped
where slurmctld and slurmd are not installed (Debian: slurmctld, slurmd, slurm-client).
usage: test_cluster.py BUILD"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCES, "tests", "metrics"))
from scene import free_port  # noqa: E402

build = os.path.realpath(sys.argv[1])
PATIENCE_S = 60
CARD = "p100,capacity=64MiB"
NODE = "here"

SLURM_CONF = """
ClusterName=gpushare
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={controller_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmdParameters=config_overrides
GresTypes=gpu,shard
PlugStackConfig={folder}/plugstack.conf
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=4 Gres=gpu:1,shard:8
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def wait_until(true, what):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError("not within a minute: " + what)
        time.sleep(0.05)


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="gpushare-slurm-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.socket = cls.path("gpushare", "daemon.sock")
        cls.environment = dict(os.environ, SLURM_CONF=cls.path("slurm.conf"), GPUSHARE_SIM_CARD=CARD,
                               GPUSHARE_SIM_STATE=cls.path("card"), LD_LIBRARY_PATH=os.path.join(build, "tests/sim"))
        cls.environment.pop("LD_PRELOAD", None)
        cls.configure()
        cls.start("slurmctld", "-D")
        cls.start("slurmd", "-D", "-N", NODE)
        wait_until(lambda: cls.run_command("sinfo", "-h", "-o", "%t").stdout.strip() == "idle", "the node is idle")

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.folder, *parts)

    @classmethod
    def write(cls, name, text):
        with open(cls.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def configure(cls):
        for name in ("state", "spool", "gpushare"):
            os.mkdir(cls.path(name))
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        os.symlink("/dev/null", cls.path("nvidia0"))
        cls.write("slurm.conf", SLURM_CONF.format(
            folder=cls.folder, host=socket.gethostname().split(".")[0], user=user, node=NODE,
            controller_port=free_port(), node_port=free_port()))
        cls.write("gres.conf", f"Name=gpu File={cls.path('nvidia0')}\nName=shard Count=8\n")
        cls.write("plugstack.conf", f"required {build}/daemon/slurm/spank_gpushare.so "
                                    f"library={build}/src/libunified.so socket={cls.socket}\n")

    @classmethod
    def start(cls, *command):
        with open(cls.path(command[0].rsplit("/", 1)[-1] + ".log"), "ab") as log:
            process = subprocess.Popen(command, env=cls.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        cls.addClassCleanup(cls.stop, process)
        return process

    @staticmethod
    def stop(process):
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @classmethod
    def run_command(cls, *command):
        return subprocess.run(command, env=cls.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=2 * PATIENCE_S, check=False)

    def start_daemon(self):
        process = self.start(os.path.join(build, "daemon/gpushare-daemon"), "--socket", self.socket, "--tq", "100ms")
        self.addCleanup(self.stop, process)
        wait_until(lambda: self.run_command(self.ctl, "--socket", self.socket, "status").returncode == 0, "the daemon answers")

    ctl = os.path.join(build, "daemon/gpusharectl")

    def status(self):
        return json.loads(self.run_command(self.ctl, "--socket", self.socket, "status", "--json").stdout)

    def test_a_job_without_a_daemon_is_refused_and_the_node_stays(self):
        result = self.run_command("srun", "--gpushare", "true")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"gpushare: no daemon answers at {self.socket} on {NODE}", result.stderr)
        self.assertIn(f"--exclude={NODE}", result.stderr)
        batch = self.run_command("sbatch", "--wait", "--gpushare", "--output", self.path("batch.out"), "--wrap", "echo ran")
        self.assertNotEqual(batch.returncode, 0)
        with open(self.path("batch.out"), encoding="utf-8") as file:
            told = file.read()
        self.assertIn("no daemon answers", told)
        self.assertNotIn("ran", told.split())
        self.assertEqual(self.run_command("srun", "echo", "ran").stdout, "ran\n")

    def started(self, *command):
        process = subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def test_two_jobs_that_do_not_fit_share_the_gpu(self):
        self.start_daemon()
        job = [os.path.join(build, "tests/system/job"), "--bytes", str(48 << 20), "--buffers", "4", "--rounds", "0",
               "--spin", "0.003"]
        jobs = [self.started("srun", "--gres=shard:4", *options, *job)
                for options in (["--gpushare=production", "--gpushare-weight=200"], ["--gpushare"])]

        def both_are_there():
            terms = [(j["class"], j["weight"]) for gpu in self.status()["gpus"] for j in gpu["jobs"]]
            return sorted(terms) == [("production", 200), ("standard", 100)]
        wait_until(both_are_there, "both are in status, with what was asked for")
        wait_until(lambda: sum(gpu["handovers"] for gpu in self.status()["gpus"]) > 1, "they take turns")
        for process in jobs:
            out, err = process.communicate("stop\n", timeout=2 * PATIENCE_S)
            self.assertEqual((process.returncode, out.split()[-1:]), (0, ["ok"]), err)

    def test_the_steps_of_a_batch_job_inherit_the_options(self):
        self.start_daemon()
        script = "srun -n 2 env\n"
        self.write("batch.sh", "#!/bin/sh\n" + script)
        result = self.run_command("sbatch", "--wait", "-n", "2", "--gres=shard:2", "--gpushare=production",
                                  "--gpushare-limit=16M", "--output", self.path("steps.out"), self.path("batch.sh"))
        with open(self.path("steps.out"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(result.returncode, 0, lines)
        for line in (f"LD_PRELOAD={build}/src/libunified.so", "GPUSHARE_CLASS=production", "GPUSHARE_MEMORY_LIMIT=16M",
                     f"GPUSHARE_SOCKET={self.socket}", "SLURM_STEP_NUM_TASKS=2"):
            self.assertEqual(lines.count(line), 2, line)

    def test_wrong_values_are_refused_before_the_job_is_submitted(self):
        result = self.run_command("sbatch", "--gpushare-limit=much", "--wrap", "true")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("gpushare: --gpushare-limit is a size (16G, 512M), not 'much'", result.stderr)
        self.assertEqual(self.run_command("squeue", "-h", "-t", "pending,running").stdout, "")  # another job may be completing


if __name__ == "__main__":
    if not all(shutil.which(name) for name in ("slurmctld", "slurmd", "srun")):
        print("slurmctld, slurmd and srun are not here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
