"""What the jobs that use PyTorch have in common: the options of all of them, how they begin, take orders, and memory
besides their work."""
import argparse
import importlib
import pathlib
import sys

import gpubench

GIB = 1 << 30


def parser(description):
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def begin(*modules):
    """PyTorch and the stages. Modules: imported now, so that the first stage has all of it behind it."""
    import torch
    for module in modules:
        importlib.import_module(module)
    return torch, gpubench.Stages()


def require_gpu(torch):
    if not torch.cuda.is_available():
        raise SystemExit(f"{pathlib.Path(sys.argv[0]).name}: PyTorch finds no GPU")


def run_orders(player, stages, answer):
    while order := stages.reach("ready", answer):
        answer = player.obey(order)


def capture(torch, work, prepare=lambda: None):
    """A CUDA graph of that work; its warm-up must not run on the legacy stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    prepare()
    with torch.cuda.graph(graph):
        work()
    return graph


class Ballast:
    """Memory that the job needs and uses: word i holds its place in its chunk plus the iterations so far."""

    CHUNK = 16 << 20  # words

    def __init__(self, torch, gib):
        """As much as there is not yet of so much in all."""
        size_bytes = int(gib * GIB) - torch.cuda.memory_reserved()
        self.steps = 0
        self.words = torch.empty(max(0, size_bytes) // 4, dtype=torch.int32, device="cuda")
        self.pattern = torch.arange(self.CHUNK, dtype=torch.int32, device="cuda") if size_bytes > 0 else None
        for chunk in self.words.split(self.CHUNK) if size_bytes > 0 else ():
            chunk.copy_(self.pattern[:chunk.numel()])

    def touch(self):
        if self.words.numel():
            self.words.add_(1)
            self.steps += 1

    def is_right(self):
        if not self.words.numel():
            return True
        return not any(bool((chunk - self.steps != self.pattern[:chunk.numel()]).any())
                       for chunk in self.words.split(self.CHUNK))


def with_ballast(torch, warmup, work, gib):
    """Some steps of the work, then memory besides it: a step of both, which has been done once, and that memory."""
    for _ in range(warmup):
        work()
    torch.cuda.synchronize()
    ballast = Ballast(torch, gib)

    def step():
        done = work()
        ballast.touch()
        return done

    step()
    torch.cuda.synchronize()
    return step, ballast
