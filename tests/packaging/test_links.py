"""Links of the documentation lead somewhere where it is installed, too.
usage: test_links.py CMAKE BUILD      BUILD: of packaging/, whose files are installed into a folder of the test"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

cmake, build = sys.argv[1:3]


class Links(unittest.TestCase):
    def test_installed_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([cmake, "--install", build], env={**os.environ, "DESTDIR": folder}, check=True,
                           stdout=subprocess.DEVNULL)
            pages = glob.glob(f"{folder}/**/doc/gpushare/**/*.md", recursive=True)
            self.assertGreater(len(pages), 10)
            for page in pages:
                with open(page, encoding="utf-8") as file:
                    for target in re.findall(r"\]\((?!https?:|#)([^)\s#]+)", file.read()):
                        there = os.path.join(os.path.dirname(page), target)
                        self.assertTrue(os.path.exists(there), f"{page}: {target}")


unittest.main(argv=sys.argv[:1])
