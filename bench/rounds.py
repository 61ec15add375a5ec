#!/usr/bin/env python3
"""How much a turn moves: three jobs of which two fit at once, in turn, on one card.

Least-recently-used puts out whom the turns reach next, so with it every turn moves one whole job out and one in.
Putting out whom they reach last (who has just run) lets every second turn find its job on the card. The daemon prefers
that where the move would cost less than a twentieth of the quantum, so the quantum must be several seconds.

Prints the bytes moved from the middle of each turn to that of the next, from the daemon's counters, and over an even
number of turns after the first round, while all jobs run, their sum over what least-recently-used would have moved. The
jobs are bench/bursts.py without CPU bursts; every byte is compared with a stock run's.
"""
import gpubench
import sharing
import watch

TARGET = 0.5
SAMPLE_S = 0.1
JOBS, CAPACITY = 3, "16GiB"
GIB = 7.9  # of each: with what the driver rounds up, two fit


def parse_arguments():
    parser = sharing.parser(__doc__)
    sharing.option(parser, "--tq", 5.0, "quantum in seconds")
    sharing.option(parser, "--turns", 5, "of each job, about")
    args = parser.parse_args()
    if args.quick:
        args.turns = min(args.turns, 3)
    return args


def keep_moves(status):
    return gpubench.counter(status, "handovers"), gpubench.counter(status, "moved_bytes")


def moved_in_turns(samples, start_s, end_s):
    """Bytes moved from the middle of one turn to the middle of the next: whichever of the two a hand-over's moves are
    counted in, by then they are all told."""
    looks = {}
    for at_s, (turn, moved) in samples:
        if start_s <= at_s <= end_s:
            looks.setdefault(turn, []).append(moved)
    middles = {turn: seen[len(seen) // 2] for turn, seen in looks.items()}
    turns = sorted(middles)[:-1]  # the last one has no middle yet
    return [middles[turn] - middles[turn - 1] for turn in turns if turn - 1 in middles]


def judge_turns(bench, turns, size_bytes):
    """turns: bytes moved in each."""
    args, figures = bench.args, bench.figures
    figures.add("rounds_turns", " ".join(f"{moved / sharing.GIB:.1f}" for moved in turns) or "none", "GiB")
    seen = turns[JOBS:]  # the first round: whoever was on the card
    seen = seen[:len(seen) // 2 * 2]
    if not seen:
        raise gpubench.BenchError(f"only {len(turns)} whole turns were seen: more --turns")
    figures.add("rounds_turns_counted", len(seen))
    figures.add("rounds_moved_per_turn", sum(seen) / len(seen) / sharing.GIB, "GiB")
    figures.add("rounds_lru_per_turn", 2 * size_bytes / sharing.GIB, "GiB")
    figures.add("rounds_over_lru", round(sum(seen) / (len(seen) * 2 * size_bytes), 4))
    figures.judge("rounds_over_lru", at_most=TARGET, judged=not args.quick)


def run(bench):
    args = bench.args
    seconds = args.tq * args.turns
    alone, work = sharing.run_alone(
        bench, GIB, lambda pass_s: {"rounds": 1, "passes": max(1, round(seconds / pass_s)), "cpu_s": 0}, 300)
    bench.figures.add("rounds_alone", alone.wall_s, "s")
    with bench.daemon("on", args.tq, CAPACITY) as daemon, watch.Watch(daemon, keep_moves, SAMPLE_S) as looks:
        together = sharing.run_copies(bench, JOBS, GIB, work, 60 + 5 * JOBS * alone.wall_s, daemon, args.memory)
    bench.figures.add("rounds_together", together.wall_s, "s")
    sharing.check_same(bench, "rounds", together.hashes, alone.hashes[0])
    sharing.add_moves(bench.figures, "rounds", together)
    turns = moved_in_turns(looks.samples, together.start_s, together.first_end_s)
    judge_turns(bench, turns, alone.memory_gib * sharing.GIB)


if __name__ == "__main__":
    sharing.main("rounds", parse_arguments, run)
