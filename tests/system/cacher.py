"""A program like a training with PyTorch, whose allocator keeps what is freed: `torch` is played, over the driver by
ctypes. Checks when its cache is emptied. cacher.py empties | flat | fails | captures | keeps"""
import ctypes
import select
import sys
import time
import types

cuda = ctypes.CDLL("libcuda.so.1")
LIVE, ACTIVATION, COUNT = 16 << 20, 16 << 20, 4
WINDOW_S = 0.5  # less than from one turn's looks to the next turn's
PACE = 20  # iterations in that time: with fewer, a starved program may be looked at in one of its moments only
mode = sys.argv[1]


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        sys.exit(f"error {name}: {result}")


class Allocator:
    def __init__(self):
        self.used, self.free, self.emptied, self.wrong = 0, [], 0, 0
        self.told, self.iterations = [], []  # what, and since when
        self.capturing = False

    def take(self, size):
        self.used += size
        if self.free:
            return self.free.pop()
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def tell(self, device):
        self.told.append((self.used, time.monotonic()))
        return self.used

    def lately(self, what):
        return [value for value, since in what if since > time.monotonic() - WINDOW_S]

    def is_wrong(self):
        """The right moment is where there is least of what has been told, or where it has not changed."""
        if mode == "captures":  # before and after the capture nothing need have risen
            return self.capturing
        told = self.lately(self.told) or [self.used]
        least, rise = min(told), max(told) - min(told)
        if mode == "flat":
            return rise > least // 8
        steady = len(self.lately(self.iterations)) >= PACE
        return steady and (rise <= least // 8 or self.used > least + rise // 8)

    def empty(self):
        self.wrong += self.is_wrong()
        self.told, self.iterations = [], []
        self.emptied += 1
        while self.free:
            call("cuMemFree_v2", self.free.pop())
        if mode == "fails":
            raise RuntimeError("said by torch")


def play_torch(allocator):
    torch = types.ModuleType("torch")
    torch.cuda = types.ModuleType("torch.cuda")
    torch.cuda.is_initialized = lambda: True
    torch.cuda.memory_allocated = allocator.tell
    torch.cuda.empty_cache = allocator.empty
    sys.modules["torch"] = torch


def main():
    device, context, module, spin = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(b"// gpushare test kernels"))
    call("cuModuleGetFunction", ctypes.byref(spin), module, b"gs_spin")
    allocator = Allocator()
    play_torch(allocator)
    live = allocator.take(LIVE)
    call("cuMemsetD32_v2", live, ctypes.c_uint(7), ctypes.c_size_t(LIVE // 4))
    time_ns = ctypes.c_uint64(1000000)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(time_ns), ctypes.c_void_p))
    events = [ctypes.c_void_p() for _ in range(2 * COUNT)]
    for event in events:
        call("cuEventCreate", ctypes.byref(event), 0)

    def keep_pace():
        """Two iterations ahead of the GPU, which is never idle: else the turn would be given back. And no longer in
        one moment than in another."""
        call("cuEventSynchronize", events[0])
        call("cuEventRecord", events[0], None)
        events.append(events.pop(0))

    def iterate(launches):
        taken = []
        for _ in range(COUNT):
            taken.append(allocator.take(ACTIVATION))
            if launches:
                call("cuMemsetD32_v2", taken[-1], ctypes.c_uint(1), ctypes.c_size_t(ACTIVATION // 4))
                call("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
                keep_pace()
            else:
                time.sleep(0.001)
        for address in taken:
            allocator.free.append(address)
            allocator.used -= ACTIVATION
        allocator.iterations.append((1, time.monotonic()))

    iterate(True)
    if mode == "flat":
        allocator.told = []  # a slow machine has told of the rise by now
    before = allocator.emptied
    print("begun", flush=True)
    if mode == "captures":
        stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(stream), 1)
        call("cuStreamBeginCapture_v2", stream, 2)
        allocator.capturing = True
        end_s = time.monotonic() + 2
        while time.monotonic() < end_s:
            iterate(False)
        allocator.capturing = False
        call("cuStreamEndCapture", stream, ctypes.byref(graph))
    elif mode == "keeps":
        for _ in range(150):
            iterate(True)
        allocator.wrong += allocator.emptied - before
    else:
        said = False
        while not select.select([sys.stdin], [], [], 0)[0]:  # the other one needs somebody to take turns with
            if mode == "flat":
                call("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
                keep_pace()
            else:
                iterate(True)
            if allocator.emptied >= 2 and not said:
                said = True
                print("enough", flush=True)
    word = ctypes.c_uint()
    call("cuMemcpyDtoH_v2", ctypes.byref(word), live, ctypes.c_size_t(4))
    print("ok" if word.value == 7 and not allocator.wrong else f"{allocator.wrong} times at the wrong moment", flush=True)


main()
