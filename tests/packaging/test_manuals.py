"""The manual pages are well-formed, and tell of every command, option, key, variable and exit code that there is, and of
no other. usage: test_manuals.py GPUSHARECTL DAEMON SOURCES

GS_PLUGIN, GS_DRA_DRIVER: gpushare-device-plugin, gpushare-dra-driver; where one is not built, its page is only held to its
form."""
import os
import re
import shutil
import subprocess
import sys
import unittest

ctl, daemon, sources = sys.argv[1:4]
plugin, dra_driver = os.environ.get("GS_PLUGIN"), os.environ.get("GS_DRA_DRIVER")
folder = os.path.join(sources, "docs/man")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def page(name):
    return read(os.path.join(folder, name))


def items(name, macro):
    """The words that an entry of a list begins with: .It MACRO WORD"""
    return set(re.findall(rf"(?m)^\.It {macro} ([^\s]+)", page(name)))


def section(name, heading):
    return re.search(rf"(?ms)^\.Sh {heading}$(.*?)(?=^\.Sh |\Z)", page(name)).group(1)


def help_of(program):
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout


def help_options(program):
    return set(re.findall(r"(?m)(?:^  |, )-(-?[a-z][a-z-]*)", help_of(program)))


def help_commands():
    block = help_of(ctl).split("\n\n")[1]
    return {name for line in re.findall(r"(?m)^  ([a-z][^\n]*?)(?:  |$)", block)
            for name in re.findall(r"(?:^|\| )([a-z-]+)", line)}


def exit_codes(text):
    return set(re.findall(r"\b(\d+)\b", text))


def sources_of(*parts):
    for part in parts:
        for where, _, names in os.walk(os.path.join(sources, part)):
            yield from (os.path.join(where, name) for name in names if name.endswith(".c"))


class Truth(unittest.TestCase):
    def test_commands(self):
        self.assertEqual(items("gpusharectl.1", "Cm"), help_commands())

    def test_options_of_gpusharectl(self):
        self.assertEqual(items("gpusharectl.1", "Fl"), help_options(ctl))

    def test_options_of_the_daemon(self):
        keys = {"-" + key.replace("_", "-") for key in items("gpushare.conf.5", "Ic")}
        keys -= {"-size", "-weight", "-max-jobs", "-max-memory"}  # of sections only
        self.assertEqual(items("gpushare-daemon.8", "Fl") - {"-"} | keys, help_options(daemon))

    def check_options(self, name, program):
        self.assertEqual(items(name, "Fl"), help_options(program))
        for option, default in re.findall(r"(?m)^  --([a-z-]+) .*\(default ([^ ):]+)", help_of(program)):
            text = re.search(rf"(?ms)^\.It Fl -{option} (.*?)(?=^\.It |^\.El)", page(name)).group(1)
            self.assertRegex(text, rf"\(default\s{re.escape(default)}[):]", option)

    @unittest.skipUnless(plugin, "no gpushare-device-plugin")
    def test_options_of_the_plugin(self):
        self.check_options("gpushare-device-plugin.8", plugin)

    @unittest.skipUnless(dra_driver, "no gpushare-dra-driver")
    def test_options_of_the_dra_driver(self):
        self.check_options("gpushare-dra-driver.8", dra_driver)

    def test_keys_have_their_defaults(self):
        """What --help says of a default, the manual says as well."""
        for key, default in re.findall(r"(?m)^  --([a-z-]+) .*\(default ([^ ):]+)", help_of(daemon)):
            text = re.search(rf"(?ms)^\.It Ic {key.replace('-', '_')}$(.*?)(?=^\.It Ic |^\.El)", page("gpushare.conf.5"))
            if key != "config":
                self.assertIn(default, text.group(1) if text else "", key)

    def test_environment(self):
        known = {name for path in sources_of("src", "daemon")
                 for name in re.findall(r'"(GPUSHARE_[A-Z_]+|CUDA_VISIBLE_DEVICES)"', read(path))}
        self.assertGreater(len(known), 10)
        self.assertEqual(items("libunified.7", "Ev") | items("gpusharectl.1", "Ev") | items("gpushare-daemon.8", "Ev"), known)

    def test_functions(self):
        header = read(os.path.join(sources, "include/gpushare/gpushare.h"))
        declared = set(re.findall(r"(?m)^GPUSHARE_API int (\w+)\(", header))
        self.assertGreater(len(declared), 3)
        self.assertEqual(items("libunified.7", "Fn"), declared)

    def test_exit_codes(self):
        for name, program in (("gpusharectl.1", ctl), ("gpushare-daemon.8", daemon), ("gpushare-device-plugin.8", plugin),
                              ("gpushare-dra-driver.8", dra_driver)):
            if not program:
                continue
            told = exit_codes(help_of(program).split("exit codes:")[1])
            self.assertEqual(set(re.findall(r"(?m)^\.It (\d+)", section(name, "EXIT STATUS"))), told, name)

    def test_references_are_there(self):
        pages = {tuple(name.rsplit(".", 1)) for name in os.listdir(folder)}
        for name in os.listdir(folder):
            for reference in re.findall(r"(?m)^\.Xr (\S+) (\d)", page(name)):
                self.assertIn(reference, pages | {("ld.so", "8"), ("ssh", "1")}, name)


class Form(unittest.TestCase):
    def check(self, *command):
        if not shutil.which(command[0]):
            self.skipTest("no " + command[0])
        for name in sorted(os.listdir(folder)):
            result = subprocess.run([*command, os.path.join(folder, name)], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, check=False)
            said = [line for line in result.stdout.splitlines() if "mandoc.db" not in line]
            self.assertEqual((result.returncode, said), (0, []))

    def test_mandoc(self):
        self.check("mandoc", "-T", "lint", "-W", "warning")

    def test_groff(self):
        self.check("groff", "-ww", "-z", "-mdoc", "-Tutf8")


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[4:], exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
