"""The plugin beside a kubelet: registration, restarts of either, health, allocations.
Needs grpcio and protobuf; ends with 77 without them."""
import os
import signal
import subprocess
import sys
import unittest

try:
    import grpc

    import messages
    from kubelet import GPU, OPPORTUNISTIC, PATIENCE_S, UUIDS, Client, scene, wait_until
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

GIB = 1 << 30


class Api(unittest.TestCase):
    def test_the_messages_are_those_of_kubelets(self):
        declared = {message.name: messages.fields_of(message) for message in messages.DESCRIPTORS.file[0].message_type}
        self.assertEqual(declared, messages.FIELDS)
        self.assertEqual(messages.DESCRIPTORS.file[0].package, "v1beta1")


class Registration(unittest.TestCase):
    def test_both_resources_are_registered_and_watched(self):
        with scene("--shares", "3", "--opportunistic-shares", "2", gpus=2) as here:
            here.kubelet.wait_healthy(6, GPU)
            here.kubelet.wait_healthy(4, OPPORTUNISTIC)
            self.assertEqual(
                {(r.version, r.endpoint, r.resource_name) for r in here.kubelet.registrations},
                {("v1beta1", "gpushare.sock", GPU), ("v1beta1", "gpushare-opportunistic.sock", OPPORTUNISTIC)},
            )
            for request in here.kubelet.registrations:
                self.assertTrue(request.options.get_preferred_allocation_available)
                self.assertFalse(request.options.pre_start_required)
            self.assertEqual(here.kubelet.healthy(), [f"{uuid}.{n}" for uuid in UUIDS[:2] for n in range(3)])
            options = here.kubelet.clients[GPU].options()
            self.assertTrue(options.get_preferred_allocation_available)

    def test_one_resource_unless_told_otherwise(self):
        with scene() as here:
            here.kubelet.wait_healthy(10)
            self.assertEqual([r.resource_name for r in here.kubelet.registrations], [GPU])
            self.assertFalse(here.socket(OPPORTUNISTIC).exists())

    def test_a_kubelet_that_comes_later(self):
        with scene(kubelet=False) as here:
            wait_until("the plugin listens", here.socket().exists)
            stub = here.path / "kubelet" / "kubelet.sock"

            def tries():
                return here.log.read_text().count("gpushare.io/gpu is not registered yet")

            for count in range(2, 22):  # each at once, not when a pause is over
                stub.touch()
                wait_until(f"it has tried {count} times", lambda: tries() >= count)
                stub.unlink()
            here.kubelet.start()
            here.kubelet.wait_healthy(10)

    @unittest.skipUnless("GS_REMOVER" in os.environ, "a sanitizer wants to be the first library")
    def test_a_socket_that_is_removed_while_the_plugin_opens_it(self):
        with scene(env={"LD_PRELOAD": os.environ["GS_REMOVER"]}) as here:
            here.kubelet.wait_healthy(10)

    def test_a_kubelet_that_starts_anew(self):
        with scene("--opportunistic-shares", "4") as here:
            for _ in range(3):
                here.kubelet.wait_healthy(10)
                here.kubelet.wait_healthy(4, OPPORTUNISTIC)
                here.kubelet.stop()
                here.kubelet.start()  # which removes the plugin's sockets
            here.kubelet.wait_healthy(10)
            here.kubelet.wait_healthy(4, OPPORTUNISTIC)
            self.assertEqual(len(here.kubelet.clients[GPU].allocate(f"{UUIDS[0]}.0")), 3)

    def test_a_kubelet_that_refuses_is_asked_again(self):
        with scene(kubelet=False) as here:
            here.kubelet.refusals = 2
            here.kubelet.start()
            here.kubelet.wait_healthy(10)
            self.assertEqual(len(here.kubelet.registrations), 3)

    def test_a_plugin_that_starts_anew(self):
        with scene() as here:
            for how, left in ((signal.SIGTERM, False), (signal.SIGKILL, True)):
                here.kubelet.wait_healthy(10)
                code = here.end(here.plugin, how)
                self.assertEqual(code, 0 if how == signal.SIGTERM else -how)
                self.assertEqual(here.socket().exists(), left)
                here.kubelet.wait("the kubelet sees that it has gone", lambda: GPU not in here.kubelet.devices)
                here.start_plugin()
            here.kubelet.wait_healthy(10)

    def test_a_kubelet_that_does_not_watch_or_stops_is_told_again(self):
        with scene(kubelet=False) as here:
            here.kubelet.omissions = 1
            here.kubelet.start()
            here.kubelet.wait_registrations(2)
            here.kubelet.wait_healthy(10)
            here.kubelet.clients[GPU].close()
            here.kubelet.wait_registrations(3)
            here.kubelet.wait_healthy(10)

    def test_a_folder_that_goes_ends_the_plugin(self):
        with scene(kubelet=False) as here:
            wait_until("the plugin listens", here.socket().exists)
            (here.path / "kubelet").rename(here.path / "elsewhere")
            self.assertEqual(here.plugin.wait(PATIENCE_S), 1)
            here.plugin = here.spawn("sleep", "60")  # the scene wants something that runs


