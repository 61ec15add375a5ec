"""bash and zsh complete what --help lists. Each shell runs the real functions; what it would offer is printed.
usage: test_completions.py bash|zsh GPUSHARECTL DAEMON SOURCES"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

shell, ctl, daemon, sources = sys.argv[1:5]
folder = os.path.join(sources, "packaging/completions")

BASH = """
source "$FOLDER/gpusharectl.bash"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_gpushare "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Completion's own functions, as far as they are used; each prints what it would offer.
ZSH = """
_describe() { [[ $1 == -o ]] && shift; print -l -- ${${(P)2}%%:*} }
_files() { print -- FILES }
_message() { }
_normal() { print -- COMMAND $CURRENT $words }
compadd() { shift; print -l -- $@ }
words=("$@"); CURRENT=$#
source "$FOLDER/_gpusharectl"
"""

PLAYED = """#!/bin/sh
case $1 in
--help) exec "$REAL" --help ;;
status) printf '{\\n "gpus": [{\\n "uuid": "GPU-1",\\n "jobs": [{\\n  "job": 7,\\n  "awaited_job": 3\\n }, {\\n  "job": 12\\n }]\\n}]}\\n' ;;
esac
"""


def complete(program, *words):
    """What is offered for the last word."""
    command = [shell, "-c", BASH, "-"] if shell == "bash" else [shell, "-f", "-c", ZSH, "-"]
    result = subprocess.run([*command, program, *words], env={**os.environ, "FOLDER": folder, "REAL": ctl, "LC_ALL": "C"},
                            capture_output=True, text=True, check=False)
    assert result.stderr == "", result.stderr
    offered = result.stdout.split("\n")
    return {word for word in offered if word.startswith(words[-1])} - {""}


def help_of(program):
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout


def options_of(program):
    return set(re.findall(r"(?m)(?:^  |, )(--?[a-z][a-z-]*)", help_of(program)))


@unittest.skipIf(not shutil.which(shell), f"no {shell}")
class Completion(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.played = os.path.join(self.folder, "gpusharectl")
        with open(self.played, "w", encoding="utf-8") as file:
            file.write(PLAYED)
        os.chmod(self.played, 0o755)

    def test_every_command(self):
        block = help_of(ctl).split("\n\n")[1]
        names = {name for line in re.findall(r"(?m)^  ([a-z][^\n]*?)(?:  |$)", block)
                 for name in re.findall(r"(?:^|\| )([a-z-]+)", line)}
        self.assertGreater(len(names), 10)
        self.assertEqual(complete(ctl, ""), names)
        self.assertIn("set-soft-limit", complete(ctl, "set-s"))
        self.assertNotIn("status", complete(ctl, "set-s"))

    def test_every_option(self):
        self.assertGreater(len(options_of(ctl)), 10)
        self.assertEqual(complete(ctl, "-"), options_of(ctl))
        self.assertEqual(complete(ctl, "set-tq", "auto", "--"), {o for o in options_of(ctl) if o.startswith("--")})
        self.assertEqual(complete(daemon, "--"), options_of(daemon))

    def test_values_of_a_command(self):
        self.assertEqual(complete(ctl, "set-policy", "f"), {"fair", "fifo"})
        self.assertEqual(complete(ctl, "set-class", "3", ""), {"standard", "production", "opportunistic"})
        self.assertEqual(complete(ctl, "--socket", "/x", "set-tq", ""), {"auto"})
        self.assertEqual(complete(ctl, "status", ""), set())
        self.assertEqual(complete(ctl, "help", "set-e"), {"set-expected", "set-expected-memory"})

    def test_values_are_those_that_are_accepted(self):
        """The words that the completions know beside --help, tried on the program (which then finds no daemon)."""
        for words in (["set-policy"], ["set-class", "1"]):
            for value in complete(ctl, *words, ""):
                result = subprocess.run([ctl, "--socket", "/nonexistent", *words, value], capture_output=True, check=False)
                self.assertEqual(result.returncode, 3, (words, value))
        for how in complete(ctl, "run", "--memory", ""):
            self.assertEqual(subprocess.run([ctl, "run", "--memory", how, "true"], check=False).returncode, 0, how)
        for level in complete(daemon, "--log", ""):
            result = subprocess.run([daemon, "--log", level, "--socket", "/dev/null", "--config", "/dev/null"],
                                    capture_output=True, check=False)
            self.assertEqual(result.returncode, 1, level)

    def test_values_of_an_option(self):
        self.assertEqual(complete(ctl, "--memory", ""), {"managed", "swap", "off"})
        self.assertEqual(complete(daemon, "--mode", ""), {"auto", "on", "off"})
        self.assertEqual(complete(daemon, "--production", "p"), {"privileged"})

    def test_what_the_daemon_knows(self):
        self.assertEqual(complete(self.played, "why", ""), {"7", "12"})
        self.assertEqual(complete(self.played, "set-weight", "1"), {"12"})
        self.assertEqual(complete(self.played, "set-weight", "7", ""), set())
        self.assertEqual(complete(self.played, "pause", ""), {"7", "12"})
        self.assertEqual(complete(self.played, "kill", "7", "1"), {"12"})
        self.assertEqual(complete(self.played, "events", "--job", ""), {"7", "12"})
        self.assertEqual(complete(self.played, "--gpu", ""), {"GPU-1", "all"})

    def test_files(self):
        with open(os.path.join(self.folder, "some.so"), "w", encoding="utf-8"):
            pass
        prefix = os.path.join(self.folder, "so")
        if shell == "bash":
            self.assertEqual(complete(ctl, "run", "--lib", prefix), {prefix + "me.so"})
            self.assertEqual(complete(ctl, "run", "-n", "2", "prog", prefix), {prefix + "me.so"})
        else:
            self.assertEqual(complete(ctl, "run", "--lib", ""), {"FILES"})

    def test_the_program_of_run_is_a_command(self):
        for words in (["run"], ["run", "--limit", "1G"], ["run", "-n", "2", "--"]):
            if shell == "bash":
                self.assertIn("bash", complete(ctl, *words, "bas"))
            else:
                self.assertEqual(complete(ctl, *words, ""), {"COMMAND 1"})
        if shell == "zsh":
            self.assertEqual(complete(ctl, "run", "python", "-n", ""), {"COMMAND 3 python -n"})
        else:
            self.assertEqual(complete(ctl, "run", "python", "--m"), set(), "options behind the program are its own")


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[5:], exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
