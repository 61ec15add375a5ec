#!/usr/bin/env python3
"""A job of GPU and CPU bursts over a given amount of memory: what the benchmarks of sharing run.

It tells how long it took and a hash of all of its memory, which depends on the work done alone.

The memory is cut into slices of 256 MiB. A step multiplies a slice by a fixed matrix and writes the sine of the product
over it; a pass does so with all slices, and a GPU burst is some passes. The CPU's burst is one thread's computing for a
given time. As a training that looks at its loss does, it never queues more than a few steps.

Copies of the job hold the same contents in slices of other addresses. So what is found in the wrong job or place is
seen, and yet the hash, taken in the order of the contents, is the same for all copies.
"""
import hashlib
import time

import gpubench
import torchjob

GIB = 1 << 30
WIDTH = 8192  # of the matrix, and of a slice: 256 MiB of 32-bit numbers each
ROW_BYTES = WIDTH * 4
BLOCK_ROWS = (2 << 20) // ROW_BYTES
SPARE_BYTES = 96 << 20  # for what PyTorch and cuBLAS take besides
HASHED_BLOCKS = 4  # at once: a sum makes a copy twice as large
AHEAD = 2  # steps between two looks at how far the GPU is
GAIN = 3  # so large that every bit soon has a say in all the others


def parse_arguments():
    parser = torchjob.parser(__doc__)
    parser.add_argument("--gib", type=float, required=True, help="memory that it needs in all")
    parser.add_argument("--copy", type=int, default=0, help="which of the copies this is (default: %(default)s)")
    return parser.parse_args()


class Memory:
    """All that the job has on the card."""

    def __init__(self, torch, gib, copy):
        self.torch = torch
        self.matrix = torch.empty(WIDTH, WIDTH, device="cuda")
        self.product = torch.empty(WIDTH, WIDTH, device="cuda")
        rows = (int(gib * GIB) - SPARE_BYTES) // ROW_BYTES // BLOCK_ROWS * BLOCK_ROWS - 2 * WIDTH
        if rows < WIDTH:
            raise SystemExit("bursts.py: --gib is too little")
        self.slices = [torch.empty(min(WIDTH, rows - first), WIDTH, device="cuda") for first in range(0, rows, WIDTH)]
        self.fill(rows // WIDTH, copy)

    def fill(self, whole, copy):
        """Number k is what the first copy holds in slice k; other copies have them moved on among the whole slices."""
        self.numbers = [(index + copy) % whole if index < whole else index for index in range(len(self.slices))]
        for number, piece in zip(self.numbers, self.slices):
            self.torch.manual_seed(number + 1)
            piece.normal_()
        self.torch.manual_seed(0)
        self.matrix.normal_(0, GAIN / WIDTH ** 0.5)

    def step(self, piece):
        product = self.product[:piece.shape[0]]
        self.torch.mm(piece, self.matrix, out=product)
        self.torch.sin(product, out=piece)

    def run(self, passes):
        """So many passes, all of them finished."""
        last = None
        for index in range(passes * len(self.slices)):
            self.step(self.slices[index % len(self.slices)])
            if index % AHEAD == AHEAD - 1:
                event = self.torch.cuda.Event()
                event.record()
                if last is not None:
                    last.synchronize()
                last = event
        self.torch.cuda.synchronize()

    def time_of_pass(self):
        """The second pass': the first one warms up."""
        self.run(1)
        start = time.monotonic()
        self.run(1)
        return time.monotonic() - start

    def hash(self):
        """Of every block of 2 MiB, in the order of the contents."""
        digest = hashlib.sha256()
        for _, piece in sorted(zip(self.numbers, self.slices), key=lambda pair: pair[0]):
            for blocks in piece.view(self.torch.int32).view(-1, BLOCK_ROWS * WIDTH).split(HASHED_BLOCKS):
                digest.update(repr(blocks.sum(1, dtype=self.torch.int64).tolist()).encode())
        return digest.hexdigest()[:16]


def compute_on_host(seconds):
    """One busy thread for so long. Its result is nobody's, as it depends on the machine's speed."""
    end = time.monotonic() + seconds
    data = bytes(1 << 16)
    while time.monotonic() < end:
        data = hashlib.sha256(data).digest() * (len(data) // 32)


def run_bursts(memory, work):
    """The measured part: work tells rounds, passes of a GPU burst, and seconds of a CPU burst."""
    gpu_s = 0.0
    start = time.monotonic()
    for _ in range(work["rounds"]):
        begun = time.monotonic()
        memory.run(work["passes"])
        gpu_s += time.monotonic() - begun
        compute_on_host(work["cpu_s"])
    return {"start_s": start, "end_s": time.monotonic(), "gpu_s": gpu_s}


def main():
    args = parse_arguments()
    torch, stages = torchjob.begin()
    stages.reach("imported")
    torchjob.require_gpu(torch)
    memory = Memory(torch, args.gib, args.copy)
    torch.cuda.synchronize()
    stages.reach("allocated")
    pass_s = memory.time_of_pass()
    work = stages.reach("ready", {"pass_s": pass_s})
    result = run_bursts(memory, work) | {"memory_gib": torch.cuda.memory_reserved() / GIB}
    stages.reach("done")  # looking at the memory takes the GPU, which others may still need
    result |= {"hash": memory.hash(), "preloaded": gpubench.is_preloaded()}
    stages.reach("result", result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
