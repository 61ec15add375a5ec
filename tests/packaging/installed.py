"""What is installed works, in a system that has booted: the service under the real systemd, a job's turns, the demo.
For scripts/installation-test, as root in a system of its own: it changes settings and removes the package.
usage: installed.py PACKAGE BUILD-FOLDER SOURCES"""
import json
import os
import pwd
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

package, build, sources = sys.argv[1:4]
UNIT = "gpushare-daemon.service"
DROP_IN = "/etc/gpushare/gpushare.conf.d/test.conf"
PATIENCE_S = 60


def run(*command, code=0, **environment):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                            env={**os.environ, **environment}, timeout=300)
    if code is not None and result.returncode != code:
        raise AssertionError(f"{' '.join(command)}: exit {result.returncode}, not {code}\n{result.stdout}")
    return result.stdout


def shown(name):
    return run("systemctl", "show", "--value", "-p", name, UNIT).strip()


def status():
    return json.loads(run("gpusharectl", "status", "--json"))


def await_that(holds, what):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}\n" + run("systemctl", "status", "--no-pager", UNIT, code=None))
        time.sleep(0.05)


def configure(text):
    with open(DROP_IN, "w", encoding="utf-8") as file:
        file.write(text)


def simulated_driver():
    return {"LD_LIBRARY_PATH": os.path.join(build, "tests/sim"), "GPUSHARE_SIM_CARD": "small,capacity=32MiB",
            "GPUSHARE_SIM_STATE": "/run/simulated-card"}