class Health(unittest.TestCase):
    def test_the_daemon_goes_and_comes(self):
        # Its end is seen when it happens, not at the next look.
        with scene("--opportunistic-shares", "2", "--interval", "1h", daemon=False) as here:
            here.kubelet.wait_healthy(0)
            for how in (signal.SIGTERM, signal.SIGKILL):
                here.start_daemon()
                here.kubelet.wait_healthy(10)
                here.kubelet.wait_healthy(2, OPPORTUNISTIC)
                here.end(here.daemon, how)
                here.kubelet.wait_healthy(0)
                here.kubelet.wait_healthy(0, OPPORTUNISTIC)

    def test_nothing_is_told_while_nothing_changes(self):
        with scene() as here:
            here.kubelet.wait_healthy(10)
            told = here.kubelet.updates[GPU]
            text = here.log.read_text()
            self.assertEqual(text.count("the daemon answers"), 1)
            for _ in range(20):  # several times the interval passes
                here.kubelet.clients[GPU].allocate(f"{UUIDS[0]}.0")
            self.assertEqual(here.kubelet.updates[GPU], told)

    def test_a_device_file_goes_and_comes(self):
        with scene(daemon=False, kubelet=False, gpus="", env={"LD_LIBRARY_PATH": "/nonexistent"}) as here:
            self.assertEqual(here.plugin.wait(PATIENCE_S), 1)  # neither NVML nor --gpus
            here.start_daemon()
            here.kubelet.start()
            node = here.path / "nvidia0"
            node.touch()
            here.start_plugin(gpus=f"{UUIDS[0]}:80G:{node},{UUIDS[1]}")
            for _ in range(2):
                here.kubelet.wait_healthy(20)
                node.unlink()
                here.kubelet.wait_healthy(10)
                self.assertTrue(all(i.startswith(UUIDS[1]) for i in here.kubelet.healthy()))
                node.touch()
            here.kubelet.wait_healthy(20)

    def test_wrong_options_are_wrong_usage(self):
        wrong = {"--shares": ["0", "1001", "many"], "--placement": ["here"], "--class": ["best"], "--interval": ["1ms"],
                 "--gpus": ["0", "", f"{UUIDS[0]},{UUIDS[0]}", f"{UUIDS[0]}:much", f"{UUIDS[0]}::/{'x' * 108}"]}
        for option, value in ((option, value) for option, values in wrong.items() for value in values):
            ended = subprocess.run([os.environ["GS_PLUGIN"], option, value], stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
            self.assertEqual(ended.returncode, 64, (option, value))
            self.assertIn(f"{option}: '{value}' is not ", ended.stderr)
            self.assertEqual(ended.stderr.count("\n"), 1)

    def test_nvml_finds_gpus_and_loses_one(self):
        with scene(daemon=False, kubelet=False, gpus=UUIDS[3]) as here:
            here.end(here.plugin)
            here.start_daemon()
            here.kubelet.start()
            lost = here.path / "lost"
            lost.mkdir()
            env = {"LD_LIBRARY_PATH": os.environ["GS_NVML_FOLDER"], "GS_NVML_GPUS": "2", "GS_NVML_LOST": str(lost)}
            here.start_plugin("--memory-limit", "share", gpus="", env=env)
            here.kubelet.wait_healthy(20)
            first, second = (f"GPU-0000000{i}-0000-4000-8000-000000000000" for i in range(2))
            environment = here.kubelet.clients[GPU].allocate(f"{second}.3")[0]
            self.assertEqual(environment["GPUSHARE_MEMORY_LIMIT"], str(8 * GIB))
            for _ in range(2):
                (lost / "0").touch()
                here.kubelet.wait_healthy(10)
                self.assertEqual(here.kubelet.healthy()[0], f"{second}.0")
                (lost / "0").unlink()
                here.kubelet.wait_healthy(20)
            self.assertEqual(here.kubelet.healthy()[0], f"{first}.0")


class Allocation(unittest.TestCase):
    def test_what_a_container_gets(self):
        with scene("--library-dir", "/opt/gs", "--opportunistic-shares", "5") as here:
            here.kubelet.wait_healthy(10)
            here.kubelet.wait_healthy(5, OPPORTUNISTIC)
            run = str(here.path / "run")
            environment, mounts, cdi = here.kubelet.clients[GPU].allocate(f"{UUIDS[0]}.7")
            self.assertEqual(environment, {"GPUSHARE_SOCKET": f"{run}/daemon.sock", "NVIDIA_VISIBLE_DEVICES": UUIDS[0]})
            self.assertEqual(
                mounts,
                {run: (run, True), "/opt/gs": ("/opt/gs", True), "/etc/ld.so.preload": ("/opt/gs/ld.so.preload", True)},
            )
            self.assertEqual(cdi, [])
            environment = here.kubelet.clients[OPPORTUNISTIC].allocate(f"{UUIDS[0]}.4")[0]
            self.assertEqual(environment["GPUSHARE_CLASS"], "opportunistic")

    def test_the_other_ways(self):
        with scene("--preload", "env", "--visible", "cdi", "--class", "production", gpus=2) as here:
            here.kubelet.wait_healthy(20)
            environment, mounts, cdi = here.kubelet.clients[GPU].allocate(f"{UUIDS[1]}.0", f"{UUIDS[0]}.0")
            self.assertEqual(environment["LD_PRELOAD"], "/var/lib/gpushare/libunified.so")
            self.assertEqual(environment["GPUSHARE_CLASS"], "production")
            self.assertNotIn("NVIDIA_VISIBLE_DEVICES", environment)
            self.assertNotIn("/etc/ld.so.preload", mounts)
            self.assertEqual(cdi, [f"nvidia.com/gpu={uuid}" for uuid in UUIDS[:2]])

    def test_what_several_shares_mean(self):
        with scene("--shares", "4", "--memory-limit", "share", gpus=f"{UUIDS[0]}:80G,{UUIDS[1]}:40G,{UUIDS[2]}") as here:
            here.kubelet.wait_healthy(12)
            client = here.kubelet.clients[GPU]

            def terms(*ids):
                environment = client.allocate(*ids)[0]
                limit = environment.get("GPUSHARE_MEMORY_LIMIT")
                return environment.get("GPUSHARE_WEIGHT"), limit and int(limit), environment["NVIDIA_VISIBLE_DEVICES"]

            a, b, c = UUIDS[:3]
            self.assertEqual(terms(f"{a}.1"), (None, 20 * GIB, a))
            self.assertEqual(terms(f"{a}.1", f"{a}.3", f"{a}.0"), ("300", 60 * GIB, a))
            self.assertEqual(terms(f"{a}.1", f"{a}.2", f"{b}.2", f"{b}.0"), ("200", 20 * GIB, f"{a},{b}"))
            self.assertEqual(terms(f"{a}.1", f"{a}.2", f"{b}.2"), (None, 10 * GIB, f"{a},{b}"))
            self.assertEqual(terms(f"{c}.1"), (None, None, c))  # whose size nobody knows

    def test_several_containers(self):
        with scene() as here:
            here.kubelet.wait_healthy(10)
            answer = here.kubelet.clients[GPU].start_allocate([f"{UUIDS[0]}.0"], [f"{UUIDS[0]}.1", f"{UUIDS[0]}.2"]).result()
            weights = [{e.key: e.value for e in c.envs}.get("GPUSHARE_WEIGHT") for c in answer.container_responses]
            self.assertEqual(weights, [None, "200"])

    def test_devices_that_are_not_there(self):
        with scene() as here:
            here.kubelet.wait_healthy(10)
            client = here.kubelet.clients[GPU]
            for name in ("", "x", f"{UUIDS[0]}", f"{UUIDS[0]}.10", f"{UUIDS[0]}.-1", f"{UUIDS[0]}.01", f"{UUIDS[0]}.",
                         f"{UUIDS[1]}.0", f"{UUIDS[0]}.0 ", "." * 5000):
                with self.subTest(name=name[:60]), self.assertRaises(grpc.RpcError) as raised:
                    client.allocate(f"{UUIDS[0]}.1", name)
                self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            with self.assertRaises(grpc.RpcError):
                client.allocate()
            request = messages.new("PreStartContainerRequest", devices_ids=[f"{UUIDS[0]}.1"])
            client.call("PreStartContainer", request, "PreStartContainerResponse").result()

    def test_a_thousand_allocations(self):
        with scene("--shares", "1000") as here:
            here.kubelet.wait_healthy(1000)
            client = here.kubelet.clients[GPU]
            calls = [client.start_allocate([f"{UUIDS[0]}.{n}"]) for n in range(1000)]
            for call in calls:
                environment = {entry.key: entry.value for entry in call.result().container_responses[0].envs}
                self.assertEqual(environment["NVIDIA_VISIBLE_DEVICES"], UUIDS[0])


class Preference(unittest.TestCase):
    def ids(self, *shares):
        """(GPU, share) -> names"""
        return [f"{UUIDS[gpu]}.{share}" for gpu, share in shares]

    def prefer(self, options, free, size, required=()):
        """Of so many free shares of each GPU: how many are chosen of each."""
        with scene("--shares", "10", *options, gpus=len(free)) as here:
            here.kubelet.wait_healthy(10 * len(free))
            available = self.ids(*((gpu, share) for gpu, count in enumerate(free) for share in range(count)))
            chosen = here.kubelet.clients[GPU].prefer(size, available, self.ids(*required))
            self.assertEqual(len(set(chosen)), size)
            self.assertLessEqual(set(chosen), set(available))
            self.assertLessEqual(set(self.ids(*required)), set(chosen))
            return [sum(name.startswith(uuid) for name in chosen) for uuid in UUIDS[: len(free)]]

    def test_spread_and_pack(self):
        for options, free, size, required, expected in (
            ((), [3, 8, 5], 1, (), [0, 1, 0]),
            (("--placement", "pack"), [5, 8, 3], 1, (), [0, 0, 1]),
            ((), [3, 8, 5], 4, (), [0, 4, 0]),  # several of one GPU
            (("--placement", "pack"), [3, 8, 5], 4, (), [0, 0, 4]),  # the fullest that has enough
            ((), [3, 8, 5], 10, (), [0, 8, 2]),  # as few GPUs as possible
            (("--placement", "pack"), [3, 8, 5], 10, (), [2, 8, 0]),
            ((), [3, 8, 5], 2, ((0, 1),), [2, 0, 0]),  # with what must be included
            (("--several", "apart"), [3, 8, 5], 3, (), [1, 1, 1]),
            (("--several", "apart", "--placement", "pack"), [3, 8, 5], 2, (), [1, 0, 1]),
            (("--several", "apart"), [3, 8, 5], 2, ((1, 0),), [0, 1, 1]),
        ):
            with self.subTest(options=options, free=free, size=size, required=required):
                self.assertEqual(self.prefer(options, free, size, required), expected)

    def test_what_is_not_possible(self):
        with scene() as here:
            here.kubelet.wait_healthy(10)
            client = here.kubelet.clients[GPU]
            free = self.ids((0, 1), (0, 2))
            for size, available, required in ((3, free, ()), (-1, free, ()), (1, free, free), (1, free, self.ids((0, 3))),
                                              (2, free, [free[0]] * 2), (1 << 30, free, ())):
                with self.subTest(size=size, required=required), self.assertRaises(grpc.RpcError) as raised:
                    client.prefer(size, available, required)
                self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual(client.prefer(2, free + ["gone.1", f"{UUIDS[0]}.77"]), free)
            self.assertEqual(client.prefer(0, free), [])


if __name__ == "__main__":
    unittest.main()
