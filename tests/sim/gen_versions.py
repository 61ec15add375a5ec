#!/usr/bin/env python3
"""Writes versions.def: which exported symbol of the driver a base name means from which CUDA version on.

usage: gen_versions.py CUDA_INCLUDE_DIR > versions.def     (use the newest headers at hand)

cudaTypedefs.h names a type PFN_<base>_v<version>[_ptsz|_ptds] for each; cuda.h has the symbols. The n-th version of a
base name is its n-th symbol: cuCtxCreate, cuCtxCreate_v2, cuCtxCreate_v3 ...
"""
import collections
import re
import subprocess
import sys

include = sys.argv[1]
text = subprocess.run(["cc", "-E", "-P", "-xc", "-D__CUDA_API_VERSION_INTERNAL", "-I" + include, include + "/cuda.h"],
                      capture_output=True, text=True, check=True).stdout
symbols = set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))
typedefs = open(include + "/cudaTypedefs.h").read()


def split(symbol):
    match = re.fullmatch(r"(\w+?)(?:_v(\d+))?(_pt[sd][sz])?", symbol)
    return match.group(1), int(match.group(2) or 1), bool(match.group(3))


by_base = collections.defaultdict(list)
for symbol in symbols:
    base, number, per_thread = split(symbol)
    by_base[base, per_thread].append((number, symbol))
versions = collections.defaultdict(set)
for base, version, per_thread in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)", typedefs):
    versions[base, bool(per_thread)].add(int(version))

print("/* versions.def - VERSION(base name, asked for the per-thread stream?, from CUDA version, symbol);")
print(" * written by gen_versions.py from the CUDA headers. */")
for key in sorted(by_base):
    names = [symbol for _, symbol in sorted(by_base[key])]
    known = sorted(versions.get(key, []))
    if len(known) < len(names):  # an ABI that no type is declared for: as old as the next
        known = [known[0] if known else 0] * (len(names) - len(known)) + known
    if len(known) > len(names):
        sys.stderr.write(f"{key}: {known} for {names}\n")
        known = known[-len(names):]
    for version, name in zip(known, names):
        print(f"VERSION({key[0]}, {int(key[1])}, {version}, {name})")
