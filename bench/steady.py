#!/usr/bin/env python3
"""A training of ResNet-50 (bench/train.py) that tells when each of its iterations was done: what fair.py, pair.py and
short.py run.

As a training that looks at its loss does, it never queues more than a few iterations. Its order tells how
long it trains: {"iterations": N}, {"seconds": S}, {"until_s": T} on the monotonic clock, or {}: until a line comes.
"""
import collections
import sys
import threading
import time

import gpubench
import torchjob
import train

AHEAD = 2  # iterations queued while one runs
WARMUP = 5


def parse_arguments():
    parser = torchjob.parser(__doc__)
    parser.add_argument("--gib", type=float, required=True, help="memory that it needs in all")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def told_to_stop():
    """An event that is set when a line comes."""
    stop = threading.Event()

    def wait_for_line():
        sys.stdin.readline()
        stop.set()
    threading.Thread(target=wait_for_line, daemon=True).start()
    return stop.is_set


def end_of(order, start_s):
    """A function that tells, by the iterations begun, whether that is all."""
    if "iterations" in order:
        return lambda count: count >= order["iterations"]
    if "seconds" in order or "until_s" in order:
        end_s = order.get("until_s", start_s + order.get("seconds", 0))
        return lambda count: time.monotonic() >= end_s
    is_told = told_to_stop()
    return lambda count: is_told()


def run(torch, step, order):
    """When it began, and when each iteration was done: by the GPU's clock, as the program may be kept waiting."""
    queued, ends_s, start_s = collections.deque(), [], time.monotonic()
    is_over = end_of(order, start_s)

    def mark():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    zero = mark()
    zero.synchronize()
    zero_s = time.monotonic()

    def finish_one():
        event = queued.popleft()
        event.synchronize()
        ends_s.append(round(zero_s + zero.elapsed_time(event) / 1e3, 5))

    while not is_over(len(ends_s) + len(queued)):
        step()
        queued.append(mark())
        if len(queued) > AHEAD:
            finish_one()
    while queued:
        finish_one()
    return {"start_s": start_s, "end_s": max([time.monotonic(), *ends_s[-1:]]), "ends_s": ends_s}


def main():
    args = parse_arguments()
    train.set_environment()
    torch, stages = torchjob.begin("torchvision")
    order = stages.reach("imported") or {}
    begun_s = time.monotonic()
    torchjob.require_gpu(torch)
    gpubench.limit_torch(torch, args.gib + 4)
    train.set_deterministic(torch)
    training = train.Training(torch, args.batch, args.seed)
    step, ballast = torchjob.with_ballast(torch, WARMUP, training.step, args.gib)
    stages.reach("done", {"begun_s": begun_s} | run(torch, step, order))
    # Looking at the memory takes the GPU, which others may still need.
    right = ballast.is_right()
    stages.reach("result", {"hash": training.weights_hash(), "memory_right": right, "preloaded": gpubench.is_preloaded(),
                            "memory_gib": torch.cuda.memory_reserved() / torchjob.GIB})
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
