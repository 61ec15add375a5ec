"""What the documentation says is there: messages that it quotes, commands, options, variables, files, links.
usage: test_docs.py GPUSHARECTL DAEMON SOURCES CTEST BUILD

A message is what stands in the first column of a table headed "message"; ... is what varies in it, or an example is there."""
import glob
import os
import re
import subprocess
import sys
import unittest

ctl, daemon, sources, ctest, build = sys.argv[1:6]
pages = sorted(glob.glob(os.path.join(sources, "docs/*.md"))) + [os.path.join(sources, "README.md")]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sources_of(*endings):
    for part in ("src", "daemon", "include"):
        for where, _, names in os.walk(os.path.join(sources, part)):
            yield from (os.path.join(where, name) for name in names if name.endswith(endings))


def literals():
    """All strings, pieces that the compiler joins as one; a macro among them varies."""
    piece = r'"((?:[^"\\\n]|\\.)*)"'
    for path in sources_of(".c", ".h"):
        for found in re.finditer(rf"{piece}(?:\s*(?:[A-Z_]{{4,}}\s*)?{piece})*", read(path)):
            whole = re.sub(r'"\s*[A-Z_]{4,}\s*"', "...", found.group(0))
            yield re.sub(r'"\s*"', "", whole)[1:-1].replace("\\n", " ").replace('\\"', '"')


def is_printed(message, texts):
    """As it is in the sources, or with values in the place of formats, beside which enough must be left."""
    told = re.compile(".*".join(re.escape(part) for part in message.split("...")))
    for text in texts:
        parts = re.split(r"%[a-z.]+|\.\.\.", text)
        if told.search(text) or len("".join(parts)) >= 15 and re.fullmatch(".+".join(map(re.escape, parts)), message):
            return True
    return False


def quotes():
    """(page, message) of each."""
    for path in pages:
        for table in re.findall(r"(?m)^\| message \|.*\n\|[-|]+\n((?:\|.*\n)+)", read(path) + "\n"):
            for row in table.splitlines():
                yield os.path.basename(path), re.match(r"\| `(.+?)` \|", row).group(1)


def slugs(path):
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in re.findall(r"(?m)^#+ (.*)$", read(path))}


class Documentation(unittest.TestCase):
    def test_locks_are_in_the_order_of_their_ranks(self):
        table = re.search(r"(?m)^\| lock \|.*\n\|[-|]+\n((?:\|.*\n)+)", read(os.path.join(sources, "docs/ARCHITECTURE.md")))
        ranks = re.search(r"enum lock_rank \{(.*?)\}", read(os.path.join(sources, "src/common/lock.h")), re.DOTALL).group(1)
        self.assertEqual(re.findall(r"(?m)^\| (\w+) \|", table.group(1)) + ["RANKS"], re.findall(r"LOCK_(\w+)", ranks))

    def test_messages_are_printed(self):
        printed, quoted = set(literals()), list(quotes())
        self.assertGreater(len(quoted), 40)
        for page, message in quoted:
            self.assertTrue(is_printed(message, printed), f"{page}: {message}")

    def test_tests_are_there(self):
        """All that the page names as a test, or the beginning of some."""
        known = re.findall(r"(?m)^ +Test +#\d+: (\S+)",
                           subprocess.run([ctest, "-N"], cwd=build, capture_output=True, text=True, check=True).stdout)
        table = re.search(r"(?m)^\| what \| tests .*\n\|[-|]+\n((?:\|.*\n?)+)", read(os.path.join(sources, "docs/FAQ.md"))).group(1)
        rows = table.splitlines()
        self.assertEqual(len(rows), 12)
        for row in rows:
            names = re.findall(r"`([a-z0-9_]+\.[a-z0-9_.]+)`", row.split("|")[2])
            self.assertTrue(names, row)
            for name in names:
                self.assertTrue(any(test == name or test.startswith(name + ".") for test in known), name)

    def test_links_lead_somewhere(self):
        for path in pages:
            for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", read(path)):
                name, _, anchor = target.partition("#")
                there = os.path.join(os.path.dirname(path), name) if name else path
                self.assertTrue(os.path.exists(there), f"{path}: {target}")
                if anchor:
                    self.assertIn(anchor, slugs(there), f"{path}: {target}")

    def test_pages_are_linked_from_the_readme(self):
        told = read(os.path.join(sources, "README.md"))
        for path in pages[:-1]:
            self.assertIn(f"(docs/{os.path.basename(path)})", told)

    def test_variables_are_read(self):
        known = set()
        for path in sources_of(".c", ".h"):
            known |= set(re.findall(r"\bGPUSHARE_[A-Z_]+", read(path)))
        for path in pages:
            for name in set(re.findall(r"\bGPUSHARE_[A-Z_]+", read(path))):
                if not name.startswith("GPUSHARE_SIM_") and name not in ("GPUSHARE_TESTS",):
                    self.assertIn(name, known, path)

    def test_commands_and_options_are_there(self):
        helped = subprocess.run([ctl, "--help"], capture_output=True, text=True, check=True).stdout
        commands = {name for line in re.findall(r"(?m)^  ([a-z][^\n]*?)(?:  |$)", helped.split("\n\n")[1])
                    for name in re.findall(r"(?:^|\| )([a-z-]+)", line)}
        options = set(re.findall(r"--[a-z][a-z-]+", helped))
        for path in pages:
            for words in re.findall(r"(?:`|^    |&& )gpusharectl ([^`\n|#]+)", read(path), re.MULTILINE):
                if not words.startswith("--") and words[0].islower():
                    self.assertIn(words.split()[0].rstrip(","), commands, f"{path}: gpusharectl {words}")
                for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", words.split(" -- ")[0]):
                    self.assertIn(option, options, f"{path}: gpusharectl {words}")

    def test_commands_that_speak_json_are_named(self):
        """Those with a schema: by the entry of the option, by its manual page and for users."""
        titles = [re.search(r'"title": "gpusharectl ([a-z]+).*--json', read(path))
                  for path in glob.glob(os.path.join(sources, "docs/schema/*.json"))]
        commands = {title.group(1) for title in titles if title} | {"top"}
        self.assertGreater(len(commands), 8)
        helped = subprocess.run([ctl, "--help"], capture_output=True, text=True, check=True).stdout
        manual, users = (read(os.path.join(sources, page)) for page in ("docs/man/gpusharectl.1", "docs/USERS.md"))
        texts = {"--help": re.search(r"\n  --json +(.*?)as\s+JSON", helped, re.DOTALL),
                 "the manual page": re.search(r"\.It Fl -json\nShow (.*?)\nas JSON", manual, re.DOTALL),
                 "USERS.md": re.search(r"settings\. (`status`.*?) speak JSON", users, re.DOTALL)}
        for where, text in texts.items():
            self.assertEqual(commands, set(re.findall(r"[a-z]+", text.group(1))) & commands, where)

    def test_settings_are_there(self):
        helped = subprocess.run([daemon, "--help"], capture_output=True, text=True, check=True).stdout
        known = {name.replace("-", "_") for name in re.findall(r"(?m)^  --([a-z-]+)", helped)}
        for path in pages:
            for name in re.findall(r"settings? `([a-z_]+)[ `]", read(path)):
                self.assertIn(name, known, path)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[6:])
