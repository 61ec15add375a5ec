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


def parse_arguments():
    parser = torchjob.parser(__doc__, by_hand=True)
    parser.add_argument("--batch", default="64", help="batch sizes, one after the other: 64,4")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--iterations", type=int, help="measure so many iterations")
    length.add_argument("--seconds", type=float, help="measure for this long (default: 5)")
    parser.add_argument("--warmup", type=int, default=10, help="iterations before (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-gib", type=float, default=0, help="need this much memory in all")
    parser.add_argument("--limit-gib", type=float, default=20, help="never allocate more (default: %(default)g)")
    parser.add_argument("--deterministic", action="store_true", help="same seed, same bits")
    return parser.parse_args()


def set_environment():
    """Of one whose results are to be the same each time, before torch is imported."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def set_deterministic(torch):
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class Training:
    """One model with its optimizer and its batch."""

    def __init__(self, torch, batch, seed=1):
        import torchvision
        torch.manual_seed(seed)
        self.torch = torch
        self.module = self.model = torchvision.models.resnet50().cuda()
        self.loss_of = torch.nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(batch, 3, 224, 224).cuda()
        self.labels = torch.randint(1000, (batch,)).cuda()
        self.loss = self.graph = None

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = self.loss_of(self.model(self.images), self.labels)
        self.loss.backward()
        self.optimizer.step()

    def captured(self):
        """A step that is the launch of one graph; it keeps all that this uses."""
        self.graph = torchjob.capture(self.torch, self.step, lambda: self.optimizer.zero_grad(set_to_none=True))
        return lambda: self.graph.replay()

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


def train(torch, args, batch, stages):
    training = Training(torch, batch, args.seed)
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
    if args.deterministic:
        set_environment()
    torch, stages = torchjob.begin("torchvision", held=args.held)
    figures = gpubench.Figures(args.json)
    stages.reach("imported")
    torchjob.require_gpu(torch)
    gpubench.limit_torch(torch, args.limit_gib)
    if args.deterministic:
        set_deterministic(torch)
    right = True
    for batch in (int(text) for text in args.batch.split(",")):
        result = train(torch, args, batch, stages)
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
