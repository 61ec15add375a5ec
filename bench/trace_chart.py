#!/usr/bin/env python3
"""Draws what `bench_trace --timeline` wrote: who ran when, a panel a policy.

usage: trace_chart.py TIMELINE.json CHART.png

A row is a job, from the first to arrive at the top; grey from its arrival to its end, coloured while it runs: the more
memory, the bluer, and the paler, the smaller its part of that pixel's time (by the square root, or short turns would
not be seen). Minutes below.
"""
import json
import pathlib
import sys

import chart

WIDTH, ROW, ROWS = 600, 3, 100  # of a panel's plot, in pixels
LEFT, TOP, GAP = 60, 40, 50
WAITS, LIGHT, HEAVY = (225, 225, 225), (240, 150, 60), (20, 60, 160)
MOST_BYTES = 13 << 30
TICK_MIN = 60


def color_of(job):
    part = min(job["bytes"] / MOST_BYTES, 1)
    return tuple(round(light + (heavy - light) * part) for light, heavy in zip(LIGHT, HEAVY))


def shares(spans, seconds_per_pixel):
    """Which part of each pixel's time the spans fill."""
    parts = [0.0] * (WIDTH + 1)
    for start, end in spans:
        for pixel in range(int(start / seconds_per_pixel), int(end / seconds_per_pixel) + 1):
            first, last = pixel * seconds_per_pixel, (pixel + 1) * seconds_per_pixel
            parts[pixel] += max(min(end, last) - max(start, first), 0) / seconds_per_pixel
    return parts


def draw_job(canvas, left, top, job, seconds_per_pixel):
    waits = shares([(job["arrives_s"], job["ran_s"][-1][1])], seconds_per_pixel)
    runs = shares(job["ran_s"], seconds_per_pixel)
    for pixel, (waiting, running) in enumerate(zip(waits, runs)):
        for row in range(ROW - 1):
            canvas.blend(left + pixel, top + row, WAITS, waiting)
            canvas.blend(left + pixel, top + row, color_of(job), running ** 0.5)


def draw_policy(canvas, left, top, policy, seconds_per_pixel):
    canvas.text(left, top - 22, policy["name"])
    bottom = top + ROWS * ROW
    for minute in range(0, int(WIDTH * seconds_per_pixel / 60) + 1, TICK_MIN):
        x = left + minute * 60 / seconds_per_pixel
        canvas.line((x, top), (x, bottom + 4), chart.GRID, 1)
        canvas.text(x, bottom + 8, str(minute), scale=1, align=0.5)
    for index, job in enumerate(policy["jobs"]):
        draw_job(canvas, left, top + index * ROW, job, seconds_per_pixel)


def draw(policies, path):
    """Two panels a row."""
    end_s = max(job["ran_s"][-1][1] for policy in policies for job in policy["jobs"])
    height = ROWS * ROW + GAP
    canvas = chart.Canvas(2 * (WIDTH + LEFT) + LEFT, TOP + (len(policies) + 1) // 2 * height)
    for index, policy in enumerate(policies):
        left = LEFT + index % 2 * (WIDTH + LEFT)
        draw_policy(canvas, left, TOP + index // 2 * height, policy, end_s / WIDTH)
    canvas.save(path)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(json.loads(pathlib.Path(sys.argv[1]).read_text())["policies"], pathlib.Path(sys.argv[2]))


if __name__ == "__main__":
    main()
