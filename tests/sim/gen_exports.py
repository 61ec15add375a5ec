#!/usr/bin/env python3
"""Writes what the simulated driver takes from the CUDA headers and the card presets it is built with.

usage: gen_exports.py CC CUDA_INCLUDE_DIR CARDS_DIR OUTPUT_DIR

  stubs.c      every function of cuda.h, as sim_NAME, as a weak symbol that returns CUDA_ERROR_NOT_SUPPORTED; the ones
               that the simulator implements override it
  rename.h     declares sim_NAME as cuda.h does NAME, and makes the simulator implement that
  doors.S      the exported functions: what lets a call in, or not, see doors.c
  symbols.inc  SYMBOL(name) for every function of cuda.h, sorted
  errors.inc   ERROR(name) for every CUresult
  presets.inc  the files of CARDS_DIR as strings
"""
import pathlib
import re
import subprocess
import sys

compiler, include, cards, output = sys.argv[1:]
output = pathlib.Path(output)
header = subprocess.run([compiler, "-E", "-P", "-xc", "-D__CUDA_API_VERSION_INTERNAL", "-I" + include,
                         include + "/cuda.h"], capture_output=True, text=True, check=True).stdout
functions = sorted(set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", header)))
enum = re.search(r"typedef\s+enum\s+cudaError_enum\s*\{(.*?)\}", header, re.S).group(1)
errors = re.findall(r"\b(CUDA_\w+)\s*=", enum)

with open(output / "stubs.c", "w") as out:
    out.write("/* Written by gen_exports.py. */\n")
    out.write('#define STUB __attribute__((weak))\nenum { NOT_SUPPORTED = 801 };\n')
    for name in functions:
        out.write(f"STUB int sim_{name}(void);\nSTUB int sim_{name}(void) {{ return NOT_SUPPORTED; }}\n")
(output / "rename.h").write_text("".join(f"extern __typeof__({name}) sim_{name};\n" for name in functions) +
                                 "".join(f"#undef {name}\n#define {name} sim_{name}\n" for name in functions))
(output / "doors.S").write_text('#include "door.S"\n' + "".join(
    f"  door {name}, sim_{name}, {index}\n" for index, name in enumerate(functions)) +
    "\n  exports\n" + "".join(f"  .quad {name}\n" for name in functions) +
    '\n  .section .note.GNU-stack, "", %progbits\n')
(output / "symbols.inc").write_text("".join(f"SYMBOL({name})\n" for name in functions))
(output / "errors.inc").write_text("".join(f"ERROR({name})\n" for name in errors))
with open(output / "presets.inc", "w") as out:
    for card in sorted(pathlib.Path(cards).glob("*.card")):
        lines = "".join('"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n" '
                        for line in card.read_text().splitlines())
        out.write(f'{{"{card.stem}", {lines}}},\n')
