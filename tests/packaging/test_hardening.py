"""Every program and library that is installed is hardened (cmake/hardening.cmake).
usage: test_hardening.py CMAKE BUILD CONFIGURATION      BUILD: complete; it is installed into a folder of the test"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

cmake, build, configuration = sys.argv[1:4]
EXPECTED = {"libunified.so", "gpushare-daemon", "gpusharectl"}


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def sections_by_file(text):
    """readelf's output for several files -> by file."""
    parts = re.split(r"^File: (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


class Hardening(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([cmake, "--install", build], env={**os.environ, "DESTDIR": cls.folder.name}, check=True,
                       stdout=subprocess.DEVNULL)
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(cls.folder.name) for name in names]
        cls.files = {os.path.basename(path): path for path in paths if not os.path.islink(path) and is_elf(path)}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_each(self, check):
        self.assertLessEqual(EXPECTED, set(self.files))
        for name, path in self.files.items():
            with self.subTest(name):
                check(path)

    def test_programs_and_libraries_are_placed_anywhere(self):
        def check(path):
            self.assertRegex(readelf("-h", path), r"Type: +DYN")
            if "INTERP" in readelf("-l", path):
                self.assertRegex(readelf("-d", path), r"FLAGS_1\).*\bPIE\b")
        self.check_each(check)

    def test_relocations_are_read_only_from_the_start(self):
        def check(path):
            self.assertIn("GNU_RELRO", readelf("-l", path))
            self.assertRegex(readelf("-d", path), r"FLAGS\).*\bBIND_NOW\b|FLAGS_1\).*\bNOW\b")
            self.assertNotIn("TEXTREL", readelf("-d", path))
        self.check_each(check)

    def test_no_stack_is_executable(self):
        def check(path):
            flags = re.search(r"GNU_STACK +(?:0x[0-9a-f]+ +){5}([RWE ]+?) +0x", readelf("-l", path))
            self.assertIsNotNone(flags)
            self.assertEqual(flags.group(1).replace(" ", ""), "RW")
        self.check_each(check)

    def objects(self, target="*"):
        return [path for part in ("src", "daemon")
                for path in glob.glob(f"{build}/{part}/**/{target}.dir/**/*.o", recursive=True)]

    def check_calls(self, name):
        """Our own objects call it: static libraries of the distribution may do so anyway."""
        for file in self.files:
            with self.subTest(file):
                objects = self.objects(file.removeprefix("lib").removesuffix(".so"))
                self.assertRegex(readelf("--syms", *objects), rf"UND {name}\b")

    def test_stacks_are_protected(self):
        self.check_calls("__stack_chk_fail")

    @unittest.skipIf(configuration == "Debug", "without optimization no call is fortified")
    def test_calls_are_fortified(self):
        self.check_calls(r"__(?!stack)\w+_chk")

    def test_jumps_and_returns_are_checked(self):
        """An object without the note takes it from all that it is linked to: so each has it, also what was written in
        assembler. What is installed has the mark for shadow stacks; the other one, where the C library has it."""
        x86 = "X86-64" in readelf("-h", self.files["libunified.so"])
        objects = self.objects()
        self.assertGreater(len(objects), 100)
        texts = sections_by_file(readelf("-n", *objects))
        self.assertEqual(len(texts), len(objects))
        for path, text in texts.items():
            with self.subTest(path):
                self.assertRegex(text, "x86 feature: IBT, SHSTK" if x86 else r"AArch64 feature:.*\bBTI\b")
        if x86:
            self.check_each(lambda path: self.assertRegex(readelf("-n", path), r"x86 feature:.*\bSHSTK\b"))


unittest.main(argv=sys.argv[:1])
