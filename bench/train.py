#!/usr/bin/env python3
"""ResNet-50 training on synthetic data, as a stock script would do it: the job that the GPU benchmarks run.

Alone:   bench/train.py --batch 64 --seconds 5
Prints   train_b64_rate 31.1 it/s     and the loss, a hash of the weights, memory
With --deterministic two runs of the same seed and number of iterations give the same hash, so that a run under
libunified can be compared bit for bit. --memory-gib makes the job need that much memory in all: a buffer fills it
up, every iteration changes all of the buffer, and all of it is checked at the end.
"""
import hashlib
import os
import time

import gpubench
import torchjob

ALLOCATORS = {"native": None, "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


def parse_arguments():
    parser = torchjob.parser(__doc__)
    parser.add_argument("--batch", default="64", help="batch sizes, one after the other: 64,4")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--iterations", type=int, help="measure so many iterations")
    length.add_argument("--seconds", type=float, help="measure for this long (default: 5)")
    parser.add_argument("--warmup", type=int, default=10, help="iterations before (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-gib", type=float, default=0, help="need this much memory in all")
    parser.add_argument("--limit-gib", type=float, default=20, help="never allocate more (default: %(default)g)")
    parser.add_argument("--graph", action="store_true", help="one CUDA graph per iteration")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--allocator", choices=ALLOCATORS, default="native")
    parser.add_argument("--deterministic", action="store_true", help="same seed, same bits")
    return parser.parse_args()


def set_environment(args):
    """Before torch is imported."""
    if ALLOCATORS[args.allocator]:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[args.allocator]
    if args.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def set_torch(args):
    import torch
    gpubench.limit_torch(torch, args.limit_gib)
    if args.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


class Training:
    """One model with its optimizer and its batch."""

    def __init__(self, args, batch):
        import torch
        import torchvision
        torch.manual_seed(args.seed)
        self.torch = torch
        self.module = torchvision.models.resnet50().cuda()
        self.model = torch.compile(self.module) if args.compile else self.module
        self.loss_of = torch.nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(batch, 3, 224, 224).cuda()
        self.labels = torch.randint(1000, (batch,)).cuda()
        self.loss = None
        self.graph = None

    def eager_step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = self.loss_of(self.model(self.images), self.labels)
        self.loss.backward()
        self.optimizer.step()

    def capture(self):
        """Record one iteration; its warm-up must not run on the legacy stream."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.eager_step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.eager_step()

    def step(self):
        if self.graph:
            self.graph.replay()
        else:
            self.eager_step()

    def weights_hash(self):
        digest = hashlib.sha256()
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def run_for(args, step, synchronize):
    """Iterations, start and end on the clock that all processes share."""
    start = time.monotonic()
    count = 0
    if args.iterations:
        for count in range(1, args.iterations + 1):
            step()
    else:
        while time.monotonic() - start < (args.seconds or 5):
            step()
            count += 1
    synchronize()
    return count, start, time.monotonic()


def train(args, batch, stages):
    import torch
    training = Training(args, batch)
    if args.graph:
        training.capture()
    step, ballast = torchjob.with_ballast(torch, args.warmup, training.step, args.memory_gib)
    stages.reach("ready")
    count, start, end = run_for(args, step, torch.cuda.synchronize)
    return {"batch": batch, "iterations": count, "start_s": start, "end_s": end, "rate": count / (end - start),
            "loss": float(training.loss), "hash": training.weights_hash(), "ballast_right": ballast.is_right(),
            "reserved_gib": torch.cuda.memory_reserved() / torchjob.GIB, "preloaded": gpubench.is_preloaded()}


def print_figures(figures, result):
    prefix = f"train_b{result['batch']}"
    figures.add(prefix + "_rate", result["rate"], "it/s")
    figures.add(prefix + "_iterations", result["iterations"])
    figures.add(prefix + "_loss", repr(result["loss"]))
    figures.add(prefix + "_hash", result["hash"])
    figures.add(prefix + "_memory", result["reserved_gib"], "GiB")
    figures.add(prefix + "_ballast_right", int(result["ballast_right"]))


def main():
    args = parse_arguments()
    set_environment(args)
    torch, stages = torchjob.begin(args, "torchvision")
    figures = gpubench.Figures(args.json)
    stages.reach("imported")
    torchjob.require_gpu(torch)
    set_torch(args)
    right = True
    for batch in (int(text) for text in args.batch.split(",")):
        result = train(args, batch, stages)
        right = right and result["ballast_right"]
        stages.reach("result", result)
        if not args.held:
            print_figures(figures, result)
        torch.cuda.empty_cache()
    if not args.held:
        figures.finish()
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
