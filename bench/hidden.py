#!/usr/bin/env python3
"""Moves behind turns: four jobs of 7 GiB in a capacity of 16 GiB, quantum 1 s, beside the same jobs one after another.

Two of the jobs fit at once. While one runs, the one before it can leave and the next one can come, so that a hand-over
has nothing left to move. Every second 7 GiB go each way, and the throughput of all together is to stay what it is when
the jobs follow each other on an empty card.

The jobs are bench/bursts.py without CPU bursts; alone, stock, once before and once after. Prints what was moved
behind turns (hidden) and within hand-overs (paid), as the daemon tells it. Every byte is compared with the stock run's.
"""
import sharing

TARGET = 0.97
GIB, CAPACITY, TQ_S = 7, "16GiB", 1


def parse_arguments():
    parser = sharing.parser(__doc__)
    sharing.option(parser, "--jobs", 4)
    sharing.option(parser, "--job-seconds", 15.0, "of each job alone")
    args = parser.parse_args()
    if args.quick:
        args.job_seconds = min(args.job_seconds, 4)
    return args


def run(bench):
    args, figures = bench.args, bench.figures
    alone, work = sharing.run_alone(
        bench, GIB,
        lambda pass_s: {"rounds": 1, "passes": max(1, round(args.job_seconds / pass_s)), "cpu_s": 0}, 300)
    figures.add("hidden_alone", alone.wall_s, "s")
    with bench.daemon("on", TQ_S, CAPACITY) as daemon:
        together = sharing.run_copies(bench, args.jobs, GIB, work, 60 + 5 * args.jobs * alone.wall_s, daemon, args.memory)
    figures.add("hidden_together", together.wall_s, "s")
    sharing.check_same(bench, "hidden", together.hashes, alone.hashes[0])
    sharing.add_moves(figures, "hidden", together)
    alone_s = [alone.wall_s]
    with sharing.noted(bench, "alone again"):
        again, _ = sharing.run_alone(bench, GIB, lambda _: work, 300)
        alone_s.append(again.wall_s)
        figures.add("hidden_alone_again", again.wall_s, "s")
    ratio = args.jobs * (sum(alone_s) / len(alone_s)) / together.wall_s
    figures.add("hidden_over_serial", round(ratio, 4))
    figures.judge("hidden_over_serial", at_least=TARGET, judged=not args.quick)


if __name__ == "__main__":
    sharing.main("hidden", parse_arguments, run)
