#!/usr/bin/env python3
"""A job of which bench/pairs.py runs two at once: a training, or a server of a model.

Alone:   bench/opportune.py --workload mobilenet --batch 64 --seconds 5

  shufflenet, mobilenet, resnet50   trainings of images
  graph                             a training of ResNet-50, each iteration the launch of one graph
  transformer                       a training of a small language model; its batch is 8
  server                            ResNet-50: a request is one image, at random times whatever is served meanwhile
  llm                               a language model of 14 GiB: a request is four tokens, a CUDA graph each; as many as
                                    keep it busy for 40 % of the time

Trainings keep two iterations queued behind the one that runs. With --held its orders are {"do": "run", "start_s": T,
"until_s": T} on the monotonic clock, for a server with "requests_s" (bench/serve.py) instead of the end, {"do":
"check"} and {"do": "time"}; a bare line ends it.
"""
import gc
import random
import time

import gpubench
import serve
import steady
import torchjob
import train
import workloads

LIMIT_GIB = 20  # what one job may have
RATE_PER_S = 40  # of requests
BUSY, TOKENS = 0.4, 4  # of llm
WARMUP = 8
SERVERS = ("server", "llm")
IMAGES = {"shufflenet": "shufflenet_v2_x1_0", "mobilenet": "mobilenet_v2", "resnet50": "resnet50"}
NAMES = (*IMAGES, "graph", "transformer", *SERVERS)


def make(torch, models, name, batch):
    """The workload made ready: its step."""
    given = workloads.Workloads(torch, models)
    if name in IMAGES:
        return given.train_images(given.network(IMAGES[name]), batch)
    return {"graph": lambda: train.Training(torch, batch).captured(), "transformer": given.gpt_train_b8,
            "server": given.resnet50_infer_b1, "llm": lambda: given.llm_tokens(TOKENS)}[name]()


def arrivals(seed, rate_per_s, seconds):
    """When requests come, in seconds: at random, independent of each other."""
    chance, times_s = random.Random(seed), []
    at_s = chance.expovariate(rate_per_s)
    while at_s < seconds:
        times_s.append(round(at_s, 4))
        at_s += chance.expovariate(rate_per_s)
    return times_s


class Player:
    """A workload that is ready, and what it is told to do."""

    def __init__(self, torch, step, ballast):
        self.torch, self.step, self.ballast = torch, step, ballast

    def run(self, order):
        if "requests_s" in order:
            return serve.run(self.step, order)
        time.sleep(max(0, order["start_s"] - time.monotonic()))
        return steady.run(self.torch, self.step, order)

    def time(self, _, count=10):
        """Of a request, by itself."""
        start_s = time.monotonic()
        for _ in range(count):
            int(self.step())
        return {"request_s": (time.monotonic() - start_s) / count}

    def check(self, _):
        return {"memory_right": self.ballast.is_right()}

    def obey(self, order):
        return {"run": self.run, "check": self.check, "time": self.time}[order["do"]](order)


def prepare(torch, models, args):
    """The workload, memory besides it, and some steps of both."""
    torch.manual_seed(1)
    with torch.device("cuda"):
        work = make(torch, models, args.workload, args.batch)
    step, ballast = torchjob.with_ballast(torch, WARMUP, work, args.gib)
    gc.collect()
    gc.disable()
    return Player(torch, step, ballast)


def run_by_hand(player, args):
    start_s = time.monotonic()
    if args.workload in SERVERS:
        rate_per_s = BUSY / player.time(None)["request_s"] if args.workload == "llm" else RATE_PER_S
        player.run({"start_s": start_s, "requests_s": arrivals(1, rate_per_s, args.seconds)})
    else:
        print(f"{len(player.run({'start_s': start_s, 'until_s': start_s + args.seconds})['ends_s'])} iterations")


def parse_arguments():
    parser = torchjob.parser(__doc__, by_hand=True)
    parser.add_argument("--workload", choices=NAMES, default="resnet50", help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--gib", type=float, default=0, help="need this much memory in all (default: what it needs)")
    parser.add_argument("--seconds", type=float, default=5, help="run for this long (default: %(default)g)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch, stages = torchjob.begin("torchvision", held=args.held)
    import models
    stages.reach("imported")
    torchjob.require_gpu(torch)
    gpubench.limit_torch(torch, LIMIT_GIB)
    player = prepare(torch, models, args)
    if args.held:
        told = {"preloaded": gpubench.is_preloaded(), "memory_gib": torch.cuda.memory_reserved() / torchjob.GIB}
        torchjob.run_orders(player, stages, told)
    else:
        run_by_hand(player, args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
