"""scripts/hook-coverage knows every function of cuda.h, and notices those that hooks.def doesn't know.
usage: test_hook_coverage.py SCRIPT CUDA-INCLUDE-FOLDER C-COMPILER"""
import os
import subprocess
import sys
import tempfile

script, include, compiler = sys.argv[1:]
failures = 0


def expect(what, code, text, *arguments):
    global failures
    result = subprocess.run([script, *arguments], capture_output=True, text=True, check=False)
    if result.returncode != code or text not in result.stdout:
        failures += 1
        unknown = [line for line in result.stdout.splitlines() if "UNKNOWN" in line]
        print(f"{what}: exit {result.returncode}, not {code}, or no '{text}'\n{result.stderr}", *unknown, sep="\n")


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


header = os.path.join(include, "cuda.h")
expect("cuda.h", 0, " 0 unknown", header)
with tempfile.TemporaryDirectory() as folder:
    for name, parameters in (("cuMemcpyNovelAsync", "CUdeviceptr a, CUstream s"), ("cuNovel", "int a, CUstream s"),
                             ("cuNovel", "CUdeviceptr *a"), ("cuNovelThing_ptsz", "int a"), ("cuNovelMemAlloc", "void")):
        fake = write(folder, "fake.h", f'#include "{header}"\nCUresult CUDAAPI {name}({parameters});\n')
        expect(f"{name}({parameters})", 1, name, fake)
    fake = write(folder, "fake.h", f'#include "{header}"\nCUresult CUDAAPI cuNovelQuestion(int a);\n')
    expect("a function that does not matter", 0, " 0 unknown", fake)
    source = write(folder, "fake.c", "int cuLaunchKernel(void) { return 0; }\nint cuNovelExport(void) { return 0; }\n")
    library = os.path.join(folder, "libcuda.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    expect("an export that nobody knows", 1, "cuNovelExport", library, header)
sys.exit(1 if failures else 0)