class Installed(unittest.TestCase):
    def setUp(self):
        run("systemctl", "reset-failed", "gpushare-daemon.socket", UNIT)
        run("systemctl", "start", "gpushare-daemon.socket", UNIT)

    def tearDown(self):
        configure("")

    def test_booted(self):
        for unit in ("gpushare-daemon.socket", UNIT):
            self.assertEqual(run("systemctl", "is-enabled", unit).strip(), "enabled")
            self.assertEqual(run("systemctl", "is-active", unit).strip(), "active")
        self.assertEqual(shown("StatusText"), "0 programs")

    def test_without_privileges(self):
        with open(f"/proc/{shown('MainPID')}/status", encoding="utf-8") as file:
            told = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        self.assertEqual(told["Uid"].split()[0], str(pwd.getpwnam("gpushare").pw_uid))
        self.assertEqual((int(told["CapEff"], 16), told["NoNewPrivs"], told["Seccomp"]), (0, "1", "2"))
        run("systemd-analyze", "security", "--no-pager", "--threshold=20", UNIT)

    def test_any_user_asks_and_root_changes(self):
        def as_nobody(*command, code=0):
            return run("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command, code=code)
        as_nobody("gpusharectl", "status")
        self.assertIn("not permitted", as_nobody("gpusharectl", "set-tq", "7", code=1))
        run("gpusharectl", "set-tq", "7")
        run("setpriv", "--reuid=nobody", "--regid=gpushare", "--clear-groups", "gpusharectl", "set-tq", "8")
        run("gpusharectl", "set-tq", "20")

    def test_what_is_set_outlives_it(self):
        run("gpusharectl", "set-tq", "9")
        run("systemctl", "restart", UNIT)
        self.assertEqual(status()["daemon"]["default_tq_ns"], 9 * 10**9)
        os.kill(int(shown("MainPID")), signal.SIGKILL)
        await_that(lambda: shown("NRestarts") == "1" and shown("ActiveState") == "active", "another daemon")
        self.assertEqual(status()["daemon"]["default_tq_ns"], 9 * 10**9)
        self.assertEqual(os.stat("/var/lib/gpushare/state").st_mode & 0o777, 0o600)
        run("gpusharectl", "set-tq", "20")

    def test_the_library_is_found_by_its_name(self):
        self.assertEqual(run("/bin/true", LD_PRELOAD="libunified.so"), "")
        self.assertIn("/libunified.so", run("gpusharectl", "run", "env").split("LD_PRELOAD=")[1].splitlines()[0])

    def test_jobs_take_turns(self):
        configure("mode = on\ntq = 20ms\n")
        run("systemctl", "reload", UNIT)
        job = ["gpusharectl", "run", "--", os.path.join(build, "tests/system/job"), "--bytes", "24M", "--rounds", "30"]
        environment = {**os.environ, **simulated_driver(), "GPUSHARE_REQUIRED": "1"}
        jobs = [subprocess.Popen(job, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
                for _ in range(2)]
        for process in jobs:
            self.assertIn("ok", process.communicate(timeout=PATIENCE_S)[0])
            self.assertEqual(process.returncode, 0)
        self.assertGreater(status()["gpus"][0]["handovers"], 0)

    def test_reload(self):
        configure("tq = 4\nmode = sometimes\n")
        run("systemctl", "reload", UNIT)
        where = DROP_IN + ":2: mode: 'sometimes'"
        self.assertIn(where, shown("StatusText"))
        run("journalctl", "--sync")
        self.assertIn(where, run("journalctl", "--no-pager", "-q", "-p", "err", "-u", UNIT))
        self.assertNotIn("listening on", run("journalctl", "--no-pager", "-q", "-p", "err", "-u", UNIT))
        self.assertEqual(status()["daemon"]["default_tq_ns"], 20 * 10**9)
        configure("tq = 4\n")
        run("systemctl", "reload", UNIT)
        self.assertEqual(shown("StatusText"), "0 programs")
        self.assertEqual(status()["daemon"]["default_tq_ns"], 4 * 10**9)

    def test_a_wrong_configuration_is_not_tried_again(self):
        configure("speed = 9\n")
        run("systemctl", "stop", UNIT)
        run("systemctl", "start", UNIT, code=1)
        self.assertEqual((shown("ExecMainStatus"), shown("NRestarts"), shown("ActiveState")), ("78", "0", "failed"))
        self.assertIn(DROP_IN + ":1: speed is not a setting", shown("StatusText"))

    def test_metrics_on_a_port_by_systemds_proxy(self):
        configure("metrics = unix:/run/gpushare/metrics.sock\n")
        run("systemctl", "reload", UNIT)
        run("systemctl", "enable", "--now", "gpushare-metrics.socket")
        with urllib.request.urlopen("http://127.0.0.1:9465/metrics", timeout=PATIENCE_S) as answer:
            self.assertIn(b"gpushare_clients 0\n", answer.read())
        run("systemctl", "disable", "--now", "gpushare-metrics.socket", "gpushare-metrics.service")

    def test_the_page_on_a_port_by_its_socket(self):
        run("systemctl", "enable", "--now", "gpushare-web.socket")
        with urllib.request.urlopen("http://127.0.0.1:9466/", timeout=PATIENCE_S) as answer:
            self.assertIn(b"<title>gpushare</title>", answer.read())
        with urllib.request.urlopen("http://127.0.0.1:9466/api/status", timeout=PATIENCE_S) as answer:
            self.assertEqual(json.load(answer)["daemon"]["pid"], status()["daemon"]["pid"])
        page = run("systemctl", "show", "--value", "-p", "MainPID", "gpushare-web.service").strip()
        with open(f"/proc/{page}/status", encoding="utf-8") as file:
            told = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        self.assertNotIn("0", told["Uid"].split())
        self.assertEqual((int(told["CapEff"], 16), told["NoNewPrivs"], told["Seccomp"]), (0, "1", "2"))
        run("systemd-analyze", "security", "--no-pager", "--threshold=20", "gpushare-web.service")
        run("systemctl", "disable", "--now", "gpushare-web.socket", "gpushare-web.service")

    def test_what_the_package_has(self):
        files = run("dpkg", "-L", "gpushare").split()
        for end in ("/bin/gpusharectl", "/sbin/gpushare-daemon", "/gpushare/gpushare-web", "/libunified.so", "/gpushare/ld.so.preload",
                    "/gpushare.h", "/gpushare.pc", "/gpushare-daemon.socket", "/gpushare-daemon.service", "/gpushare-metrics.socket",
                    "/gpushare-metrics.service", "/gpushare-web.socket", "/gpushare-web.service", "/sysusers.d/gpushare.conf",
                    "/tmpfiles.d/gpushare.conf", "/gpushare-lab.conf.example", "/gpushare.rules.yml", "/gpushare.grafana.json",
                    "/jupyter/gpushare/kernel.json", "/completions/gpusharectl", "/gpusharectl.1.gz", "/gpushare.conf.5.gz",
                    "/libunified.7.gz", "/gpushare-daemon.8.gz"):
            self.assertTrue([path for path in files if path.endswith(end)], end)

    def test_what_containers_get_is_installed(self):
        edits = json.loads(run("gpusharectl", "cdi", "generate"))["containerEdits"]
        host = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
        owners = run("dpkg", "-S", host["/usr/lib/gpushare/libunified.so"], host["/etc/ld.so.preload"]).splitlines()
        self.assertEqual([owner.split(":")[0] for owner in owners], ["gpushare"] * 2)
        self.assertTrue(os.path.exists(os.path.join(host["/run/gpushare"], "daemon.sock")))

    def test_the_first_who_connects_starts_it(self):
        run("systemctl", "stop", UNIT)
        self.assertEqual(shown("ActiveState"), "inactive")
        before = os.stat("/run/gpushare").st_ino
        self.assertEqual(status()["daemon"]["jobs"], 0)
        self.assertEqual(shown("ActiveState"), "active")
        self.assertEqual(os.stat("/run/gpushare").st_ino, before, "containers have the folder mounted")

    def await_another(self, pid):
        await_that(lambda: shown("ActiveState") == "active" and shown("MainPID") not in ("0", str(pid)), "another daemon")
        status()

    def test_one_that_dies_is_started_anew(self):
        pid = int(shown("MainPID"))
        os.kill(pid, signal.SIGKILL)
        self.await_another(pid)

    def test_one_that_hangs_is_started_anew(self):
        folder = f"/run/systemd/system/{UNIT}.d"
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "soon.conf"), "w", encoding="utf-8") as file:
            file.write("[Service]\nWatchdogSec=2s\n")
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", UNIT)
        pid = int(shown("MainPID"))
        os.kill(pid, signal.SIGSTOP)
        self.await_another(pid)
        self.assertEqual(shown("NRestarts"), "1")
        os.unlink(os.path.join(folder, "soon.conf"))
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", UNIT)

    def test_the_demo(self):
        said = run(sys.executable, os.path.join(sources, "scripts/demo.py"), build, "--installed", "--simulate")
        print(said, flush=True)
        self.assertEqual(said.count("every byte of"), 3)


class Removed(unittest.TestCase):
    """After the others: unittest goes by name."""

    def test_a_changed_configuration_outlives_an_upgrade_and_goes_with_a_purge(self):
        with open("/etc/gpushare/gpushare.conf", "a", encoding="utf-8") as file:
            file.write("tq = 6\n")
        if os.path.exists(DROP_IN):
            os.unlink(DROP_IN)
        run("dpkg", "--install", package)
        self.assertEqual(status()["daemon"]["default_tq_ns"], 6 * 10**9)
        files = [path for path in run("dpkg", "-L", "gpushare").split() if os.path.isfile(path)]
        run("dpkg", "--remove", "gpushare")
        self.assertEqual([path for path in files if os.path.exists(path)], ["/etc/gpushare/gpushare.conf"])
        self.assertFalse(os.path.exists("/run/gpushare/daemon.sock"))
        run("dpkg", "--purge", "gpushare")
        self.assertFalse(os.path.exists("/etc/gpushare"))
        self.assertFalse(os.path.exists("/var/lib/gpushare"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
