"""scripts/layers finds this tree in order, and notices each kind of disorder in a small one.
usage: test_layers.py SCRIPT BUILD-FOLDER C-COMPILER NM"""
import os
import shutil
import subprocess
import sys
import tempfile

script, build, compiler, nm = sys.argv[1:]
failures = 0
PAGE = """# Architecture

## Rooms

| room | may use | what it is for |
|---|---|---|
| `src/low` | nothing | first |
| `src/high` | all above | second |
| `daemon/apart` | `src/low` | a program |

### Circles that stay

| room | files |
|---|---|
| `src/high` | `known.c`, `old.c` |

## Files
"""


def expect(what, code, text, *arguments):
    global failures
    result = subprocess.run([script, *arguments], capture_output=True, text=True, check=False, env={**os.environ, "NM": nm})
    if result.returncode != code or text not in result.stdout + result.stderr:
        failures += 1
        print(f"{what}: exit {result.returncode}, not {code}, or no '{text}'", result.stdout, result.stderr, sep="\n")


class Tree:
    """A small tree in order, and then with some files more."""

    def __init__(self, **files):
        self.root = tempfile.mkdtemp()
        for room in ("src/low", "src/high", "daemon/apart"):
            self.write(f"{room}/README.md", f"# {room}\n")
        self.write("docs/ARCHITECTURE.md", PAGE)
        self.write("src/low/stone.h", "int stone(void);\n")
        self.write("src/low/stone.c", '#include "low/stone.h"\nint stone(void) { return 1; }\n')
        self.write("src/high/roof.h", '#include "low/stone.h"\nint roof(void);\n')
        self.write("src/high/roof.c", '#include "high/roof.h"\nint roof(void) { return stone(); }\n')
        self.write("daemon/apart/shed.c", '#include "low/stone.h"\nint shed(void) { return stone(); }\n')

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def compile(self):
        """As cmake lays it out."""
        for top in ("src", "daemon"):
            for folder, _, names in os.walk(os.path.join(self.root, top)):
                for name in names:
                    source = os.path.join(folder, name)
                    to = os.path.join(self.root, "build", top, "CMakeFiles", "all.dir", os.path.relpath(folder, os.path.join(self.root, top)))
                    if name.endswith(".c"):
                        os.makedirs(to, exist_ok=True)
                        subprocess.run([compiler, "-I", os.path.join(self.root, "src"), "-c", source, "-o", os.path.join(to, name + ".o")], check=True)


def expect_of(what, code, text, files, calls=False):
    tree = Tree()
    for path, content in files.items():
        tree.write(path, content)
    if calls:
        tree.compile()
    expect(what, code, text, "--root", tree.root)
    shutil.rmtree(tree.root)


expect("this tree", 0, " 0 wrong; calls looked at: of ", "--build", build)
expect("no build folder", 2, "is no build folder", "--build", "/nowhere")
expect_of("a tree in order", 0, " 0 wrong; calls looked at: of 3 files", {}, calls=True)
expect_of("an include that goes down", 1, "src/low/cellar.c:2: src/low may not use src/high",
          {"src/low/cellar.c": '\n#include "high/roof.h"\n'})
expect_of("an include of a neighbour", 1, "daemon/apart/fence.c:1: daemon/apart may not use src/high",
          {"daemon/apart/fence.c": '#include "high/roof.h"\n'})
expect_of("a circle of includes", 1, "src/low/egg.h:1: a circle of includes: src/low/egg.h, src/low/hen.h",
          {"src/low/egg.h": '#include "low/hen.h"\n', "src/low/hen.h": '\n#include "low/egg.h"\n'})
expect_of("a call that goes down, without an include", 1, "src/low/cellar.c:1: src/low may not use src/high: roof is of src/high/roof.c",
          {"src/low/cellar.c": "int roof(void);\nint cellar(void) { return roof(); }\n"}, calls=True)
expect_of("a port", 0, " 0 wrong",
          {"src/low/cellar.c": "extern const int cellar_port;\nint cellar(void) { return cellar_port; }\n",
           "src/high/ports.c": "extern const int cellar_port;\nconst int cellar_port = 1;\n"}, calls=True)
CALLS = ("int other(void);\nint one(void) { return other(); }\n", "int one(void);\nint other(void) { return one(); }\n")
expect_of("a circle of calls", 1, "src/high/new.c:1: a circle of calls: src/high/new.c, src/high/other.c",
          {"src/high/new.c": CALLS[0], "src/high/other.c": CALLS[1]}, calls=True)
expect_of("a circle of calls that stays", 0, " 0 wrong", {"src/high/known.c": CALLS[0], "src/high/old.c": CALLS[1]}, calls=True)
expect_of("a name that is there twice", 1, "daemon/apart/stone.c:1: the name stone is there twice", {"daemon/apart/stone.c": ""})
expect_of("a folder that is no room", 1, "src/attic/box.c:1: its folder is no room", {"src/attic/box.c": "", "src/attic/README.md": ""})
expect_of("a folder without a page", 1, "src/low/deep/README.md:1: is missing", {"src/low/deep/mine.c": ""})
expect_of("a page that is too long", 1, "src/low/README.md:13: ten lines are enough", {"src/low/README.md": "x\n" * 13})
expect_of("a room that may use what stands below", 2, "src/high does not stand above it",
          {"docs/ARCHITECTURE.md": PAGE.replace("| nothing |", "| `src/high` |")})
sys.exit(1 if failures else 0)
