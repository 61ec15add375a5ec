"""Linking mode 7: the driver through Python's ctypes. The same work as workload.c, verified word by word on the
device (after taking back what was added) and by samples on the host."""
import ctypes
import os
import sys

MASK = (1 << 64) - 1


def gs_hash(seed, index):
    x = ((seed + 1) * 0x9E3779B97F4A7C15 + index) & MASK
    x ^= x >> 32
    x = x * 0xD6E8FEB86659FD93 & MASK
    return x ^ x >> 29


cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        print(f"error {name}: {result}")
        sys.exit(1)


def u64(value):
    return ctypes.c_uint64(value & MASK)


class Kernels:
    def __init__(self):
        self.module = ctypes.c_void_p()
        path = os.environ.get("GS_TEST_MODULE")
        image = open(path, "rb").read() if path else b"// gpushare test kernels"
        call("cuModuleLoadData", ctypes.byref(self.module), ctypes.c_char_p(image))

    def launch(self, name, *values):
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())
        parameters = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
        call("cuLaunchKernel", function, 1024, 1, 1, 256, 1, 1, 0, None, parameters, None)


def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    return Kernels()


def allocate(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def main(size, rounds):
    kernels = start()
    words, seed = u64(size // 8), u64(os.getpid())
    memory, counter = allocate(size), allocate(8)
    print("ready", flush=True)
    sys.stdin.readline()
    kernels.launch("gs_fill", memory, words, seed)
    for delta in range(1, rounds + 1):
        kernels.launch("gs_add", memory, words, u64(delta))
        call("cuCtxSynchronize")
    added = rounds * (rounds + 1) // 2
    host = (ctypes.c_uint64 * words.value)()
    call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(size))
    wrong = sum(host[i] != (gs_hash(seed.value, i) + added) & MASK for i in range(0, words.value, 61))
    kernels.launch("gs_add", memory, words, u64(-added))
    call("cuMemsetD8_v2", counter, 0, ctypes.c_size_t(8))
    kernels.launch("gs_check", memory, words, seed, counter)
    mismatches = ctypes.c_uint64(1)
    call("cuMemcpyDtoH_v2", ctypes.byref(mismatches), counter, ctypes.c_size_t(8))
    if wrong or mismatches.value:
        print(f"error: {wrong} samples, {mismatches.value} words are wrong")
        return 1
    call("cuMemFree_v2", memory)
    call("cuMemFree_v2", counter)
    print("ok", flush=True)
    return 0


sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
