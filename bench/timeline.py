#!/usr/bin/env python3
"""Draws a timeline that a benchmark has written (bench/watch.py), or gpusharectl timeline: which job was on the GPU when.

usage: timeline.py timeline.json CHART.png

A panel per run, or per GPU, a row per job, seconds below. Coloured while it runs, hatched while it holds the GPU and waits for its
memory, dark grey while it waits for its turn, light grey while it needs none; short turns mix, each by its part of the
pixel's time. Nothing but the standard library: benchmarks run where little is installed.
"""
import json
import pathlib
import struct
import sys
import zlib

WIDTH, LEFT, RIGHT, TITLE, AXIS = 1100, 190, 20, 30, 30  # in pixels
TICKS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
COLORS = ((20, 90, 200), (225, 110, 20), (40, 150, 70), (170, 50, 150), (190, 40, 40), (0, 150, 160))
THERE, WAITS = (232, 232, 232), (196, 196, 196)
INK, PAPER = (40, 40, 40), (255, 255, 255)

# 5 x 7 dots a letter, and 2 rows below the line: a row is five bits, the leftmost the highest.
FONT = {
    " ": "00000000000000", "-": "0000001F000000", ".": "00000000000C0C", ":": "000C0C000C0C00",
    "_": "0000000000001F", "(": "02040808080402", ")": "08040202020408", "/": "01010204081010",
    ">": "08040201020408", ",": "00000000060408", "0": "0E11131519110E", "1": "040C040404040E",
    "2": "0E11010204081F", "3": "1F02040201110E", "4": "02060A121F0202", "5": "1F101E0101110E",
    "6": "0608101E11110E", "7": "1F010204080808", "8": "0E11110E11110E", "9": "0E11110F01020C",
    "T": "1F040404040404", "Q": "0E11111115120D", "a": "00000E010F110F", "b": "1010161911111E",
    "c": "00000E1010110E", "d": "01010D1311110F", "e": "00000E111F100E", "f": "0609081C080808",
    "g": "00000F1111110F010E", "h": "10101619111111", "i": "04000C0404040E", "k": "10101214181412",
    "l": "0C04040404040E", "m": "00001A15151111", "n": "00001619111111", "o": "00000E1111110E",
    "p": "00001E1111111E1010", "q": "00000F1111110F0101", "r": "00001619101010", "s": "00000E100E011E",
    "t": "08081C08080906", "u": "0000111111130D", "v": "00001111110A04", "w": "0000111115150A",
    "x": "0000110A040A11", "y": "0000111111110F010E", "j": "02000602020202120C", "z": "00001F0204081F",
}


class Canvas:
    """Pixels, blended."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.rows = [bytearray(bytes(PAPER) * width) for _ in range(height)]

    def blend(self, x, y, color, share):
        if 0 <= x < self.width and 0 <= y < self.height and share > 0:
            row = self.rows[y]
            for part in range(3):
                at = 3 * x + part
                row[at] = round(row[at] + (color[part] - row[at]) * min(share, 1))

    def block(self, left, top, color, size):
        for dot in range(size * size):
            self.blend(left + dot % size, top + dot // size, color, 1)

    def text(self, x, y, words, color=INK, scale=2, align=0.0):
        """Top left corner; align 0.5 centres at x, 1 ends there."""
        x = round(x - align * (6 * scale * len(words) - scale))
        for letter in words:
            for row, bits in enumerate(bytes.fromhex(FONT.get(letter, FONT["-"]))):
                for column in (column for column in range(5) if bits >> (4 - column) & 1):
                    self.block(x + column * scale, round(y) + row * scale, color, scale)
            x += 6 * scale

    def save(self, path):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in self.rows), 9)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def row_height(rows):
    return max(8, min(28, 480 // max(len(rows), 1)))


def panel_height(panel):
    return TITLE + row_height(panel["rows"]) * len(panel["rows"]) + AXIS


def fill(spans, seconds_per_pixel):
    """Of each pixel's time: there, ran, restored and waited."""
    pixels = [[0.0] * 4 for _ in range(WIDTH)]
    for start, end, *shares in spans:
        for index in range(int(start / seconds_per_pixel), min(int(end / seconds_per_pixel) + 1, WIDTH)):
            first = index * seconds_per_pixel
            part = max(min(end, first + seconds_per_pixel) - max(start, first), 0) / seconds_per_pixel
            for kind, share in enumerate([1, *shares]):
                pixels[index][kind] += part * share
    return pixels


