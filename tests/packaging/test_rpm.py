"""The RPM: made of this build folder's programs, installed by rpm below a folder, and its scripts tried.
usage: test_rpm.py CPACK BUILD SOURCES      Ends with 77 without rpmbuild (Debian: apt install rpm)."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

cpack, build, sources = sys.argv[1:4]
if not shutil.which("rpmbuild"):
    print("skipped: no rpmbuild (Debian: apt install rpm)")
    sys.exit(77)
NOTING = "#!/bin/sh\necho \"${0##*/} $*\" >>\"$NOTES\"\n"


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run(cpack, "-G", "RPM", "--config", f"{build}/CPackConfig.cmake", "-B", cls.folder, cwd=cls.folder)
        (cls.package,) = glob.glob(f"{cls.folder}/gpushare-*.rpm")

    def query(self, *options):
        return run("rpm", "-qp", *options, self.package)

    def test_it_can_be_installed(self):
        root = os.path.join(self.folder, "root")
        os.mkdir(root)
        database = ["--root", root, "--dbpath", "/var/lib/rpm"]
        run("rpm", *database, "--nodeps", "--noscripts", "-i", self.package)
        self.assertEqual(run("rpm", *database, "-V", "--nodeps", "gpushare"), "")
        units = glob.glob(f"{root}/**/systemd/system/gpushare-daemon.service", recursive=True)
        with open(units[0], encoding="utf-8") as file:
            program = re.search(r"(?m)^ExecStart=(\S+)", file.read()).group(1)
        self.assertIn("gpushare-daemon", run(root + program, "--version"))
        self.assertTrue(glob.glob(f"{root}/**/libunified.so", recursive=True))
        run("rpm", *database, "--noscripts", "-e", "gpushare")
        self.assertFalse(os.path.exists(root + program))

    def test_the_library_is_one_for_rpm(self):
        (mode,) = re.findall(r"(?m)^(\S+) \S*/libunified\.so$", self.query("--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]"))
        self.assertEqual(mode, "-rwxr-xr-x")
        self.assertRegex(self.query("--provides"), r"(?m)^libunified\.so\(\)")

    def test_the_configuration_is_the_administrators(self):
        self.assertEqual(self.query("--configfiles"), "/etc/gpushare/gpushare.conf\n")
        flags = dict(line.rsplit(" ", 1) for line in self.query("--qf", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]").splitlines())
        self.assertEqual(flags["/etc/gpushare/gpushare.conf"], "cn")

    def test_no_folder_of_others_is_its_own(self):
        for line in self.query("--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]").splitlines():
            mode, name = line.split(" ", 1)
            if mode.startswith("d"):
                self.assertIn("gpushare", name)

    def script(self, kind):
        return self.query("--qf", f"%{{{kind}}}")

    def run_script(self, kind, count, programs="0"):
        """With the system's programs played by scripts that note how they are called."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for name, body in (("systemd-sysusers", ""), ("systemd-tmpfiles", ""), ("systemctl", ""),
                           ("gpusharectl", f'echo \'{{"mps_programs": {programs}}}\'')):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(NOTING + body + "\n")
            os.chmod(path, 0o755)
        text = self.script(kind)
        self.assertIn("/run/systemd/system", text)
        notes = os.path.join(folder, "notes")
        said = subprocess.run(["/bin/sh", "-e", "-c", text.replace("/run/systemd/system", folder), "script", count], check=True,
                              capture_output=True, text=True, env={"PATH": f"{folder}:/usr/bin:/bin", "NOTES": notes}).stdout
        if not os.path.exists(notes):
            return "", said
        with open(notes, encoding="utf-8") as file:
            return file.read(), said

    def test_an_installation_makes_the_user_and_asks_the_presets(self):
        notes, _ = self.run_script("POSTIN", "1")
        self.assertIn("systemd-sysusers gpushare.conf\n", notes)
        self.assertIn("systemctl preset gpushare-daemon.socket gpushare-daemon.service\n", notes)
        self.assertNotIn("restart", notes)

    def test_an_upgrade_restarts_unless_programs_use_mps(self):
        notes, said = self.run_script("POSTIN", "2")
        self.assertIn("systemctl try-restart gpushare-daemon.service\n", notes)
        self.assertEqual(said, "")
        notes, said = self.run_script("POSTIN", "2", programs="3")
        self.assertNotIn("restart", notes)
        self.assertIn("systemctl restart gpushare-daemon", said)

    def test_only_a_removal_stops_the_service(self):
        self.assertIn("disable --now", self.run_script("PREUN", "0")[0])
        self.assertEqual(self.run_script("PREUN", "1")[0], "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
