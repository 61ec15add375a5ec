"""CMakePresets.json: CMake takes each preset, and no script has flags of its own for what a preset says.
usage: test_presets.py CMAKE SOURCES"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

cmake, sources = sys.argv[1:3]
PRESETS = {"dev": {"CMAKE_C_COMPILER": "gcc", "GPUSHARE_WERROR": "ON"},
           "clang": {"CMAKE_C_COMPILER": "clang", "GPUSHARE_WERROR": "ON"},
           "asan": {"GPUSHARE_SANITIZE": "address,undefined", "GPUSHARE_WERROR": "OFF"},
           "tsan": {"GPUSHARE_SANITIZE": "thread", "GPUSHARE_WERROR": "OFF"},
           "release": {"GPUSHARE_TESTS": "OFF"}}


class Presets(unittest.TestCase):
    def test_each_says_what_it_is_for(self):
        listed = subprocess.run([cmake, "--list-presets"], cwd=sources, check=True, capture_output=True, text=True).stdout
        self.assertEqual(set(re.findall(r'(?m)^  "(\w+)"', listed)), set(PRESETS))
        for name, wanted in PRESETS.items():
            with tempfile.TemporaryDirectory() as folder:
                said = subprocess.run([cmake, "-S", sources, "-B", folder, "--preset", name, "-N"], check=True,
                                      capture_output=True, text=True).stdout
            told = dict(re.findall(r'(?m)^  (\w+)="(.*)"$', said))
            self.assertEqual(wanted.items() - told.items(), set(), name)

    def test_all_checks_use_them(self):
        with open(os.path.join(sources, "scripts/check"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(set(re.findall(r"(?m)^[^#\n]*\bbuild \w+ (\w+)(?: |$)", text)), {"dev", "clang", "asan", "tsan"})
        self.assertIn('--preset "$2"', text)
        self.assertNotIn("GPUSHARE_SANITIZE", text)


unittest.main(argv=sys.argv[:1])
