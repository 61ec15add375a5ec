"""The units, users and files for systemd: what its own tools say of them, and what the daemon expects.
usage: test_units.py SERVICE-UNIT DAEMON SOURCES"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

service, daemon, sources = sys.argv[1:4]
packaging = os.path.join(sources, "packaging/systemd")
socket_unit = os.path.join(packaging, "gpushare-daemon.socket")
EXPOSURE_MAX = "20"  # tenths
OWN_BYTES = 256 << 20  # of the daemon, beside what users are charged for: events, runs, pictures


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def setting(path, name):
    return re.search(rf"^{name}=(.*)$", read(path), re.M).group(1)


def definition(path, name):
    return re.search(rf'^#define {name} "(.*)"$', read(os.path.join(sources, path)), re.M).group(1)


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def systemd_version():
    if not shutil.which("systemd-analyze"):
        return 0
    return int(run("systemd-analyze", "--version").stdout.split()[1])


class Agreement(unittest.TestCase):
    def test_the_socket_is_the_one_that_programs_look_for(self):
        self.assertEqual(setting(socket_unit, "ListenSequentialPacket"),
                         definition("include/gpushare/protocol.h", "GS_DEFAULT_SOCKET"))

    def test_the_socket_has_the_name_that_the_daemon_looks_for(self):
        self.assertEqual(setting(socket_unit, "FileDescriptorName"), definition("daemon/server/listen.h", "ACTIVATION_NAME"))

    def test_exit_codes_that_trying_again_does_not_help(self):
        codes = run(daemon, "--help").stdout.split("exit codes:")[1]
        for code in setting(service, "RestartPreventExitStatus").split():
            self.assertRegex(codes, rf"\b{code}\b")

    def test_only_devices_of_nvidia_are_there(self):
        """For the helper that asks NVML; the drop-in for MPS lifts it, as an empty list does."""
        allowed = re.findall(r"(?m)^DeviceAllow=(.*)$", read(service))
        self.assertEqual(allowed, ["char-nvidia* rw", "char-195 rw"])
        self.assertEqual(setting(service, "DevicePolicy"), "closed")
        self.assertNotRegex(read(service), r"(?m)^PrivateDevices=")
        self.assertRegex(read(os.path.join(packaging, "mps.conf")), r"(?m)^DeviceAllow=$")

    def test_memory_has_a_bound_beyond_what_users_may_have(self):
        """It is for faults of the daemon: whatever users do, it is not reached. The drop-in for MPS lifts it, for servers."""
        most, shift = map(int, re.search(r"(?m)^#define BYTES_OF_ALL \(UINT64_C\((\d+)\) << (\d+)\)$",
                                         read(os.path.join(sources, "daemon/server/users.c"))).groups())
        bound = int(setting(service, "MemoryMax").removesuffix("M")) << 20
        self.assertGreaterEqual(bound, (most << shift) + OWN_BYTES)
        self.assertLessEqual(bound, 2 << 30)
        self.assertEqual(setting(service, "MemorySwapMax"), "0")
        self.assertNotRegex(read(service), r"(?m)^MemoryHigh=")
        for name in ("MemoryMax", "MemorySwapMax"):
            self.assertEqual(setting(os.path.join(packaging, "mps.conf"), name), "infinity")

    def test_the_user_is_the_one_that_is_made(self):
        users = read(os.path.join(packaging, "sysusers.conf"))
        self.assertRegex(users, rf"(?m)^u {setting(service, 'User')} ")


@unittest.skipIf(systemd_version() < 250, "needs systemd-analyze of systemd 250 or later")
class Systemd(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_hardening(self):
        result = run("systemd-analyze", "security", "--no-pager", "--offline=yes", "--threshold=" + EXPOSURE_MAX, service)
        self.assertEqual(result.returncode, 0, result.stdout)
        print(result.stdout.strip().splitlines()[-1])

    def test_verified(self):
        """With the program that is there; a setting or section that systemd does not know is an error."""
        unit = os.path.join(self.folder, os.path.basename(service))
        with open(unit, "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=" + daemon, read(service)))
        shutil.copy(socket_unit, self.folder)
        for path in (unit, os.path.join(self.folder, os.path.basename(socket_unit))):
            result = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path)
            said = [line for line in result.stdout.splitlines() if "gpushare" in line]
            self.assertEqual((result.returncode, said), (0, []), result.stdout)

    def test_the_proxy_for_metrics(self):
        names = ("gpushare-metrics.socket", "gpushare-metrics.service")
        for name in names:
            shutil.copy(os.path.join(packaging, name), self.folder)
        self.check_pair(names)

    def test_the_page(self):
        names = ("gpushare-web.socket", "gpushare-web.service")
        shutil.copy(os.path.join(packaging, names[0]), self.folder)
        with open(os.path.join(self.folder, names[1]), "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=" + daemon, read(os.path.join(packaging, names[1] + ".in"))))
        self.check_pair(names)

    def check_pair(self, names):
        """A socket and its service."""
        for name in names:
            result = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", os.path.join(self.folder, name))
            said = [line for line in result.stdout.splitlines() if "gpushare" in line]
            self.assertEqual((result.returncode, said), (0, []), result.stdout)
        result = run("systemd-analyze", "security", "--no-pager", "--offline=yes", "--threshold=" + EXPOSURE_MAX,
                     os.path.join(self.folder, names[1]))
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_the_drop_in_for_mps(self):
        """systemd knows all that it names."""
        name = os.path.basename(service)
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=" + daemon, read(service)))
        shutil.copy(socket_unit, self.folder)
        os.mkdir(os.path.join(self.folder, name + ".d"))
        shutil.copy(os.path.join(packaging, "mps.conf"), os.path.join(self.folder, name + ".d"))
        result = run("env", f"SYSTEMD_UNIT_PATH={self.folder}:", "systemd-analyze", "verify", "--man=no",
                     "--recursive-errors=no", name)
        said = [line for line in result.stdout.splitlines() if "gpushare" in line or "mps.conf" in line]
        self.assertEqual((result.returncode, said), (0, []), result.stdout)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_the_user_and_the_folder_are_made(self):
        os.mkdir(os.path.join(self.folder, "etc"))
        result = run("systemd-sysusers", "--root=" + self.folder, os.path.join(packaging, "sysusers.conf"))
        self.assertEqual(result.returncode, 0, result.stdout)
        entry = re.search(r"(?m)^gpushare:x:(\d+):", read(os.path.join(self.folder, "etc/passwd")))
        result = run("systemd-tmpfiles", "--root=" + self.folder, "--create", os.path.join(packaging, "tmpfiles.conf"))
        self.assertEqual(result.returncode, 0, result.stdout)
        status = os.stat(os.path.join(self.folder, "run/gpushare"))
        self.assertEqual((status.st_mode & 0o7777, status.st_uid), (0o755, int(entry.group(1))))


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[4:], exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
