#!/usr/bin/env python3
"""Draws a file of gpusharectl timeline by bench/timeline.py, and reads in the picture what the daemon has counted: a row
per job that has held the GPU, and a stretch of its colour per turn; a turn begins at each hand-over.

usage: check_drawing.py TRACE STATUS HISTORY PICTURE    STATUS, HISTORY: gpusharectl's --json, once all jobs of its one GPU
                                                        have ended; PICTURE: where the drawing goes

Says "ok", or the first thing that is wrong, and exits with 1.
"""
import json
import pathlib
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
sys.dont_write_bytecode = True
import timeline  # noqa: E402

TOLERANCE = 2  # pixels
EPSILON_S = 1e-8  # times are written with three digits of microseconds or more


def require(right, *what):
    if not right:
        sys.exit("wrong: " + " ".join(map(str, what)))


def read_picture(path):
    """Rows of (red, green, blue): of a PNG as bench/timeline.py writes it, which filters nothing."""
    data, at, pixels = path.read_bytes(), 8, b""
    require(data.startswith(b"\x89PNG\r\n\x1a\n"), "no PNG")
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8:at + 8 + size]
        require(struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(kind + body), kind, "is damaged")
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", body)
            require(form == [8, 2, 0, 0, 0], "a PNG of another form:", form)
        pixels += body if kind == b"IDAT" else b""
        at += 12 + size
    lines, stride = zlib.decompress(pixels), 3 * width + 1
    require(kind == b"IEND" and len(lines) == stride * height, "the picture is cut off")
    return [list(zip(*[iter(lines[line * stride + 1:(line + 1) * stride])] * 3)) for line in range(height)]


def is_coloured(pixel):
    """What only waits is grey."""
    return max(pixel) - min(pixel) > 2


def stretches_of(picture, top):
    """(first column, end) of each stretch. Hatches are two pixels high."""
    columns = slice(timeline.LEFT, timeline.LEFT + timeline.WIDTH)
    here, below = ([is_coloured(pixel) for pixel in picture[y][columns]] for y in (top, top + 2))
    stretches, first = [], None
    for x, coloured in enumerate([a or b for a, b in zip(here, below)] + [False]):
        if coloured and first is None:
            first = x
        elif not coloured and first is not None:
            stretches.append((first, x))
            first = None
    return stretches


def told_turns(row):
    """[start, end] in seconds of each: it restores, then runs, until it waits or does nothing."""
    turns = []
    for start, end, _, restored, waited in row["spans"]:
        if restored:
            turns.append([start, end])
        elif not waited:
            turns[-1][1] = end
    return turns


def check_row(name, turns, stretches):
    """Turns with less than two pixels between them may be one stretch; a turn of less than a pixel may be none."""
    for first, end in stretches:
        require(any(abs(start - first) <= TOLERANCE for start, _ in turns), name, "begins at", first, "turns:", turns)
        require(any(abs(stop - end) <= TOLERANCE for _, stop in turns), name, "ends at", end, "turns:", turns)
    for start, stop in turns:
        require(stop - start < 1 or any(first - TOLERANCE <= start and stop <= end + TOLERANCE for first, end in stretches),
                name, "is not drawn in the turn of", start, stop, "but in", stretches)
    for (_, stop), (start, _) in zip(turns, turns[1:]):
        require(start - stop <= TOLERANCE or not any(first < stop and start < end for first, end in stretches),
                name, "is drawn between", stop, start, "stretches:", stretches)


def check_rows(rows, drawn, history, pixels_per_s):
    held = {f"job {run['job']} {run['name']}": run["turns"] for run in history["runs"] if run["turns"]}
    told = {row["name"]: told_turns(row) for row in rows}
    require({name: len(turns) for name, turns in told.items()} == held, "turns told:", told, "history:", held)
    for (name, turns), stretches in zip(told.items(), drawn):
        check_row(name, [(start * pixels_per_s, stop * pixels_per_s) for start, stop in turns], stretches)


def check_handovers(trace, rows, gpu):
    """Each is where somebody's turn begins."""
    times = [entry["ts"] / 1e6 for entry in trace["traceEvents"] if entry["ph"] == "i" and entry["name"] == "hand-over"]
    begun = [start for row in rows for start, _ in told_turns(row)]
    for time in times:
        require(any(abs(time - start) <= EPSILON_S for start in begun), "no turn begins at the hand-over at", time, "of", begun)
    require(len(times) == gpu["handovers"], len(times), "hand-overs told, status:", gpu["handovers"])


def main():
    trace, status, history = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:4])
    picture = pathlib.Path(sys.argv[4])
    told = timeline.of_trace(trace)
    timeline.draw(told, picture)
    rows = told["panels"][0]["rows"]
    pixels = read_picture(picture)
    drawn = [stretches_of(pixels, timeline.TITLE + index * timeline.row_height(rows)) for index in range(len(rows))]
    pixels_per_s = timeline.WIDTH / max(row["spans"][-1][1] for row in rows)
    check_rows(rows, drawn, history, pixels_per_s)
    check_handovers(trace, rows, status["gpus"][0])
    print("ok")


if __name__ == "__main__":
    main()
