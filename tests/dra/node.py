"""A node for the driver: a kubelet that is played on a real gRPC implementation, the API server, the daemon, and the
driver's process.

The kubelet's messages are made here, by the names and numbers of the API, and not from the driver's .proto."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from api_server import RESOURCE, SLICES, ApiServer

PATIENCE_S = 120
NODE, DRIVER = "node-1", "gpushare.io"
UUIDS = [f"GPU-{i:08x}-0000-4000-8000-00000000000{i}" for i in range(1, 5)]
SLICE = f"{SLICES}/{NODE}-{DRIVER}"
V1, V1BETA1 = "k8s.io.kubelet.pkg.apis.dra.v1", "v1beta1"

# message -> {field: (number, type)}, as kubelets have them; "+": repeated, "%": a map by strings.
REGISTRATION = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, "string"),
        "name": (2, "string"),
        "endpoint": (3, "string"),
        "supported_versions": (4, "string+"),
    },
    "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
    "RegistrationStatusResponse": {},
}
DRA = {
    "Claim": {"namespace": (1, "string"), "uid": (2, "string"), "name": (3, "string")},
    "Device": {
        "request_names": (1, "string+"),
        "pool_name": (2, "string"),
        "device_name": (3, "string"),
        "cdi_device_ids": (4, "string+"),
    },
    "NodePrepareResourceResponse": {"devices": (1, "Device+"), "error": (2, "string")},
    "NodePrepareResourcesRequest": {"claims": (1, "Claim+")},
    "NodePrepareResourcesResponse": {"claims": (1, "NodePrepareResourceResponse%")},
    "NodeUnprepareResourceResponse": {"error": (1, "string")},
    "NodeUnprepareResourcesRequest": {"claims": (1, "Claim+")},
    "NodeUnprepareResourcesResponse": {"claims": (1, "NodeUnprepareResourceResponse%")},
}
Field = descriptor_pb2.FieldDescriptorProto


def add_field(message, package, name, number, kind):
    field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
    if kind.endswith(("+", "%")):
        field.label = Field.LABEL_REPEATED
    plain = kind.rstrip("+%")
    if kind.endswith("%"):
        entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        add_field(entry, package, "key", 1, "string")
        add_field(entry, package, "value", 2, plain)
        plain = f"{message.name}.{entry.name}"
    if plain in ("string", "bool"):
        field.type = Field.TYPE_STRING if plain == "string" else Field.TYPE_BOOL
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{package}.{plain}"


def make_classes(package, messages):
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            add_field(message, package, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


CLASSES = {"pluginregistration": make_classes("pluginregistration", REGISTRATION), V1: make_classes(V1, DRA),
           V1BETA1: make_classes(V1BETA1, DRA)}
SERVICES = {"pluginregistration": "Registration", V1: "DRAPlugin", V1BETA1: "DRAPlugin"}


class Kubelet:
    """Connects to the driver's socket for each call, as if it had just started."""

    def __init__(self, socket):
        self.socket = socket

    def call(self, package, method, request, answer):
        """request: a message, or bytes. Waits for the socket if it is not there yet."""
        with grpc.insecure_channel(f"unix:{self.socket}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            make = channel.unary_unary(
                f"/{package}.{SERVICES[package]}/{method}",
                request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
                response_deserializer=CLASSES[package][answer].FromString,
            )
            return make(request, timeout=PATIENCE_S, wait_for_ready=True)

    def register(self):
        registration = CLASSES["pluginregistration"]
        info = self.call("pluginregistration", "GetInfo", registration["InfoRequest"](), "PluginInfo")
        self.call("pluginregistration", "NotifyRegistrationStatus", registration["RegistrationStatus"](plugin_registered=True),
                  "RegistrationStatusResponse")
        return info

    def _claims(self, package, method, answer, claims):
        request = CLASSES[package][f"{method}Request"](
            claims=[CLASSES[package]["Claim"](namespace=c.namespace, uid=c.uid, name=c.name) for c in claims])
        return self.call(package, method, request, answer).claims

    def prepare(self, *claims, package=V1):
        return self._claims(package, "NodePrepareResources", "NodePrepareResourcesResponse", claims)

    def unprepare(self, *claims, package=V1):
        return self._claims(package, "NodeUnprepareResources", "NodeUnprepareResourcesResponse", claims)


