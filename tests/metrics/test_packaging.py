"""What is said of the metrics elsewhere is true of those that the daemon shows: the documentation, the dashboard, the
alerts. With promtool (Debian: prometheus), also what that says of them.
usage: test_packaging.py BUILD SOURCES [unittest's arguments]"""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from scene import MIB, OPENMETRICS, Scene, ask

BUILD, SOURCES = (os.path.abspath(path) for path in (sys.argv.pop(1), sys.argv.pop(1)))
DASHBOARD = os.path.join(SOURCES, "packaging/grafana/gpushare.json")
RULES = os.path.join(SOURCES, "packaging/prometheus/gpushare.rules.yml")
PROMTOOL = shutil.which("promtool")
OF_PROMETHEUS = {"up"}
TARGET_LABELS = {"instance", "job", "le"}


def read(*path):
    with open(os.path.join(SOURCES, *path), encoding="utf-8") as file:
        return file.read()


def setUpModule():
    global FAMILIES, TEXTS
    scene = Scene(BUILD, nvml="gpus=1")
    try:
        scene.start(bytes_each=8 * MIB, GPUSHARE_CLASS="opportunistic", GPUSHARE_MEMORY_LIMIT="16M")
        FAMILIES = scene.wait_for("what the card does", lambda f: f["gpushare_gpu_power_watts"].samples)
        TEXTS = [ask(scene.address, Accept=accept)[2] for accept in ("text/plain", OPENMETRICS)]
    finally:
        scene.end()


def names_exposed():
    return {name for family in FAMILIES.values() for name, _ in family.samples}


def labels_exposed():
    return TARGET_LABELS.union(*(family.label_names() for family in FAMILIES.values()))


class Documentation(unittest.TestCase):
    def test_the_tables_are_what_there_is(self):
        rows = re.findall(r"(?m)^\| `([a-z_]+)` \| ([a-z]+) \| ([^|]*) \| (.*) \|$", read("docs/METRICS.md"))
        told = [(name, kind, set(re.findall(r"`([a-z_]+)`", labels)), text) for name, kind, labels, text in rows]
        # The job here has no memory that can't leave: that family has no sample, and so no labels.
        unseen = {name: labels for name, _, labels, _ in told if name == "gpushare_job_memory_pinned_bytes"}
        there = [(family.name, family.type, family.label_names() or unseen.get(family.name, set()), family.help)
                 for family in FAMILIES.values()]
        self.assertEqual(told, there)

    def test_the_alerts_are_what_there_is(self):
        rows = re.findall(r"(?m)^\| `(Gpushare\w+)` \| (\w+) \|", read("docs/METRICS.md"))
        self.assertEqual(rows, re.findall(r"(?ms)- alert: (\w+)$.*?severity: (\w+)$", read(RULES)))

    def test_the_port_and_the_file_are_those_of_the_units(self):
        text = read("docs/METRICS.md")
        self.assertIn(re.search(r"ListenStream=(\S+)", read("packaging/systemd/gpushare-metrics.socket"))[1], text)
        self.assertIn(re.search(r"ExecStart=.* (\S+)", read("packaging/systemd/gpushare-metrics.service"))[1], text)


class Expressions:
    """Every metric and label of an expression is one that there is."""

    def check(self, expression):
        bare = re.sub(r'"[^"]*"', '""', expression)
        metrics = set(re.findall(r"\b(?:gpushare|process)_[a-z_]+\b", bare))
        self.assertTrue(metrics or OF_PROMETHEUS & set(bare.split()), expression)
        self.assertEqual(metrics - names_exposed(), set(), expression)
        groups = re.findall(r"\b(?:by|on|ignoring|without) \(([^)]*)\)", bare)
        labels = {label.strip() for group in groups for label in group.split(",")}
        labels |= set(re.findall(r"[{,]\s*([a-z_]+)\s*(?:=~|!~|!=|=)", bare))
        self.assertEqual(labels - labels_exposed(), set(), expression)


class Dashboard(Expressions, unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(read(DASHBOARD))
        self.panels = self.dashboard["panels"]

    def test_expressions(self):
        for panel in self.panels:
            self.assertTrue(panel["targets"] and panel["title"] and panel["description"], panel)
            for target in panel["targets"]:
                self.check(target["expr"])
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    self.assertIn(label, labels_exposed())

    def test_variables(self):
        variables = {variable["name"] for variable in self.dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(self.panels)))
        self.assertEqual(used - {"__rate_interval"}, variables)
        for variable in self.dashboard["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.match(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"]).groups()
                self.assertIn(metric, names_exposed())
                self.assertIn(label, labels_exposed())

    def test_each_panel_has_its_place(self):
        taken = set()
        for panel in self.panels:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            taken |= cells
        self.assertEqual(len({panel["id"] for panel in self.panels}), len(self.panels))


class Alerts(Expressions, unittest.TestCase):
    def test_expressions(self):
        found = re.findall(r"(?ms)^ +expr: (.*?)^ +(?:for|labels):", read(RULES))
        self.assertEqual(len(found), read(RULES).count("- alert:"))
        for expression in found:
            self.check(re.sub(r"\s+", " ", expression.removeprefix(">-")))


@unittest.skipUnless(PROMTOOL, "no promtool (Debian: prometheus)")
class Promtool(unittest.TestCase):
    def run_it(self, *arguments, text=None):
        result = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def test_metrics(self):
        self.run_it("check", "metrics", text=TEXTS[0])

    def test_rules(self):
        self.run_it("check", "rules", RULES)

    def test_when_alerts_fire(self):
        self.run_it("test", "rules", os.path.join(SOURCES, "tests/metrics/alerts.yml"))


if __name__ == "__main__":
    if "Promtool" in sys.argv and not PROMTOOL:
        print("skipped: no promtool (Debian: prometheus)")
        sys.exit(77)
    unittest.main()
