#!/usr/bin/env python3
"""What a hand-over copies of memory that has not changed (setting host_copies): two servers, which read their weights and
change little, and two trainings, which change everything, by turns in a capacity for one of them and 1 GiB.

Each request is answered by one pass over all of the weights. Per hand-over: what was copied to the host, and the median
of the answers' times; each begins with its memory away.
"""
import argparse
import contextlib
import statistics
import subprocess
import sys
import time

import gpubench

GIB = 1 << 30
ROUNDS, WARM_ROUNDS = 8, 3
OUT_SHARE = 0.05  # of a server's bytes
TRAINING = 0.98   # of the speed without hashing

JOB = '''
import sys
import torch
weights = [torch.full((256 << 20,), float(i), device="cuda") for i in range(int(sys.argv[1]))]
small = torch.zeros(64 << 20, device="cuda")
trains = sys.argv[2] == "training"
torch.cuda.synchronize()
print("ready", flush=True)
for _ in sys.stdin:
    for i, weight in enumerate(weights):
        if trains:
            weight.add_(1)
        else:
            small[i] += weight[::4096].sum()
    torch.cuda.synchronize()
    print("done", flush=True)
wrong = [i for i, weight in enumerate(weights) if weight.min().item() != weight.max().item()]
print(f"wrong {wrong}" if wrong else "ok", flush=True)
'''


class Job:
    def __init__(self, env, gib, kind):
        self.process = gpubench.start([sys.executable, "-c", JOB, str(gib), kind], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, env=env, text=True)

    def __enter__(self):
        self.expect("ready")
        return self

    def __exit__(self, *_):
        gpubench.kill_group(self.process)

    def expect(self, wanted):
        line = self.process.stdout.readline().strip()
        if line != wanted:
            raise gpubench.BenchError(f"a job says {line!r}, not {wanted!r}")

    def answer_s(self):
        begun = time.monotonic()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.expect("done")
        return time.monotonic() - begun

    def finish(self):
        self.process.stdin.close()
        self.expect("ok")


def copied_out(daemon):
    return daemon.status()["gpus"][0]["handover"]["evicted_bytes"]


def by_turns(build, out, args, kind, copies):
    """Median answer in seconds; what was copied out per hand-over, in GiB."""
    daemon = gpubench.Daemon(build, out, "auto", 0.5, f"{args.gib + 1}G", host_memory=args.host_memory)
    (daemon.folder / "empty.conf").write_text(f"host_copies = {copies}\n")
    with daemon, contextlib.ExitStack() as stack:
        env = gpubench.clean_env()
        env.update(LD_PRELOAD=str(build.library), GPUSHARE_SOCKET=str(daemon.socket), GPUSHARE_MEMORY=args.memory)
        jobs = [stack.enter_context(Job(env, args.gib, kind)) for _ in range(2)]
        for _ in range(WARM_ROUNDS):
            for job in jobs:
                job.answer_s()
        before = copied_out(daemon)
        times = [job.answer_s() for _ in range(ROUNDS) for job in jobs]
        after = copied_out(daemon)
        for job in jobs:
            job.finish()
    return statistics.median(times), (after - before) / (2 * ROUNDS) / GIB


def run(build, out, args, figures):
    for kind in ("server", "training"):
        answers = {}
        for copies in ("off", "auto"):
            name = f"copies_{kind}_{copies}"
            answers[copies], copied = by_turns(build, out, args, kind, copies)
            figures.add(name + "_answer", round(answers[copies], 4), "s")
            figures.add(name + "_copied_out", round(copied, 3), "GiB")
        if kind == "server":
            figures.add("copies_server_out_share", round(copied / args.gib, 4))
            figures.judge("copies_server_out_share", at_most=OUT_SHARE)
        else:
            figures.add("copies_training_over_off", round(answers["off"] / answers["auto"], 4))
            figures.judge("copies_training_over_off", at_least=TRAINING)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpubench.common_arguments(parser, "--seconds")
    parser.add_argument("--gib", type=int, default=8, help="of each job's weights (default: %(default)s)")
    parser.add_argument("--memory", default="swap", choices=("swap", "managed"))
    parser.add_argument("--host-memory", default="110G", help="that the daemon gives out (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="jobs of 2 GiB")
    args = parser.parse_args()
    args.gib = 2 if args.quick else args.gib
    try:
        build, out, _, _, figures = gpubench.prepare(args, "copies")
        gpubench.require_gpu(sys.executable)
        run(build, out, args, figures)
    except gpubench.BenchError as error:
        return f"copies: {error}"
    figures.finish()
    return "copies: " + "; ".join(figures.missed) if figures.missed else 0


if __name__ == "__main__":
    sys.exit(main())