class Claim:
    """A ResourceClaim that is allocated and reserved; to_object() is what the API server has of it."""

    def __init__(self, *devices, name="claim", pods=1, own=True, configs=(), pool=NODE):
        """devices: (GPU's UUID, memory, share)."""
        self.namespace, self.name, self.uid = "users", name, str(uuid.uuid4())
        self.devices, self.own, self.configs, self.pool = devices or ((UUIDS[0], "8Gi", "25"),), own, configs, pool
        self.pods = [str(uuid.uuid4()) for _ in range(pods)]

    @property
    def path(self):
        return f"{RESOURCE}/namespaces/{self.namespace}/resourceclaims/{self.name}"

    def to_object(self):
        results = [
            {"request": f"gpu-{i}", "driver": DRIVER, "pool": self.pool, "device": f"gpu-{gpu[4:]}",
             "shareID": str(uuid.uuid4()), "consumedCapacity": {"memory": memory, "share": share}}
            for i, (gpu, memory, share) in enumerate(self.devices)
        ]
        results.append({"request": "nic", "driver": "nic.example.com", "pool": NODE, "device": "nic-0"})
        owner = [{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod, "controller": True} for pod in self.pods[:1]]
        return {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": self.name, "namespace": self.namespace, "uid": self.uid,
                         **({"ownerReferences": owner} if self.own else {})},
            "spec": {"devices": {"requests": [{"name": "gpu-0", "exactly": {"deviceClassName": "gpushare"}}]}},
            "status": {
                "allocation": {"devices": {"results": results, "config": list(self.configs)}},
                "reservedFor": [{"resource": "pods", "name": f"pod-{i}", "uid": pod} for i, pod in enumerate(self.pods)],
            },
        }


def config(source="FromClaim", requests=(), driver=DRIVER, **parameters):
    given = {"apiVersion": "gpushare.io/v1", "kind": "ShareParameters", **parameters}
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": given}}


class Scene:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gs-dra-")
        self.path = pathlib.Path(self.folder.name)
        for name in ("registry", "run", "api"):
            (self.path / name).mkdir()
        (self.path / "token").write_text("first\n")
        self.api = ApiServer(self.path / "api", "first")
        self.api.put(f"/api/v1/nodes/{NODE}", {"metadata": {"name": NODE, "uid": "uid-of-the-node"}})
        self.kubelet = Kubelet(self.path / "registry" / f"{DRIVER}-reg.sock")
        self.cdi, self.state = self.path / "cdi", self.path / "state/of/driver"
        self.log, self.daemon_log = self.path / "log", self.path / "daemon.log"
        self.daemon = self.driver = None

    def spawn(self, log, *command, env=None):
        with open(log, "ab") as file:
            return subprocess.Popen(command, stderr=file, env={**os.environ, **(env or {})})

    def start_daemon(self):
        self.daemon = self.spawn(self.daemon_log, os.environ["GS_DAEMON"], "--socket", self.path / "run" / "daemon.sock",
                                 "--config", "/dev/null")

    def daemon_listens(self):
        """Its socket is there before that."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(str(self.path / "run" / "daemon.sock")) == 0

    def start_driver(self, *options, gpus=f"{UUIDS[0]}:80G,{UUIDS[1]}:80G", env=None):
        command = [os.environ["GS_DRA_DRIVER"], "--node-name", NODE, "--interval", "100ms", "--log", "debug"]
        command += ["--registry-dir", self.path / "registry", "--state-dir", self.state, "--cdi-dir", self.cdi]
        command += ["--socket", self.path / "run" / "daemon.sock", "--library-dir", "/var/lib/gpushare"]
        command += ["--api-server", self.api.url, "--token", self.path / "token", "--ca", self.path / "api" / "ca.crt"]
        self.driver = self.spawn(self.log, *command, *(["--gpus", gpus] if gpus else []), *options, env=env)

    def end(self, process, how=signal.SIGTERM):
        process.send_signal(how)
        return process.wait(PATIENCE_S)

    # ---- what there is ----

    def wait_devices(self, count):
        """Until the slice has so many; None: until there is no slice."""
        def there():
            found = self.api.objects.get(SLICE)
            return found is None if count is None else found is not None and len(found["spec"]["devices"]) == count

        self.api.wait(f"{count} devices", there, PATIENCE_S)
        return self.api.objects.get(SLICE)

    def specs(self):
        """claim's uid -> its CDI spec, of all files that a container runtime reads."""
        prefix = f"{DRIVER}-claim_"
        return {path.stem.removeprefix(prefix): json.loads(path.read_text()) for path in self.cdi.glob("*.json")}

    def allotted(self, pod):
        """How the daemon has been told what a pod has, the last time: (bytes, weight); None: never."""
        said = None
        for line in self.daemon_log.read_text(errors="replace").splitlines():
            _, found, rest = line.partition(f"allots pod {pod} ")
            if found:
                words = rest.split()
                said = (int(words[0]), int(words[-1]))
        return said

    def close(self):
        if self.driver and self.driver.poll() not in (None, 0, -signal.SIGKILL):
            print(f"the driver has ended with {self.driver.returncode}")
        for process in (self.driver, self.daemon):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        self.api.stop()
        self.folder.cleanup()


@contextlib.contextmanager
def scene(*options, daemon=True, driver=True, **arguments):
    """All of it, running. The logs are shown if something fails."""
    here = Scene()
    try:
        if daemon:
            here.start_daemon()
        if driver:
            here.start_driver(*options, **arguments)
        yield here
    except BaseException:
        for log in (here.log, here.daemon_log):
            if log.exists():
                print(log.read_text(errors="replace")[-6000:])
        raise
    finally:
        here.close()


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.01)
