"""What the package's postinst does to the service: programs that use MPS outlive an upgrade.
usage: test_postinst.py SOURCES   The system's programs are played by scripts that note how they are called."""
import os
import subprocess
import sys
import tempfile
import unittest

sources = sys.argv[1]
NOTING = "#!/bin/sh\necho \"${0##*/} $*\" >>\"$NOTES\"\n"


class Upgrade(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(self.path("bin"))
        os.mkdir(self.path("systemd"))
        os.makedirs(self.path("cgroup/the.service"))
        self.write("cgroup/the.service/cgroup.procs", "")
        for name in ("systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper", "deb-systemd-invoke"):
            self.play(name, "")
        self.play("systemctl", "case $* in is-active*) exit $INACTIVE ;; show*) echo /the.service ;; esac")
        self.play("gpusharectl", 'printf \'{"daemon": {"mps": "runs",\\n  "mps_programs": %s}}\' "$PROGRAMS"')
        with open(os.path.join(sources, "packaging/debian/postinst"), encoding="utf-8") as file:
            script = file.read()
        for there, here in (("/run/systemd/system", "systemd"), ("/sys/fs/cgroup", "cgroup")):
            self.assertIn(there, script)
            script = script.replace(there, self.path(here))
        self.write("postinst", script)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def play(self, name, body):
        self.write("bin/" + name, NOTING + body + "\n")
        os.chmod(self.path("bin/" + name), 0o755)

    @staticmethod
    def command_of(pid):
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read()

    def configure(self, programs="0", inactive="0"):
        self.write("notes", "")
        environment = {"PATH": self.path("bin") + ":/usr/bin:/bin", "NOTES": self.path("notes"), "PROGRAMS": programs,
                       "INACTIVE": inactive}
        said = subprocess.run(["/bin/sh", self.path("postinst"), "configure"], env=environment, check=True,
                              capture_output=True, text=True).stdout
        with open(self.path("notes"), encoding="utf-8") as file:
            notes = file.read()
        self.assertIn("systemctl --system daemon-reload", notes)
        return "deb-systemd-invoke restart gpushare-daemon.service" in notes, said

    def test_it_is_restarted(self):
        self.assertEqual(self.configure(), (True, ""))

    def test_not_while_programs_use_mps(self):
        for count in ("1", "48"):
            restarted, said = self.configure(programs=count)
            self.assertFalse(restarted)
            self.assertIn("systemctl restart gpushare-daemon", said)

    def test_one_that_does_not_run_is_started(self):
        self.assertEqual(self.configure(programs="1", inactive="3"), (True, ""))

    def test_one_that_does_not_answer(self):
        """As one of another version may not: its processes tell."""
        self.play("gpusharectl", "exit 1")
        self.assertEqual(self.configure(), (True, ""))
        server = subprocess.Popen(["nvidia-cuda-mps-server", "60"], executable="/bin/sleep")
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        while not self.command_of(server.pid):  # for a moment it has none
            pass
        self.write("cgroup/the.service/cgroup.procs", f"1\n{server.pid}\n")
        self.assertFalse(self.configure()[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
