#!/usr/bin/env python3
"""Two trainings of two GPUs each (DistributedDataParallel, NCCL, torchrun) that share both GPUs in turns.

Each rank needs 7 GiB in 12 GiB, so the two jobs don't fit together on either GPU. Ranks wait for each other within an
iteration: were one job to hold the one GPU and the other job the other, nobody would go on. Both must end, with the
weights that the same training has by itself, after 300 hand-overs in all. That none of them hangs is told by a limit:
PATIENCE times what the two take one after the other.

Needs two GPUs.
"""
import contextlib
import socket
import subprocess

import gpubench
import sharing
import watch

PROGRAM = gpubench.HERE / "ddp_train.py"
TARGET, SERIAL_TARGET = 300, 1.10
GPUS, GIB, CAPACITY, PATIENCE = 2, 7, "12GiB", 2.5  # of each job; of each rank; of each GPU
START_S = 150  # imports, NCCL's start, first iterations, a hash
COUNT_GPUS = "import torch; print(torch.cuda.device_count())"


def parse_arguments():
    parser = sharing.parser(__doc__)
    sharing.option(parser, "--tq", 0.5, "quantum in seconds")
    sharing.option(parser, "--job-seconds", 40.0, "of each alone")
    args = parser.parse_args()
    if args.quick:
        args.job_seconds = min(args.job_seconds, 10)
    return args


def require_gpus(bench):
    """Exit status 77 where there are too few."""
    asked = subprocess.run([bench.args.python, "-c", COUNT_GPUS], env=gpubench.clean_env(), capture_output=True,
                           text=True, timeout=bench.budget.clip(90), check=False)
    if asked.returncode != 0:
        raise gpubench.BenchError(f"PyTorch does not tell how many GPUs there are: {asked.stderr.strip()[-300:]}")
    if int(asked.stdout) < GPUS:
        gpubench.note(f"{asked.stdout.strip()} of {GPUS} GPUs on this machine: skipped")
        raise SystemExit(gpubench.SKIPPED)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Group:
    """A job: torchrun and its ranks."""

    def __init__(self, bench, stack, name, length, daemon=None):
        self.bench, self.name, self.variant = bench, name, "daemon" if daemon else "stock"
        command = ["-m", "torch.distributed.run", "--nnodes", 1, "--nproc-per-node", GPUS, "--master-addr", "127.0.0.1",
                   "--master-port", free_port(), PROGRAM, "--gib", GIB, *length]
        self.job = stack.enter_context(bench.job(name, command, self.variant, daemon, bench.args.memory, GIB * GPUS))
        self.ranks = []

    def wait(self, timeout_s):
        for _ in range(GPUS):
            self.ranks.append(self.job.expect("rank", timeout_s))
        self.job.wait_end(60)
        for rank in self.ranks:
            if rank["preloaded"] != (self.variant != "stock"):
                raise self.job.trouble("libunified is not where it should be")
            if not rank["memory_right"]:
                self.bench.wrong.append(f"{self.job.name}: memory does not hold what was written to it")

    def wall_s(self):
        return max(rank["end_s"] for rank in self.ranks) - min(rank["start_s"] for rank in self.ranks)

    def hashes(self):
        """By rank: each has statistics of its own images beside the weights."""
        return [rank["hash"] for rank in sorted(self.ranks, key=lambda rank: rank["rank"])]


def run_alone(bench):
    with contextlib.ExitStack() as stack:
        group = Group(bench, stack, "alone", ["--seconds", f"{bench.args.job_seconds:g}"])
        group.wait(START_S + 2 * bench.args.job_seconds)
        return group


def run_both(bench, daemon, looks, alone):
    """Both of them, seen by the looks."""
    length = ["--iterations", alone.ranks[0]["iterations"]]
    with contextlib.ExitStack() as stack:
        groups = [Group(bench, stack, name, length, daemon) for name in ("a", "b")]
        for group in groups:
            group.wait(2 * START_S + PATIENCE * 2 * alone.wall_s())
    for group in groups:
        for rank in group.ranks:
            looks.of_process(rank["pid"])  # the daemon has known it
    return groups


def add_handovers(bench, status):
    counts = [gpu["handovers"] for gpu in status["gpus"]]
    bench.figures.add("ddp_handovers_by_gpu", " ".join(map(str, counts)))
    bench.figures.add("ddp_handovers", sum(counts))
    bench.figures.judge("ddp_handovers", at_least=TARGET, judged=not bench.args.quick)


def add_drains(bench, status, looks):
    """The longest as far as the looks have seen the jobs: with a job goes what it has told."""
    count = gpubench.counter(status, "handovers")
    if count:
        bench.figures.add("ddp_drain_mean_ms", gpubench.moves(status)["drain_ns"] / count / 1e6, "ms")
    longest_ns = max((job["drain_max_ns"] for _, jobs in looks.samples for job in jobs.values()), default=0)
    bench.figures.add("ddp_drain_longest_ms", longest_ns / 1e6, "ms")


def run(bench):
    args, figures = bench.args, bench.figures
    require_gpus(bench)
    alone = run_alone(bench)
    figures.add("ddp_alone", alone.wall_s(), "s")
    figures.add("ddp_memory", max(rank["memory_gib"] for rank in alone.ranks), "GiB")
    figures.add("ddp_iterations", alone.ranks[0]["iterations"])
    with bench.daemon("auto", args.tq, CAPACITY) as daemon, watch.JobWatch(daemon) as looks:
        try:
            groups = run_both(bench, daemon, looks, alone)
        finally:
            told = daemon.status()
            add_handovers(bench, told)
            add_drains(bench, told, looks)
    start_s = min(rank["start_s"] for group in groups for rank in group.ranks)
    together_s = max(rank["end_s"] for group in groups for rank in group.ranks) - start_s
    figures.add("ddp_together", together_s, "s")
    figures.add("ddp_over_serial", round(together_s / (2 * alone.wall_s()), 4))
    figures.judge("ddp_over_serial", at_most=SERIAL_TARGET, judged=not args.quick)
    sharing.check_same(bench, "ddp", [group.hashes() for group in groups], alone.hashes())


if __name__ == "__main__":
    sharing.main("ddp", parse_arguments, run)
