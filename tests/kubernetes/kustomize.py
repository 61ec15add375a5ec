"""What `kubectl kustomize` makes of the few fields that packaging/kubernetes uses, where there is no kubectl. Any other
field is an error, so that nothing is silently left out."""
import copy
import pathlib
import warnings

import yaml

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
except ImportError:
    kubernetes_validate = None

KIND = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "DeviceClass", "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding"}


class Unknown(Exception):
    """A field that is not known here."""


def expect_only(mapping, known, where):
    if set(mapping) - set(known):
        raise Unknown(f"{where}: {sorted(set(mapping) - set(known))}")


def read_documents(path):
    with open(path, encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def pod_spec(document):
    """Of a workload or a pod; None."""
    spec = document.get("spec", {})
    return spec if document["kind"] == "Pod" else spec.get("template", {}).get("spec")


def containers(document):
    spec = pod_spec(document) or {}
    return spec.get("initContainers", []) + spec.get("containers", [])


def make_config_map(folder, entry):
    expect_only(entry, {"name", "files"}, "configMapGenerator")
    data = {name: (folder / name).read_text(encoding="utf-8") for name in entry["files"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": entry["name"]}, "data": data}


def set_namespace(documents, namespace):
    for document in documents:
        if document["kind"] == "Namespace":
            document["metadata"]["name"] = namespace
        elif document["kind"] not in CLUSTER_WIDE:
            document["metadata"]["namespace"] = namespace


def set_image(documents, entry):
    expect_only(entry, {"name", "newName", "newTag"}, "images")
    for document in documents:
        for container in containers(document):
            if container["image"].split(":")[0] == entry["name"]:
                container["image"] = f"{entry['newName']}:{entry['newTag']}"


def apply_patch(documents, entry):
    expect_only(entry, {"target", "patch"}, "patches")
    expect_only(entry["target"], {"kind", "name"}, "target")
    targets = [d for d in documents if d["kind"] == entry["target"]["kind"] and d["metadata"]["name"] == entry["target"]["name"]]
    if not targets:
        raise Unknown(f"no target for a patch: {entry['target']}")
    for document in targets:
        for operation in yaml.safe_load(entry["patch"]):
            apply_operation(document, operation)


def apply_operation(document, operation):
    expect_only(operation, {"op", "path", "value"}, "patch")
    if operation["op"] not in ("add", "replace"):
        raise Unknown(operation["op"])
    *way, last = operation["path"].removeprefix("/").split("/")
    place = document
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if operation["op"] == "replace":
        last = int(last) if isinstance(place, list) else last
        place[last]  # it is there
        place[last] = operation["value"]
    elif isinstance(place, dict):
        place[last] = operation["value"]
    elif last == "-":
        place.append(operation["value"])
    else:
        raise Unknown(operation["path"])


def render(folder):
    """The documents of a folder with a kustomization.yaml; names of ConfigMaps without the hash of their contents."""
    folder = pathlib.Path(folder)
    (kustomization,) = read_documents(folder / "kustomization.yaml")
    known = {*KIND, "namespace", "resources", "configMapGenerator", "images", "patches"}
    expect_only(kustomization, known, folder)
    if {key: kustomization.get(key) for key in KIND} != KIND:
        raise Unknown(f"{folder}: not a Kustomization")
    documents = []
    for name in kustomization["resources"]:
        path = folder / name
        documents += render(path) if path.is_dir() else read_documents(path)
    documents += [make_config_map(folder, entry) for entry in kustomization.get("configMapGenerator", [])]
    documents = copy.deepcopy(documents)
    if "namespace" in kustomization:
        set_namespace(documents, kustomization["namespace"])
    for entry in kustomization.get("images", []):
        set_image(documents, entry)
    for entry in kustomization.get("patches", []):
        apply_patch(documents, entry)
    return documents
