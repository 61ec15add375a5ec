#!/usr/bin/env python3
"""Draws what bench/pairs.py has measured: a row per pair.

usage: pairs_chart.py rates.json CHART.png

On the left what each job reached of its speed alone, in each mode. On the right, for the modes with libunified, the
speeds over time in seconds, and what the opportunistic job was allowed to use, in grey. Dashed: what production is to
keep.
"""
import json
import pathlib
import sys

import chart

COLORS = {"production": (20, 90, 200), "opportunistic": (225, 110, 20), "limit": (170, 170, 170)}
BARS_WIDTH, TIME_WIDTH, HEIGHT, TITLE = 460, 520, 250, 44  # in pixels
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 36  # of a plot in its panel
Y_MAX, Y_STEP, KEPT = 1.25, 0.25, 0.98
TICKS_S = (1, 2, 5, 10, 20, 50)


class Plot:
    """Ratios, from 0 to a little more than 1."""

    def __init__(self, canvas, left, top, width, title):
        self.canvas = canvas
        self.x0, self.x1 = left + LEFT, left + width - RIGHT
        self.y0, self.y1 = top + HEIGHT - BOTTOM, top + TOP
        canvas.text(self.x0, self.y1 - 24, title)
        for step in range(int(Y_MAX / Y_STEP) + 1):
            y = self.y_of(step * Y_STEP)
            canvas.line((self.x0, y), (self.x1, y), chart.INK if step == 0 else chart.GRID, 1)
            canvas.text(self.x0 - 6, y - 4, f"{step * Y_STEP:.2f}", scale=1, align=1)
        canvas.line((self.x0, self.y_of(KEPT)), (self.x1, self.y_of(KEPT)), chart.INK, 1, dash=4)

    def y_of(self, ratio):
        return self.y0 + (self.y1 - self.y0) * min(max(ratio, 0), Y_MAX) / Y_MAX

    def bar(self, x, width, ratio, color):
        top = self.y_of(ratio)
        for y in range(round(top), round(self.y0)):
            for step in range(width):
                self.canvas.blend(round(x) + step, y, color, 1)
        self.canvas.text(x + width / 2, top - 10, f"{ratio:.2f}", color, scale=1, align=0.5)

    def bars(self, modes):
        """modes: name -> {side: ratio}."""
        space = (self.x1 - self.x0) / max(len(modes), 1)
        for index, (name, ratios) in enumerate(modes.items()):
            middle = self.x0 + (index + 0.5) * space
            self.canvas.text(middle, self.y0 + 8, name, scale=1, align=0.5)
            for side, x in (("production", middle - 27), ("opportunistic", middle + 3)):
                if ratios.get(side) is not None:
                    self.bar(x, 24, ratios[side], COLORS[side])

    def time_axis(self, end_s):
        step = next((step for step in TICKS_S if end_s / step <= 10), TICKS_S[-1])
        for tick in range(0, int(end_s) + 1, step):
            x = self.x0 + (self.x1 - self.x0) * tick / end_s
            self.canvas.line((x, self.y0), (x, self.y0 + 4), chart.INK, 1)
            self.canvas.text(x, self.y0 + 8, str(tick), scale=1, align=0.5)

    def lines(self, lines):
        """Each {"name": TEXT, "points": [[s, ratio]]}."""
        end_s = max((line["points"][-1][0] for line in lines if line["points"]), default=1) or 1
        self.time_axis(end_s)
        for line in lines:
            points = [(self.x0 + (self.x1 - self.x0) * at_s / end_s, self.y_of(ratio))
                      for at_s, ratio in line["points"]]
            for start, end in zip(points, points[1:]):
                self.canvas.line(start, end, COLORS[line["name"]], 1.5)


def draw(told, path):
    """told: pair -> mode -> {"ratios": {side: ratio}, "lines": [...]}."""
    columns = max((sum(bool(mode["lines"]) for mode in modes.values()) for modes in told.values()), default=0)
    canvas = chart.Canvas(BARS_WIDTH + columns * TIME_WIDTH, TITLE + len(told) * HEIGHT)
    for index, (name, color) in enumerate(COLORS.items()):
        canvas.text(LEFT + index * 190, 14, name, color)
    for row, (pair, modes) in enumerate(told.items()):
        top = TITLE + row * HEIGHT
        Plot(canvas, 0, top, BARS_WIDTH, pair).bars({name: mode["ratios"] for name, mode in modes.items()})
        drawn = {name: mode["lines"] for name, mode in modes.items() if mode["lines"]}
        for column, (name, lines) in enumerate(drawn.items()):
            Plot(canvas, BARS_WIDTH + column * TIME_WIDTH, top, TIME_WIDTH, name).lines(lines)
    canvas.save(path)


def write(out, told):
    """rates.json and pairs.png; whole at any time."""
    (out / "rates.json").write_text(json.dumps(told) + "\n")
    draw(told, out / "pairs.png")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]))


if __name__ == "__main__":
    main()
