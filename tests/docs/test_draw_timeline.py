"""scripts/draw-timeline draws what a trace has. usage: test_draw_timeline.py SOURCES"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

script = os.path.join(sys.argv[1], "scripts/draw-timeline")
SVG = "{http://www.w3.org/2000/svg}"


def lane(tid, name):
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}}


def span(tid, name, at_s, took_s):
    return {"ph": "X", "name": name, "pid": 1, "tid": tid, "ts": at_s * 1e6, "dur": took_s * 1e6}


class Picture(unittest.TestCase):
    def draw(self, events, *more):
        with tempfile.TemporaryDirectory() as folder:
            trace, picture = (os.path.join(folder, name) for name in ("trace.json", "picture.svg"))
            with open(trace, "w", encoding="utf-8") as file:
                json.dump({"traceEvents": events}, file)
            subprocess.run([script, trace, picture, *more], check=True)
            root = tree.parse(picture).getroot()
        bars = [{key: value if key == "fill" else float(value) for key, value in bar.items()} for bar in root.iter(SVG + "rect")][1:]
        return bars, [text.text for text in root.iter(SVG + "text")]

    def test_jobs_turns_and_moves(self):
        events = [lane(1, "hand-overs"), lane(3, "job 1 a & b (pid 7)"), lane(4, "job 1 memory"), lane(5, "job 2 c (pid 8)"),
                  span(3, "waits", 9, 1), span(3, "runs", 10, 1), span(4, "evicts", 11, 0.1), span(1, "moves", 11, 0.1),
                  span(5, "waits", 10, 1), span(5, "runs", 11.1, 5)]
        bars, texts = self.draw(events, "2")
        self.assertEqual(texts[0], "a & b")
        self.assertIn("c", texts)
        runs = [bar for bar in bars if bar["fill"] == "#2e7d32" and bar["height"] > 20]
        self.assertEqual(len(runs), 2)
        self.assertLess(runs[0]["y"], runs[1]["y"])
        self.assertAlmostEqual(runs[1]["x"] - runs[0]["x"], 1.1 * runs[0]["width"], delta=0.2)  # a run of 1 s
        self.assertAlmostEqual(runs[1]["width"], 0.9 * runs[0]["width"], delta=0.2)  # cut at 2 s
        moves = [bar for bar in bars if bar["fill"] == "#ef6c00" and bar["height"] == 8]
        self.assertEqual(len(moves), 1)
        self.assertAlmostEqual(moves[0]["x"], runs[0]["x"] + runs[0]["width"], delta=0.2)


unittest.main(argv=sys.argv[:1])
