"""What trainings (bench/steady.py) did within their turns, by the daemon's looks (bench/watch.py): does a turn begin
slowly, does it run slowly throughout, or only while memory moves behind it?

A turn is known by how a job's gpu_ns and its count of turns grow from look to look: to some milliseconds. When
iterations have ended is told by the GPU itself. An iteration may begin in one turn and end in the next one; so times
are those from end to end within a turn, and what a turn had before its first end and after its last is told apart.
"""
import bisect
import itertools
import statistics

FIRST = 3  # iterations of a turn
LATE_S = 0.05  # by which a look may have seen the end of a turn too soon


def turns_of(looks):
    """(from_s, to_s) of each turn that was seen whole."""
    turns, base_ns = [], None
    for _, group in itertools.groupby(looks, lambda look: look[1]["turns"]):
        group = [(at_s, job["gpu_ns"]) for at_s, job in group]
        last_ns = group[-1][1]
        begins_s = [at_s - (gpu_ns - base_ns) / 1e9 for at_s, gpu_ns in group
                    if base_ns is not None and base_ns < gpu_ns < last_ns]
        is_over = len(group) > 1 and group[-2][1] == last_ns
        if begins_s and is_over:
            from_s = statistics.median(begins_s)
            turns.append((from_s, from_s + (last_ns - base_ns) / 1e9))
        base_ns = last_ns if is_over else None
    return turns


class Moving:
    """When anybody's memory was on its way, to one look."""

    def __init__(self, samples):
        self.times = [at_s for at_s, _ in samples]
        self.moved = [self.differ(before, after) for (_, before), (_, after) in zip(samples, samples[1:])]

    @staticmethod
    def differ(before, after):
        return any(before[who][key] != after[who][key] for who in before.keys() & after.keys()
                   for key in ("resident_bytes", "moved_bytes"))

    def at(self, at_s):
        index = bisect.bisect(self.times, at_s) - 1
        return 0 <= index < len(self.moved) and self.moved[index]


class Turn:
    """One turn of a training that ended iterations in it."""

    def __init__(self, span, ends_s, moving):
        self.before_s, self.after_s = ends_s[0] - span[0], span[1] - ends_s[-1]
        self.count = len(ends_s)
        pairs = list(zip(ends_s, ends_s[1:]))
        self.times_s = [to_s - from_s for from_s, to_s in pairs]
        self.moving = [moving.at((from_s + to_s) / 2) for from_s, to_s in pairs]


class Training:
    """Its turns between two times, and what an iteration takes in the midst of them."""

    def __init__(self, looks, ends_s, moving, from_s, to_s):
        self.turns = []
        for span in turns_of(looks):
            ended = ends_s[bisect.bisect(ends_s, span[0]):bisect.bisect(ends_s, span[1] + LATE_S)]
            if span[0] >= from_s and span[1] <= to_s and ended:
                self.turns.append(Turn(span, ended, moving))
        times_s = [time_s for turn in self.turns for time_s in turn.times_s[FIRST:]]
        self.median_s = statistics.median(times_s) if times_s else None


def add_ratios(figures, name, trainings):
    """All times over the median of their own training."""
    whole = [(turn, training.median_s) for training in trainings for turn in training.turns if training.median_s]
    first = [time_s / median_s for turn, median_s in whole for time_s in turn.times_s[:FIRST]]
    edges = [(turn.before_s + turn.after_s) / median_s for turn, median_s in whole]
    times = {True: [], False: []}
    for turn, median_s in whole:
        for time_s, moving in zip(turn.times_s[FIRST:], turn.moving[FIRST:]):
            times[moving].append(time_s / median_s)
    figures.add(name + "_turns_seen", len(whole))
    if first:
        figures.add(name + "_first_iterations_over_median", round(statistics.mean(first), 4))
        figures.add(name + "_edges_over_median", round(statistics.mean(edges), 4))
    if times[True] and times[False]:
        ratio = statistics.median(times[True]) / statistics.median(times[False])
        figures.add(name + "_moving_iterations", f"{len(times[True])} of {len(times[True]) + len(times[False])}")
        figures.add(name + "_moving_over_still", round(ratio, 4))
