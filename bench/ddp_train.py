#!/usr/bin/env python3
"""One rank of a ResNet-50 training by DistributedDataParallel over NCCL: what ddp.py runs.

Alone:   python3 -m torch.distributed.run --nproc-per-node 2 bench/ddp_train.py --seconds 10
Prints   @rank {...} of each rank, with a hash of its weights and of its own images' statistics

Each rank has a GPU, images of its own, and memory of --gib in all, checked at the end. The number of iterations is
given, or as many as take --seconds by the first rank's measure. The same seed and number give the same bits.
"""
import argparse
import ctypes
import json
import os
import signal
import sys
import time

import gpubench
import torchjob
import train

PR_SET_PDEATHSIG = 1
WARMUP, MEASURED = 5, 15
BATCH, SEED = 32, 1  # of each rank


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--iterations", type=int)
    length.add_argument("--seconds", type=float, default=10, help="about (default: %(default)g)")
    parser.add_argument("--gib", type=float, default=7, help="memory of each rank in all (default: %(default)g)")
    return parser.parse_args()


def end_with_parent():
    """torchrun gives each rank a session of its own, so that killing torchrun would leave them."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def count_for(torch, args, step):
    """How many iterations, the same in all ranks."""
    start_s = time.monotonic()
    for _ in range(MEASURED):
        step()
    torch.cuda.synchronize()
    count = torch.tensor([max(1, round(args.seconds * MEASURED / (time.monotonic() - start_s)))], device="cuda")
    torch.distributed.broadcast(count, 0)
    return int(count)


def run(torch, args, rank):
    training = train.Training(torch, BATCH, SEED)
    torch.manual_seed(SEED + 1000 * (rank + 1))
    training.images = torch.randn(BATCH, 3, 224, 224).cuda()
    training.model = torch.nn.parallel.DistributedDataParallel(training.module, device_ids=[rank])
    for _ in range(WARMUP):
        training.step()
    torch.cuda.synchronize()
    ballast = torchjob.Ballast(torch, args.gib)

    def step():
        training.step()
        ballast.touch()
        float(training.loss)  # never far ahead of the GPU

    # What is done to choose the number of iterations must not count.
    start = {name: value.clone() for name, value in training.module.state_dict().items()}
    count = args.iterations or count_for(torch, args, step)
    training.module.load_state_dict(start)
    training.optimizer.state.clear()
    start_s = time.monotonic()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return {"rank": rank, "pid": os.getpid(), "iterations": count, "start_s": start_s, "end_s": time.monotonic(),
            "loss": float(training.loss), "hash": training.weights_hash(), "memory_right": ballast.is_right(),
            "preloaded": gpubench.is_preloaded(), "memory_gib": torch.cuda.memory_reserved() / torchjob.GIB}


def main():
    args = parse_arguments()
    end_with_parent()
    train.set_environment()
    import torch
    import torch.distributed
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    gpubench.limit_torch(torch, args.gib + 4)
    train.set_deterministic(torch)
    torch.distributed.init_process_group("nccl")
    result = run(torch, args, rank)
    torch.distributed.destroy_process_group()
    sys.stdout.write(f"@rank {json.dumps(result)}\n")  # at once, as another rank writes to the same pipe
    sys.stdout.flush()
    return 0 if result["memory_right"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
