"""What packaging/kubernetes holds: rendered, against the schemas of Kubernetes, and against what the programs take.
usage: test_manifests.py FOLDER DAEMON PLUGIN [DRA DRIVER]

Needs PyYAML; ends with 77 without it. With kubernetes-validate the documents are held against the real schemas, and it ends
with 77 without that, too; with kubectl or kustomize what they render is compared with what kustomize.py renders, which counts
where there is neither.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml

    import kustomize
    from kustomize import kubernetes_validate
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FOLDER = pathlib.Path(sys.argv[1])
ROOT = FOLDER.parent.parent
DAEMON, PLUGIN = sys.argv[2:4]
DRA_DRIVER = sys.argv[4] if len(sys.argv) > 4 else None
RENDERED = [FOLDER / "base", FOLDER / "overlays/opportunistic", FOLDER / "overlays/runtime-class"]
DRA = FOLDER / "overlays/dra"
EXAMPLES = sorted((FOLDER / "examples").glob("*.yaml"))
DRA_EXAMPLES = ("claim.yaml", "production-class.yaml")
VERSIONS = ("1.25", "1.29", "1.34", "1.35", "1.36", "1.37")
DRA_VERSIONS = ("1.34", "1.35", "1.36", "1.37")  # that have resource.k8s.io/v1 and consumable capacity
PATIENCE_S = 30


def find_kustomize():
    """The command that renders a folder, of a version that knows `patches`; None."""
    for command in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(command[0]):
            version = subprocess.run([command[0], "version", *(["--client"] if command[0] == "kubectl" else [])],
                                     capture_output=True, text=True, check=False).stdout
            if re.search(r"v[5-9]\.", version):
                return command
    return None


def without_hash(document):
    """The name of a ConfigMap ends with a hash of its contents."""
    text = json.dumps(document)
    return json.loads(re.sub(r"(gpushare-config)-[a-z0-9]{10}", r"\1", text))


def find(documents, kind):
    (document,) = (document for document in documents if document["kind"] == kind)
    return document


def container_of(documents, name):
    (container,) = (c for c in kustomize.containers(find(documents, "DaemonSet")) if c["name"] == name)
    return container


class Schemas(unittest.TestCase):
    def documents(self):
        """Each with the versions that it is for."""
        for folder in [*RENDERED, DRA]:
            for document in kustomize.render(folder):
                yield folder.name, document, DRA_VERSIONS if folder == DRA else VERSIONS
        for path in EXAMPLES:
            for document in kustomize.read_documents(path):
                yield path.name, document, DRA_VERSIONS if path.name in DRA_EXAMPLES else VERSIONS

    @unittest.skipUnless(kubernetes_validate, "no kubernetes-validate")
    def test_of_kubernetes(self):
        for name, document, versions in self.documents():
            for version in versions:
                with self.subTest(name=name, kind=document["kind"], version=version):
                    kubernetes_validate.validate(document, version, strict=True)

    @unittest.skipUnless(find_kustomize(), "neither kubectl nor kustomize of version 5")
    def test_rendered_as_kustomize_does(self):
        def by_name(documents):
            return {(d["kind"], d["metadata"]["name"]): d for d in map(without_hash, documents)}

        for folder in [*RENDERED, DRA]:
            with self.subTest(folder=folder.name):
                text = subprocess.run([*find_kustomize(), folder], capture_output=True, text=True, check=True).stdout
                self.assertEqual(by_name(kustomize.render(folder)), by_name(yaml.safe_load_all(text)))

    def test_examples_ask_for_what_there_is(self):
        offered = {"gpushare.io/gpu", "gpushare.io/gpu-opportunistic"}
        for path in EXAMPLES:
            if path.name in DRA_EXAMPLES:
                continue
            with self.subTest(path=path.name):
                (document,) = kustomize.read_documents(path)
                asked = {resource for c in kustomize.containers(document) for resource in c["resources"]["limits"]}
                self.assertTrue(asked and asked <= offered)

    def test_the_example_claims_what_there_is(self):
        template, pod = kustomize.read_documents(FOLDER / "examples/claim.yaml")
        classes = {d["metadata"]["name"] for d in kustomize.render(DRA) if d["kind"] == "DeviceClass"}
        spec = template["spec"]["spec"]["devices"]
        (request,) = spec["requests"]
        self.assertIn(request["exactly"]["deviceClassName"], classes)
        self.assertEqual(set(request["exactly"]["capacity"]["requests"]), {"memory", "share"})
        (claim,) = pod["spec"]["resourceClaims"]
        self.assertEqual(claim["resourceClaimTemplateName"], template["metadata"]["name"])
        (used,) = kustomize.containers(pod)[0]["resources"]["claims"]
        self.assertEqual(used, {"name": claim["name"], "request": request["name"]})

    def test_what_is_installed_makes_no_job_a_production_job(self):
        """Any claim may name any class; the example bounds the one that it makes."""
        for document in kustomize.render(DRA):
            if document["kind"] == "DeviceClass":
                self.assertNotIn("config", document["spec"])
        quota, example = kustomize.read_documents(FOLDER / "examples/production-class.yaml")
        (config,) = example["spec"]["config"]
        self.assertEqual(config["opaque"]["parameters"]["class"], "production")
        self.assertEqual(quota["spec"]["hard"], {f"{example['metadata']['name']}.deviceclass.resource.k8s.io/devices": "0"})


class DaemonSet(unittest.TestCase):
    def test_structure(self):
        for folder in [*RENDERED, DRA]:
            documents = kustomize.render(folder)
            daemon_set = find(documents, "DaemonSet")
            spec = kustomize.pod_spec(daemon_set)
            with self.subTest(folder=folder.name):
                self.assertEqual(daemon_set["spec"]["selector"]["matchLabels"].items() -
                                 daemon_set["spec"]["template"]["metadata"]["labels"].items(), set())
                self.assertEqual({d["metadata"].get("namespace") for d in documents
                                  if d["kind"] not in kustomize.CLUSTER_WIDE}, {"gpushare"})
                self.assertEqual(find(documents, "Namespace")["metadata"]["name"], "gpushare")
                self.assertEqual(spec["serviceAccountName"], find(documents, "ServiceAccount")["metadata"]["name"])
                self.check_volumes(documents, spec)
                self.check_confinement(spec)

    def check_volumes(self, documents, spec):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        used = {mount["name"] for c in spec["initContainers"] + spec["containers"] for mount in c["volumeMounts"]}
        self.assertEqual(set(volumes), used)
        self.assertEqual(volumes["config"]["configMap"]["name"], find(documents, "ConfigMap")["metadata"]["name"])
        # The plugin names folders of the host by what they are called here.
        for container in spec["initContainers"] + spec["containers"]:
            for mount in container["volumeMounts"]:
                if "hostPath" in volumes[mount["name"]]:
                    self.assertEqual(mount["mountPath"], volumes[mount["name"]]["hostPath"]["path"])

    def check_confinement(self, spec):
        self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertNotIn("hostNetwork", spec)
        for container in spec["initContainers"] + spec["containers"]:
            context = container["securityContext"]
            self.assertNotIn("privileged", context)
            self.assertFalse(context["allowPrivilegeEscalation"])
            self.assertTrue(context["readOnlyRootFilesystem"])
            self.assertEqual(context["capabilities"], {"drop": ["ALL"]})

    def test_the_plugin_takes_its_options(self):
        for folder in RENDERED:
            arguments = container_of(kustomize.render(folder), "device-plugin")["args"]
            with self.subTest(folder=folder.name):
                subprocess.run([PLUGIN, *arguments, "--version"], check=True, capture_output=True, timeout=PATIENCE_S)
                options = dict(argument.removeprefix("--").split("=") for argument in arguments)
                self.assertEqual(len(options), len(arguments))  # none twice
                for name in ("library-dir", "socket", "kubelet-dir"):
                    self.assert_mounted(folder, options[name] if name != "socket" else os.path.dirname(options[name]))

    @unittest.skipUnless(DRA_DRIVER, "no gpushare-dra-driver")
    def test_the_driver_takes_its_options(self):
        container = container_of(kustomize.render(DRA), "dra-driver")
        subprocess.run([DRA_DRIVER, *container["args"], "--version"], check=True, capture_output=True, timeout=PATIENCE_S)
        options = dict(argument.removeprefix("--").split("=") for argument in container["args"])
        for name in ("library-dir", "registry-dir", "state-dir", "cdi-dir"):
            self.assert_mounted(DRA, options[name])
        help_text = subprocess.run([DRA_DRIVER, "--help"], check=True, capture_output=True, text=True).stdout
        for name in set(options) - {"memory-percent"}:
            self.assertRegex(help_text, rf"--{name} .*\(default {re.escape(options[name])}\)")

    def test_the_driver_may_do_what_it_asks_for(self):
        """Of the API server, by its sources: each object with each method that they name."""
        source = "".join((ROOT / "daemon/dra" / name).read_text(encoding="utf-8") for name in ("publisher.c", "preparer.c"))
        verbs = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}
        role = find(kustomize.render(DRA), "ClusterRole")
        allowed = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
        asked = {verbs[method] for method in re.findall(r'api_call\([^"]*"([A-Z]+)"', source)} | {"create"}
        self.assertEqual(allowed, {"resourceslices": asked, "resourceclaims": {"get"}, "nodes": {"get"}})
        self.assertEqual(find(kustomize.render(DRA), "ClusterRoleBinding")["roleRef"]["name"], role["metadata"]["name"])

    def test_the_policy_is_of_the_drivers_account(self):
        documents = kustomize.render(DRA)
        account = find(documents, "ServiceAccount")["metadata"]
        (condition,) = find(documents, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
        self.assertIn(f'"system:serviceaccount:{account["namespace"]}:{account["name"]}"', condition["expression"])
        self.assertEqual(find(documents, "ValidatingAdmissionPolicyBinding")["spec"]["policyName"],
                         find(documents, "ValidatingAdmissionPolicy")["metadata"]["name"])

    def test_only_the_driver_has_a_token(self):
        documents = kustomize.render(DRA)
        self.assertFalse(kustomize.pod_spec(find(documents, "DaemonSet"))["automountServiceAccountToken"])
        for container in kustomize.containers(find(documents, "DaemonSet")):
            mounts = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "token"]
            expected = ["/var/run/secrets/kubernetes.io/serviceaccount"] if container["name"] == "dra-driver" else []
            self.assertEqual(mounts, expected)

    def assert_mounted(self, folder, path):
        volumes = kustomize.pod_spec(find(kustomize.render(folder), "DaemonSet"))["volumes"]
        self.assertIn(path, [volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume])

    def test_the_daemon_takes_its_configuration(self):
        documents = kustomize.render(FOLDER / "base")
        arguments = container_of(documents, "daemon")["args"]
        self.assertEqual(arguments[::2], ["--config", "--socket", "--state"])
        self.assert_mounted(FOLDER / "base", arguments[5])
        self.assertEqual(arguments[1], "/etc/gpushare/" + next(iter(find(documents, "ConfigMap")["data"])))
        with tempfile.TemporaryDirectory() as folder:
            command = [DAEMON, "--config", FOLDER / "base/gpushare.conf", "--socket", f"{folder}/daemon.sock",
                       "--state", f"{folder}/state"]
            daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            lines = iter(daemon.stderr.readline, "")
            self.assertTrue(any("listening" in line for line in lines), "it has ended")
            daemon.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.wait(PATIENCE_S), 0)
            daemon.stderr.close()

    def test_the_opportunistic_overlay(self):
        base, overlay = (container_of(kustomize.render(folder), "device-plugin")["args"] for folder in RENDERED[:2])
        self.assertEqual(overlay[: len(base)], base)
        self.assertTrue(any(argument.startswith("--opportunistic-shares=") for argument in overlay[len(base) :]))
        self.assertIn("--class=production", overlay)


class Image(unittest.TestCase):
    """The Dockerfile can't be built here; that much can be seen."""

    def test_it_has_what_the_manifests_start(self):
        text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
        for folder in (FOLDER / "base", DRA):
            for container in kustomize.containers(find(kustomize.render(folder), "DaemonSet")):
                self.assertIn(container["command"][0], text)
        self.assertIn(container_of(kustomize.render(FOLDER / "base"), "install-library")["command"][1], text)

    def test_it_has_what_the_daemon_loads(self):
        source = (ROOT / "daemon/http/http_server.c").read_text(encoding="utf-8")
        name, version = re.search(r'#define LIBRARY "(\w+)\.so\.(\d+)"', source).groups()
        last = (FOLDER / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")[-1]
        self.assertRegex(last, rf"apt-get install .*\b{name}{version}\b")

    def test_it_has_what_the_driver_is_linked_to(self):
        last = (FOLDER / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")[-1]
        self.assertRegex(last, r"apt-get install .*\blibcurl4\b")
        self.assertIn("gpushare-dra-driver --version", last)

    def test_what_it_copies_is_there(self):
        lines = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
        self.assertTrue(copied)
        for sources in copied:
            for source in sources:
                self.assertTrue((ROOT / source).exists(), source)


class Library(unittest.TestCase):
    def install(self, *arguments):
        return subprocess.run([FOLDER / "install-library", *arguments], capture_output=True, text=True, check=False)

    def test_is_replaced_as_a_whole(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "host").mkdir()
            inodes = []
            for contents in (b"old" * 100, b"new"):
                (folder / "built").write_bytes(contents)
                result = self.install(folder / "built", folder / "host")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual((folder / "host/libunified.so").read_bytes(), contents)
                self.assertEqual((folder / "host/ld.so.preload").read_text(), f"{folder}/host/libunified.so\n")
                inodes.append(os.stat(folder / "host/libunified.so").st_ino)
                for path in (folder / "host").iterdir():
                    self.assertEqual(path.stat().st_mode & 0o777, 0o755)
            self.assertEqual(sorted(path.name for path in (folder / "host").iterdir()), ["ld.so.preload", "libunified.so"])
            self.assertNotEqual(*inodes)

    def test_says_what_is_missing(self):
        for arguments in ([], ["/nonexistent", "/tmp"], [FOLDER / "install-library", "/nonexistent"]):
            result = self.install(*arguments)
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stderr.startswith("install-library: "))


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 0 if kubernetes_validate else 77)