def paint(canvas, x, top, height, pixel, color):
    there, ran, restored, waited = pixel
    for y in range(top, top + height):
        canvas.blend(x, y, THERE, there)
        canvas.blend(x, y, WAITS, waited)
        canvas.blend(x, y, color, ran + (restored if (x + y) % 4 < 2 else 0))


def draw_panel(canvas, top, panel, seconds_per_pixel):
    canvas.text(LEFT, top + 6, panel["title"])
    height = row_height(panel["rows"])
    bottom = top + TITLE + height * len(panel["rows"])
    for index, row in enumerate(panel["rows"]):
        y = top + TITLE + index * height
        canvas.text(LEFT - 8, y + (height - 8) / 2, row["name"], scale=1, align=1)
        for x, pixel in enumerate(fill(row["spans"], seconds_per_pixel)):
            paint(canvas, LEFT + x, y, height - 1, pixel, COLORS[index % len(COLORS)])
    step = next((step for step in TICKS if WIDTH * seconds_per_pixel / step <= 20), TICKS[-1])
    for tick in range(0, int(WIDTH * seconds_per_pixel) + 1, step):
        x = LEFT + tick / seconds_per_pixel
        for y in range(bottom, bottom + 4):
            canvas.blend(round(x), y, INK, 1)
        canvas.text(x, bottom + 8, str(tick), scale=1, align=0.5)


def draw(timeline, path):
    panels = [panel for panel in timeline["panels"] if any(row["spans"] for row in panel["rows"])]
    end_s = max((row["spans"][-1][1] for panel in panels for row in panel["rows"] if row["spans"]), default=1)
    canvas = Canvas(LEFT + WIDTH + RIGHT, sum(map(panel_height, panels)) + 10)
    top = 0
    for panel in panels:
        draw_panel(canvas, top, panel, end_s / WIDTH)
        top += panel_height(panel)
    canvas.save(path)


SHARES = {"runs": (1, 0, 0), "drains": (1, 0, 0), "restores": (0, 1, 0), "waits": (0, 0, 1)}


def names_of(entries, what):
    return {(entry["pid"], entry["tid"]): entry["args"]["name"]
            for entry in entries if entry["ph"] == "M" and entry["name"] == what}


def rows_of(entries, gpu):
    """A row per thread that has done something of the kind; times in seconds."""
    rows = {thread: {"name": name.split(" (")[0], "spans": []}
            for (process, thread), name in sorted(names_of(entries, "thread_name").items()) if process == gpu}
    for entry in entries:
        if entry["ph"] == "X" and entry["pid"] == gpu and entry["name"] in SHARES:
            start = entry["ts"] / 1e6
            rows[entry["tid"]]["spans"].append([start, start + entry["dur"] / 1e6, *SHARES[entry["name"]]])
    return [row for row in rows.values() if row["spans"] and not row["name"].endswith(" memory")]


def of_trace(trace):
    """What gpusharectl timeline writes: a panel per GPU."""
    entries = trace["traceEvents"]
    processes = sorted(names_of(entries, "process_name").items())
    return {"panels": [{"title": name.lower(), "rows": rows_of(entries, process)} for (process, _), name in processes]}


def write(out, name, panels):
    """timeline.json and NAME.png."""
    timeline = {"panels": panels}
    (out / "timeline.json").write_text(json.dumps(timeline) + "\n")
    draw(timeline, out / f"{name}.png")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    timeline = json.loads(pathlib.Path(sys.argv[1]).read_text())
    draw(of_trace(timeline) if "traceEvents" in timeline else timeline, pathlib.Path(sys.argv[2]))


if __name__ == "__main__":
    main()
