"""How fast a job (bench/workloads.py) was, over itself alone: trainings by their iterations, servers by their answers."""
import collections
import statistics

import many
import watch

# What a job told of one run, when that began, which part of it counts, and of a server's requests which ones of its
# pattern they are: None for those before that part.
Piece = collections.namedtuple("Piece", "told start_s from_s to_s places")


def ratio(value, base):
    return round(value / base, 4) if value is not None and base else None


def p99(values):
    return many.percentile(values, 0.99) if values else None


class Trained:
    """Of an iteration counts the part that is done, as if it were done evenly."""

    UNIT = "it/s"

    def __init__(self, pieces):
        self.pieces = pieces
        self.series = [watch.Series([(piece.told["start_s"], {"done": 0})] + [
            (end_s, {"done": index + 1}) for index, end_s in enumerate(piece.told["ends_s"])], "done")
                       for piece in pieces]

    def throughput(self):
        done = sum(series.at(piece.to_s) - series.at(piece.from_s) for series, piece in zip(self.series, self.pieces))
        return done / sum(piece.to_s - piece.from_s for piece in self.pieces)

    def mean_pace(self):
        return self.throughput()

    def throughput_over(self, alone):
        return ratio(self.throughput(), alone.throughput())

    def times_ms(self):
        """Of the iterations that began in the pieces, whenever they ended."""
        return [(end_s - begin_s) * 1e3 for piece in self.pieces
                for begin_s, end_s in zip(piece.told["ends_s"], piece.told["ends_s"][1:])
                if piece.from_s <= begin_s < piece.to_s]

    def p99_over(self, alone):
        return ratio(p99(self.times_ms()), p99(alone.times_ms()))

    def p99_added_ms(self, alone):
        return p99(self.times_ms()) - p99(alone.times_ms())


class Served:
    """Compared with itself alone by the same requests only: other ones would queue up otherwise."""

    UNIT = "answers/s of serving"

    def __init__(self, pieces):
        self.pieces = pieces
        self.by_place = {place: ms for piece in pieces  # which one of the pattern -> ms
                         for place, (_, ms) in zip(piece.places, piece.told["requests"]) if place is not None}

    def throughput(self):
        """Over what comes: 1 if all is answered as soon as the last one has come."""
        took_s = sum(max([piece.to_s] + [came_s + ms / 1e3 for came_s, ms in piece.told["requests"]]) - piece.from_s
                     for piece in self.pieces)
        return sum(piece.to_s - piece.from_s for piece in self.pieces) / took_s

    def mean_pace(self):
        return 1e3 / statistics.mean(self.by_place.values()) if self.by_place else 0

    def throughput_over(self, alone):
        return ratio(self.throughput(), alone.throughput())

    def times_ms(self, alone):
        """Of the requests that both had: its own, and alone's."""
        places = self.by_place.keys() & alone.by_place.keys()
        return [self.by_place[place] for place in places], [alone.by_place[place] for place in places]

    def answers_over(self, alone):
        """Its throughput says nothing until it drowns; how long its answers take does."""
        own, base = self.times_ms(alone)
        return ratio(sum(base), sum(own))

    def p99_over(self, alone):
        own, base = self.times_ms(alone)
        return ratio(p99(own), p99(base))

    def p99_added_ms(self, alone):
        own, base = self.times_ms(alone)
        return p99(own) - p99(base)


def of(pieces):
    return (Served if "requests" in pieces[0].told else Trained)(pieces)
