"""gpusharectl cdi generate, held against what the Container Device Interface asks of a specification (version 0.3.0): what
its runtimes refuse is an error here. usage: test_cdi.py GPUSHARECTL DAEMON SOURCES"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ctl = sys.argv[1]
SOCKET = "/run/some where/daemon.sock"
LIBRARY = "/usr/lib/gpushare/libunified.so"  # in containers
EDITS = {"env", "deviceNodes", "hooks", "mounts"}


def run(*options, **environment):
    return subprocess.run([ctl, "cdi", "generate", *options], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def generate(*options, **environment):
    result = run("--socket", SOCKET, *options, **environment)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def mounts_of(specification):
    return {mount["containerPath"]: mount for mount in specification["containerEdits"]["mounts"]}


class Rules(unittest.TestCase):
    def check_edits(self, edits):
        self.assertTrue(edits)
        self.assertLessEqual(set(edits), EDITS)
        for variable in edits.get("env", []):
            self.assertRegex(variable, r"^[A-Za-z_][A-Za-z0-9_]*=")
        for mount in edits.get("mounts", []):
            self.assertEqual(set(mount), {"hostPath", "containerPath", "options"})
            self.assertRegex(mount["hostPath"], "^/")
            self.assertRegex(mount["containerPath"], "^/")
            self.assertTrue(all(isinstance(option, str) for option in mount["options"]))
            self.assertIn("bind", mount["options"])

    def test_form(self):
        """Runtimes refuse fields that they do not know."""
        specification = generate()
        self.assertEqual(set(specification), {"cdiVersion", "kind", "devices", "containerEdits"})
        self.assertEqual(specification["cdiVersion"], "0.3.0")
        vendor, name = specification["kind"].split("/")
        self.assertRegex(vendor, r"^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]$")
        self.assertRegex(name, r"^[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]$")
        self.check_edits(specification["containerEdits"])
        for device in specification["devices"]:
            self.assertEqual(set(device), {"name", "containerEdits"})
            self.assertRegex(device["name"], r"^[A-Za-z0-9][A-Za-z0-9_.:-]*[A-Za-z0-9]$")
            self.check_edits(device["containerEdits"])
        names = [device["name"] for device in specification["devices"]]
        self.assertEqual(len(set(names)), len(names))

    def test_devices(self):
        devices = {device["name"]: device["containerEdits"]["env"] for device in generate()["devices"]}
        socket = f"GPUSHARE_SOCKET={SOCKET}"
        self.assertEqual(devices.pop("all"), [socket])
        self.assertEqual(set(devices), {"standard", "production", "opportunistic"})
        for name, env in devices.items():
            self.assertEqual(env, [socket, f"GPUSHARE_CLASS={name}"])


class Places(unittest.TestCase):
    def test_mounts(self):
        specification = generate()
        mounts = mounts_of(specification)
        self.assertEqual(set(mounts), {"/run/some where", LIBRARY, "/etc/ld.so.preload"})
        self.assertEqual(mounts["/run/some where"]["hostPath"], "/run/some where")
        self.assertTrue(all("ro" in mount["options"] for mount in mounts.values()))
        self.assertNotIn("noexec", mounts[LIBRARY]["options"])  # it would not be mapped
        self.assertEqual(os.path.basename(os.path.realpath(mounts[LIBRARY]["hostPath"])), "libunified.so")
        self.assertNotIn("env", specification["containerEdits"])
        with open(mounts["/etc/ld.so.preload"]["hostPath"], encoding="utf-8") as file:
            self.assertEqual(file.read(), LIBRARY + "\n")

    def test_another_library(self):
        """Without the file beside it: by the environment, and that is said."""
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "libunified.so")
            with open(library, "w", encoding="utf-8"):
                pass
            specification = generate("--lib", library)
            self.assertEqual(specification, generate(GPUSHARE_LIB=library))
            self.assertEqual(mounts_of(specification)[LIBRARY]["hostPath"], os.path.realpath(library))
            self.assertNotIn("/etc/ld.so.preload", mounts_of(specification))
            self.assertEqual(specification["containerEdits"]["env"], [f"LD_PRELOAD={LIBRARY}"])
            self.assertIn("replaces that of their images", run("--lib", library).stderr)

    def test_to_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gpushare.json")
            for _ in range(2):
                result = run("--socket", SOCKET, "-o", path)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(json.load(file), generate())
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)
                self.assertEqual(os.listdir(folder), ["gpushare.json"])
            result = run("-o", os.path.join(folder, "none", "gpushare.json"))
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "can't write .*/none/gpushare.json: No such file")

    def test_what_is_no_file_is_not_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            link, path = os.path.join(folder, "link"), os.path.join(folder, "file")
            os.symlink(path, link)
            self.assertEqual(run("--socket", SOCKET, "-o", link).returncode, 0)
            self.assertTrue(os.path.islink(link))
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file), generate())
            result = run("-o", "/dev/full")
            self.assertEqual(result.returncode, 1)
            self.assertIn("can't write /dev/full: No space left on device", result.stderr)
            self.assertFalse(os.path.isfile("/dev/full"))

    def test_usage(self):
        for options, says in ((("--socket", "daemon.sock"), "whole path of the socket"), (("--lib", "/no/such"), "can't find")):
            result = run(*options)
            self.assertEqual(result.returncode, 2)
            self.assertIn(says, result.stderr)
        result = subprocess.run([ctl, "cdi", "destroy"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
