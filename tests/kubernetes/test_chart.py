"""The Helm chart packaging/kubernetes: what helm renders is what kustomize makes of the same files, and Kubernetes and the
programs take it. usage: test_chart.py FOLDER DAEMON PLUGIN [DRA DRIVER]

GS_HELM: a helm, if there is none in PATH. Ends with 77 without helm or PyYAML; and without kubernetes-validate, after all else.
"""
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

try:
    import yaml

    import kustomize
    from kustomize import kubernetes_validate
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

CHART = pathlib.Path(sys.argv[1])
DAEMON, PLUGIN = sys.argv[2:4]
DRA_DRIVER = sys.argv[4] if len(sys.argv) > 4 else None
HELM = shutil.which("helm") or os.environ.get("GS_HELM", "")
if not shutil.which(HELM):
    print("skipped: no helm (scripts/helm FOLDER fetches one)")
    sys.exit(77)

# Values, the folder that kustomize renders the same of, and versions of Kubernetes.
OVERLAYS = [({}, "base", ("1.25", "1.29", "1.37")),
            ({"devicePlugin": {"opportunisticShares": 10}}, "overlays/opportunistic", ("1.25", "1.29", "1.37")),
            ({"runtimeClassName": "nvidia"}, "overlays/runtime-class", ("1.25", "1.29", "1.37")),
            ({"driver": "dra"}, "overlays/dra", ("1.34", "1.35", "1.36", "1.37"))]
