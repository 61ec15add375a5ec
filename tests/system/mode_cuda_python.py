"""Linking mode 8 with the real cuda-python (package cuda-bindings): the same work as mode_ctypes.py. Exits with 77
when the package isn't there."""
import os
import sys

try:
    from cuda.bindings import driver as cuda
except ImportError:
    print("no cuda-bindings")
    sys.exit(77)

import ctypes


def call(name, *arguments):
    result, *values = getattr(cuda, name)(*arguments)
    if result != cuda.CUresult.CUDA_SUCCESS:
        print(f"error {name}: {result}")
        sys.exit(1)
    return values[0] if len(values) == 1 else values


def launch(module, name, *values):
    function = call("cuModuleGetFunction", module, name.encode())
    parameters = (tuple(values), tuple(ctypes.c_uint64 for _ in values))
    call("cuLaunchKernel", function, 1024, 1, 1, 256, 1, 1, 0, cuda.CUstream(0), parameters, 0)


def main(size, rounds):
    call("cuInit", 0)
    context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0))
    call("cuCtxSetCurrent", context)
    path = os.environ.get("GS_TEST_MODULE")
    module = call("cuModuleLoadData", open(path, "rb").read() if path else b"// gpushare test kernels")
    words, seed = size // 8, os.getpid()
    memory, counter = int(call("cuMemAlloc", size)), int(call("cuMemAlloc", 8))
    print("ready", flush=True)
    sys.stdin.readline()
    launch(module, "gs_fill", memory, words, seed)
    for _ in range(rounds):
        launch(module, "gs_add", memory, words, 1)
        call("cuCtxSynchronize")
    launch(module, "gs_add", memory, words, (1 << 64) - rounds)
    call("cuMemsetD8", counter, 0, 8)
    launch(module, "gs_check", memory, words, seed, counter)
    mismatches = ctypes.c_uint64(1)
    call("cuMemcpyDtoH", ctypes.addressof(mismatches), counter, 8)
    if mismatches.value:
        print(f"error: {mismatches.value} words are wrong")
        return 1
    call("cuMemFree", memory)
    print("ok", flush=True)
    return 0


sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
