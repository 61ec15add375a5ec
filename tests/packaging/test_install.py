"""What `cmake --install` installs is of one piece: units start what is there, pkg-config finds the header, and `uninstall`
takes all away. usage: test_install.py CMAKE BUILD CC PREFIX"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

cmake, build, compiler, prefix = sys.argv[1:5]
PROGRAM = """#include <gpushare/gpushare.h>
int main(void) { return gpushare_set_weight ? gpushare_set_weight(200) : 0; }
"""


def all_files(folder):
    return {os.path.join(where, name) for where, _, names in os.walk(folder) for name in names}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.root = os.path.join(cls.folder, "root")
        cls.environment = {**os.environ, "DESTDIR": cls.root}
        # Folders for manifests: the test's, and those of what the build folder's user has installed.
        cls.build, kept = os.path.join(cls.folder, "build"), os.path.join(cls.folder, "kept")
        for folder in (cls.build, kept):
            os.mkdir(folder)
        cls.move_manifests(build, kept)
        cls.addClassCleanup(cls.move_manifests, kept, build)
        cls.install()

    @staticmethod
    def move_manifests(here, there):
        for manifest in glob.glob(f"{here}/install_manifest*.txt"):
            shutil.move(manifest, there)

    @classmethod
    def install(cls):
        subprocess.run([cmake, "--install", build], env=cls.environment, check=True, stdout=subprocess.DEVNULL)
        cls.move_manifests(build, cls.build)

    def uninstall(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../cmake/uninstall.cmake")
        return subprocess.run([cmake, "-D", f"BUILD={self.build}", "-P", script], env=self.environment, check=False,
                              capture_output=True, text=True)

    def test_units_start_what_is_installed(self):
        started = set()
        for unit in glob.glob(f"{self.root}{prefix}/lib/systemd/system/gpushare-*.service"):
            with open(unit, encoding="utf-8") as file:
                started.update(re.findall(r"(?m)^ExecStart=(\S*gpushare\S*)", file.read()))
        own = {path for path in started if "/systemd/" not in path}
        self.assertTrue(own)
        for path in own:
            self.assertTrue(path.startswith(prefix + "/"), path)
            self.assertTrue(os.access(self.root + path, os.X_OK), path)

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_a_program_finds_the_header(self):
        (found,) = glob.glob(f"{self.root}/**/gpushare.pc", recursive=True)
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(found), "PKG_CONFIG_SYSROOT_DIR": self.root}

        def ask(*options):
            return subprocess.run(["pkg-config", *options, "gpushare"], env=environment, check=True, capture_output=True,
                                  text=True).stdout.split()

        self.assertEqual(ask("--libs"), [])
        (library,) = ask("--variable=library")
        self.assertTrue(os.path.exists(library if library.startswith(self.root) else self.root + library))
        source = os.path.join(self.folder, "program.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        program = os.path.join(self.folder, "program")
        flags = ask("--cflags")
        if prefix == "/usr":  # pkg-config leaves the compiler's own folder out
            flags.append(f"-I{self.root}/usr/include")
        subprocess.run([compiler, "-Wall", "-Werror", *flags, "-fPIE", "-pie", source, "-o", program], check=True)
        self.assertEqual(subprocess.run([program], check=False).returncode, 0)

    def test_what_is_installed_goes_again(self):
        foreign = self.root + prefix + "/lib/gpushare/of-another"
        os.makedirs(os.path.dirname(foreign), exist_ok=True)
        with open(foreign, "w", encoding="utf-8"):
            pass
        result = self.uninstall()
        self.assertEqual(result.returncode, 0, result.stderr)
        configuration = {path for path in all_files(self.root) if path.endswith("/etc/gpushare/gpushare.conf")}
        self.assertEqual(len(configuration), 1)
        self.assertEqual(all_files(self.root), {foreign} | configuration)
        self.assertEqual(glob.glob(f"{self.root}{prefix}/share/**/gpushare", recursive=True), [])
        result = self.uninstall()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no install_manifest.txt", " ".join(result.stderr.split()))
        self.install()  # for the other tests


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