ALL = {"image": {"repository": "registry.example/gpushare", "tag": "9", "pullPolicy": "Always"}, "imagePullSecrets": ["a"],
       "config": "log = debug\n", "runtimeClassName": "nvidia", "nodeSelector": {"a": "b"},
       "tolerations": [{"key": "a", "operator": "Exists"}],
       "metrics": {"enabled": True, "port": 9000, "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
       "devicePlugin": {"shares": 4, "placement": "pack", "opportunisticShares": 3, "extraArgs": ["--several=apart"]}}


def helm(*arguments, values=None, check=True):
    return subprocess.run([HELM, *arguments, *(["-f", "-"] if values is not None else [])], input=json.dumps(values or {}),
                          capture_output=True, text=True, check=check, env={**os.environ, "HOME": "/nonexistent"})


def render(values, namespace="gpushare"):
    text = helm("template", "a-release", str(CHART), "--namespace", namespace, values=values).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def find(documents, kind):
    (document,) = (document for document in documents if document["kind"] == kind)
    return document


def container_of(documents, name):
    (container,) = (c for c in kustomize.containers(find(documents, "DaemonSet")) if c["name"] == name)
    return container


def by_name(documents):
    """Without the namespace itself, which helm makes; the order of options does not count, nor does a sum of the settings."""
    found = {}
    for document in copy.deepcopy(documents):
        if document["kind"] == "Namespace":
            continue
        if document["kind"] == "DaemonSet":
            document["spec"]["template"]["metadata"].pop("annotations", None)
            for container in document["spec"]["template"]["spec"]["containers"][1:]:
                container["args"].sort()
        found[document["kind"], document["metadata"]["name"]] = document
    return found


class Chart(unittest.TestCase):
    maxDiff = None

    def test_it_is_what_kustomize_makes(self):
        for values, folder, _ in OVERLAYS:
            with self.subTest(folder=folder):
                self.assertEqual(by_name(render(values)), by_name(kustomize.render(CHART / folder)))

    def test_helm_has_no_complaint(self):
        for values in [values for values, _, _ in OVERLAYS] + [ALL]:
            said = helm("lint", "--strict", str(CHART), values=values)
            self.assertNotIn("[WARNING]", said.stdout)

    @unittest.skipUnless(kubernetes_validate, "no kubernetes-validate")
    def test_of_kubernetes(self):
        for values, _, versions in OVERLAYS + [(ALL, "", ("1.25", "1.37"))]:
            for document in render(values):
                for version in versions if document["kind"] != "PodMonitor" else ():  # the Prometheus operator's
                    with self.subTest(kind=document["kind"], version=version):
                        kubernetes_validate.validate(document, version, strict=True)

    def test_the_namespace_is_the_releases(self):
        for values in ({"driver": "dra"}, ALL):
            documents = render(values, "other")
            self.assertEqual({d["metadata"].get("namespace") for d in documents if d["kind"] not in kustomize.CLUSTER_WIDE},
                             {"other"})
            for document in documents:
                for subject in document.get("subjects", []):
                    self.assertEqual(subject["namespace"], "other")
        policy = find(render({"driver": "dra"}, "other"), "ValidatingAdmissionPolicy")
        self.assertIn('"system:serviceaccount:other:gpushare"', policy["spec"]["matchConditions"][0]["expression"])

    def test_values_arrive(self):
        documents = render(ALL)
        spec = kustomize.pod_spec(find(documents, "DaemonSet"))
        self.assertEqual({(c["image"], c["imagePullPolicy"]) for c in kustomize.containers(find(documents, "DaemonSet"))},
                         {("registry.example/gpushare:9", "Always")})
        self.assertEqual(spec["imagePullSecrets"], [{"name": "a"}])
        self.assertEqual(spec["nodeSelector"], {"a": "b", "gpushare.io/enabled": "true"})  # helm joins the two
        self.assertIn({"key": "a", "operator": "Exists"}, spec["tolerations"])
        self.assertGreater(len(spec["tolerations"]), 1)
        self.assertEqual(find(documents, "ConfigMap")["data"], {"gpushare.conf": "log = debug\n"})
        options = container_of(documents, "device-plugin")["args"]
        for option in ("--shares=4", "--placement=pack", "--opportunistic-shares=3", "--several=apart"):
            self.assertEqual(options.count(option), 1)
        self.assertEqual(len({option.split("=")[0] for option in options}), len(options))

    def test_a_change_of_settings_starts_the_pods_anew(self):
        sums = {find(render(values), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
                for values in ({}, {"config": "log = debug\n"})}
        self.assertEqual(len(sums), 2)

    def test_the_pod_monitor_finds_the_port(self):
        documents = render(ALL)
        monitor, daemon_set = find(documents, "PodMonitor"), find(documents, "DaemonSet")
        labels = daemon_set["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(monitor["spec"]["selector"]["matchLabels"].items() - labels.items(), set())
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        daemon = container_of(documents, "daemon")
        self.assertEqual({port["name"]: port["containerPort"] for port in daemon["ports"]}, {endpoint["port"]: 9000})
        self.assertIn("--metrics=0.0.0.0:9000", daemon["args"])
        self.assertNotIn("ports", container_of(render({}), "daemon"))

    def test_programs_take_their_options(self):
        for name, program, values in (("daemon", DAEMON, ALL), ("device-plugin", PLUGIN, ALL),
                                      ("dra-driver", DRA_DRIVER, {"driver": "dra", "dra": {"extraArgs": ["--on-exit=remove"]}})):
            if program:
                arguments = container_of(render(values), name)["args"]
                subprocess.run([program, *arguments, "--version"], check=True, capture_output=True, timeout=30)

    def test_wrong_values_are_refused(self):
        for values, told in (({"driver": "both"}, "driver"), ({"devicePlugin": {"shares": 0}}, "shares"),
                             ({"divicePlugin": {}}, "divicePlugin"), ({"image": {"tag": 1}}, "tag"),
                             ({"devicePlugin": {"extraArgs": ["several"]}}, "extraArgs"),
                             ({"metrics": {"podMonitor": {"enabled": True}}}, "metrics.enabled"),
                             ({"driver": "dra", "devicePlugin": {"opportunisticShares": 2}}, "opportunisticShares")):
            with self.subTest(values=values):
                result = helm("template", str(CHART), values=values, check=False)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(told, result.stderr)

    def test_each_value_is_documented_and_has_a_schema(self):
        def names(mapping, is_schema):
            entries = mapping.get("properties", {}) if is_schema else mapping
            for name, entry in entries.items():
                yield name
                if isinstance(entry, dict):
                    yield from (f"{name}.{rest}" for rest in names(entry, is_schema))

        text = (CHART / "values.yaml").read_text(encoding="utf-8")
        told = set(names(yaml.safe_load(text), False)) - {"nodeSelector.gpushare.io/enabled"}
        schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
        self.assertEqual(told | {"global"}, set(names(schema, True)))


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 0 if kubernetes_validate else 77)
