"""A stand-in for the kubelet's device manager, on a real gRPC implementation, and the plugin's process beside it.

It does what a kubelet does: when it starts it removes the sockets in its folder; when a plugin registers, it connects
to the plugin before it answers, and watches its devices until the stream ends. A resource whose stream has ended has
no healthy device.
"""
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

import grpc

import messages

PATIENCE_S = 120  # a loaded machine, and what is tried again after half a minute
GPU, OPPORTUNISTIC = "gpushare.io/gpu", "gpushare.io/gpu-opportunistic"
UUIDS = [f"GPU-{i:08x}-0000-4000-8000-00000000000{i}" for i in range(1, 5)]


def service_path(method):
    return f"/v1beta1.DevicePlugin/{method}"


class Client:
    """One connection to a plugin's socket, as the kubelet's."""

    def __init__(self, path):
        self.channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])

    def close(self):
        self.channel.close()

    def call(self, method, request, answer):
        """Waits for the plugin's socket if it is not there yet."""
        make = self.channel.unary_unary(
            service_path(method),
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=messages.parser(answer),
        )
        return make.future(request, timeout=PATIENCE_S, wait_for_ready=True)

    def watch(self):
        make = self.channel.unary_stream(
            service_path("ListAndWatch"),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.parser("ListAndWatchResponse"),
        )
        return make(messages.new("Empty"))

    def options(self):
        return self.call("GetDevicePluginOptions", messages.new("Empty"), "DevicePluginOptions").result()

    def start_allocate(self, *containers):
        requests = [messages.new("ContainerAllocateRequest", devices_ids=ids) for ids in containers]
        return self.call("Allocate", messages.new("AllocateRequest", container_requests=requests), "AllocateResponse")

    def allocate(self, *ids):
        """What a container with these devices gets: environment, mounts, CDI devices."""
        answer = self.start_allocate(ids).result().container_responses[0]
        environment = {entry.key: entry.value for entry in answer.envs}
        mounts = {mount.container_path: (mount.host_path, mount.read_only) for mount in answer.mounts}
        return environment, mounts, [device.name for device in answer.cdi_devices]

    def prefer(self, size, available, required=()):
        request = messages.new(
            "ContainerPreferredAllocationRequest",
            available_deviceIDs=available,
            must_include_deviceIDs=required,
            allocation_size=size,
        )
        whole = messages.new("PreferredAllocationRequest", container_requests=[request])
        answer = self.call("GetPreferredAllocation", whole, "PreferredAllocationResponse").result()
        return list(answer.container_responses[0].deviceIDs)


class Kubelet:
    """Runs from start() to stop(), any number of times."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.changed = threading.Condition()
        self.refusals = 0  # so many registrations are refused
        self.omissions = 0  # so many are taken, and nobody watches the devices
        self.server = None
        self.forget()

    def forget(self):
        self.registrations = []  # all of them
        self.devices = {}  # resource -> {id: Device} while it is watched
        self.updates = {}  # resource -> how often it was told of devices
        self.clients = {}  # resource -> the present one

    def start(self):
        for entry in self.folder.iterdir():
            entry.unlink()
        handler = grpc.unary_unary_rpc_method_handler(
            self.on_register,
            request_deserializer=messages.parser("RegisterRequest"),
            response_serializer=lambda message: message.SerializeToString(),
        )
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        service = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler})
        self.server.add_generic_rpc_handlers((service,))
        self.server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        self.server.start()

    def stop(self):
        self.server.stop(0).wait()
        self.server = None
        for client in self.clients.values():
            client.close()
        self.forget()

    def on_register(self, request, context):
        with self.changed:
            self.registrations.append(request)
            self.changed.notify_all()
            if self.refusals > 0:
                self.refusals -= 1
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
            if self.omissions > 0:
                self.omissions -= 1
                return messages.new("Empty")
        client = Client(self.folder / request.endpoint)
        stream = client.watch()
        first = next(stream)
        threading.Thread(target=self.follow, args=(request.resource_name, client, first, stream), daemon=True).start()
        return messages.new("Empty")

    def follow(self, resource, client, first, stream):
        with self.changed:
            before = self.clients.get(resource)
            self.clients[resource] = client
        self.take(resource, client, first)
        if before:
            before.close()
        with contextlib.suppress(grpc.RpcError):
            for response in stream:
                self.take(resource, client, response)
        with self.changed:
            if self.clients.get(resource) is client:
                self.devices.pop(resource, None)
                self.changed.notify_all()

    def take(self, resource, client, response):
        with self.changed:
            if self.clients.get(resource) is client:
                self.devices[resource] = {device.ID: device for device in response.devices}
                self.updates[resource] = self.updates.get(resource, 0) + 1
                self.changed.notify_all()

    def wait(self, what, condition):
        with self.changed:
            if not self.changed.wait_for(condition, PATIENCE_S):
                raise AssertionError(f"not within {PATIENCE_S} s: {what}")

    def healthy(self, resource=GPU):
        return sorted(i for i, device in self.devices.get(resource, {}).items() if device.health == "Healthy")

    def wait_healthy(self, count, resource=GPU):
        """Until it knows of so many healthy devices, and no fewer."""
        self.wait(f"{count} healthy {resource}", lambda: resource in self.devices and len(self.healthy(resource)) == count)

    def wait_registrations(self, count):
        self.wait(f"{count} registrations", lambda: len(self.registrations) >= count)


class Scene:
    """A folder with the daemon's socket and the kubelet's folder, and what runs there."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gs-plugin-")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "kubelet").mkdir()
        (self.path / "run").mkdir()
        self.kubelet = Kubelet(self.path / "kubelet")
        self.daemon = self.plugin = None
        self.log = self.path / "log"

    def socket(self, resource=GPU):
        return self.path / "kubelet" / ("gpushare.sock" if resource == GPU else "gpushare-opportunistic.sock")

    def spawn(self, *command, env=None):
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, stderr=log, env={**os.environ, **(env or {})})

    def start_daemon(self):
        self.daemon = self.spawn(os.environ["GS_DAEMON"], "--socket", self.path / "run" / "daemon.sock", "--config", "/dev/null")

    def start_plugin(self, *options, gpus=None, env=None):
        """gpus: how many; or as --gpus has them; '' to have them found."""
        names = UUIDS[0] if gpus is None else gpus
        if isinstance(names, int):
            names = ",".join(UUIDS[:names])
        command = [os.environ["GS_PLUGIN"], "--kubelet-dir", self.path / "kubelet", "--interval", "100ms"]
        command += ["--socket", self.path / "run" / "daemon.sock", "--log", "debug"]
        command += ["--gpus", names] if names else []
        self.plugin = self.spawn(*command, *options, env=env)

    def end(self, process, how=signal.SIGTERM):
        process.send_signal(how)
        return process.wait(PATIENCE_S)

    def close(self):
        for process in (self.plugin, self.daemon):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        if self.kubelet.server:
            self.kubelet.stop()
        self.folder.cleanup()


@contextlib.contextmanager
def scene(*options, daemon=True, kubelet=True, **arguments):
    """All of it, running. The log is shown if something fails."""
    here = Scene()
    try:
        if daemon:
            here.start_daemon()
        if kubelet:
            here.kubelet.start()
        here.start_plugin(*options, **arguments)
        yield here
        if here.plugin.poll() is not None:
            raise AssertionError(f"the plugin has ended with {here.plugin.returncode}")
    except BaseException:
        print(here.log.read_text(errors="replace")[-8000:])
        raise
    finally:
        here.close()


def wait_until(what, condition):
    """For what nobody tells of: looks again and again."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.01)
