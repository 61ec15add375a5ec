"""What the driver makes of claims: CDI specs, what the daemon is told, errors for each by itself; and, over random
histories with restarts and failures, that exactly the claims that are prepared have a spec.

GPUSHARE_SEED and GPUSHARE_RUNS choose histories. Needs grpcio, protobuf and openssl; ends with 77 without them."""
import os
import random
import shutil
import signal
import sys
import time
import unittest

try:
    import grpc

    from node import CLASSES, DRIVER, NODE, UUIDS, V1, V1BETA1, Claim, config, scene, wait_until
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
if not shutil.which("openssl"):
    print("skipped: no openssl")
    sys.exit(77)

GIB = 1 << 30
STEPS = 60


class Claims(unittest.TestCase):
    def prepared(self, here, *claims, package=V1):
        for claim in claims:
            here.api.put(claim.path, claim.to_object())
        answers = here.kubelet.prepare(*claims, package=package)
        self.assertEqual(set(answers), {claim.uid for claim in claims})
        return [answers[claim.uid] for claim in claims]

    def refused(self, here, claim, text):
        """It is not prepared, and why says this."""
        (answer,) = self.prepared(here, claim)
        self.assertIn(text, answer.error)
        self.assertEqual(here.specs(), {})
        self.assertEqual(list(here.state.glob("*")), [])

    def test_registration(self):
        with scene() as here:
            info = here.kubelet.register()
            self.assertEqual((info.type, info.name), ("DRAPlugin", DRIVER))
            self.assertEqual(info.endpoint, str(here.kubelet.socket))
            self.assertEqual(list(info.supported_versions), ["v1.DRAPlugin", "v1beta1.DRAPlugin"])

    def test_a_container_gets_library_socket_and_gpu(self):
        with scene() as here:
            here.wait_devices(2)
            claim = Claim((UUIDS[0], "8Gi", "25"), (UUIDS[1], "1536Mi", "10"))
            (answer,) = self.prepared(here, claim)
            self.assertEqual(answer.error, "")
            self.assertEqual([list(device.request_names) for device in answer.devices], [["gpu-0"], ["gpu-1"]])
            spec = here.specs()[claim.uid]
            names = {f"{spec['kind']}={device['name']}": device for device in spec["devices"]}
            for gpu, device in zip(UUIDS, answer.devices):
                self.assertEqual((device.pool_name, device.device_name), (NODE, f"gpu-{gpu[4:]}"))
                ours, nvidias = device.cdi_device_ids
                self.assertEqual(nvidias, f"nvidia.com/gpu={gpu}")
                edits = names[ours]["containerEdits"]
                run = str(here.path / "run")
                mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
                self.assertEqual(mounts, {run: run, "/var/lib/gpushare": "/var/lib/gpushare",
                                          "/etc/ld.so.preload": "/var/lib/gpushare/ld.so.preload"})
                self.assertEqual(edits["env"], [f"GPUSHARE_SOCKET={run}/daemon.sock"])
            self.assertEqual(here.allotted(claim.pods[0]), (1536 << 20, 10))
            self.assertIn(f"allots pod {claim.pods[0]} {8 * GIB} bytes at weight 25", here.daemon_log.read_text())
            self.assertIn(f"calls the namespace of pod {claim.pods[0]} {claim.namespace}\n", here.daemon_log.read_text())
            self.assertIn(f"calls the name of pod {claim.pods[0]} pod-0\n", here.daemon_log.read_text())

    def test_both_versions_of_the_api(self):
        with scene("--preload", "env") as here:
            here.wait_devices(2)
            claim = Claim()
            first, second = (self.prepared(here, claim, package=package)[0] for package in (V1, V1BETA1))
            self.assertEqual(first.SerializeToString(), second.SerializeToString())
            (device,) = here.specs()[claim.uid]["devices"]
            self.assertIn("LD_PRELOAD=/var/lib/gpushare/libunified.so", device["containerEdits"]["env"])
            self.assertEqual(here.kubelet.unprepare(claim, package=V1BETA1)[claim.uid].error, "")
            self.assertEqual(here.specs(), {})

    def test_parameters(self):
        with scene() as here:
            here.wait_devices(2)
            claim = Claim(configs=[
                config(weight=5),
                config("FromClass", **{"class": "production"}, weight=900),
                config("FromClass", requests=["another"], weight=7),
                config(driver="nic.example.com", speed=1),
            ])
            self.assertEqual(self.prepared(here, claim)[0].error, "")
            self.assertEqual(here.allotted(claim.pods[0]), (8 * GIB, 5))
            (device,) = here.specs()[claim.uid]["devices"]
            self.assertIn("GPUSHARE_CLASS=production", device["containerEdits"]["env"])

    def test_wrong_parameters_are_refused(self):
        wrong = [
            (config(quantum=5), "unknown field 'quantum'"),
            (config(weight="5"), "'weight' must be a number"),
            (config(weight=0), "'weight' must be a number"),
            (config(weight=26), "at most 25, which its share gives it"),
            (config(**{"class": "best"}), "'class' must be standard, production or opportunistic"),
            (config(**{"class": "production"}), "production is given by a DeviceClass"),
            (config(apiVersion="gpushare.io/v2"), "must be of apiVersion gpushare.io/v1"),
        ]
        with scene() as here:
            here.wait_devices(2)
            for given, text in wrong:
                with self.subTest(text=text):
                    self.refused(here, Claim(configs=[given]), text)

    def test_claims_that_are_not_what_they_should_be(self):
        with scene() as here:
            here.wait_devices(2)
            self.refused(here, Claim(pool="node-2"), "is allocated no device of driver gpushare.io and pool node-1")
            self.refused(here, Claim((UUIDS[3], "8Gi", "1")), "which this node has not")
            self.refused(here, Claim((UUIDS[0], "8 GB", "1")), "'memory' is not a quantity")
            self.refused(here, Claim(pods=0, own=False), "is reserved for no pod")
            claim = Claim()
            here.api.put(claim.path, {**Claim(name=claim.name).to_object()})
            self.assertIn("the claim was made anew", here.kubelet.prepare(claim)[claim.uid].error)
            self.assertEqual(here.specs(), {})

    def test_each_claim_fails_by_itself(self):
        with scene() as here:
            here.wait_devices(2)
            right, wrong, absent = Claim(name="a"), Claim(name="b", pool="elsewhere"), Claim(name="c")
            here.api.put(right.path, right.to_object())
            here.api.put(wrong.path, wrong.to_object())
            answers = here.kubelet.prepare(right, wrong, absent)
            self.assertEqual(answers[right.uid].error, "")
            self.assertIn("pool node-1", answers[wrong.uid].error)
            self.assertIn("404", answers[absent.uid].error)
            self.assertEqual(set(here.specs()), {right.uid})

    def test_claims_of_one_pod_add_up(self):
        with scene() as here:
            here.wait_devices(2)
            one, two = Claim((UUIDS[0], "8Gi", "25"), name="a"), Claim((UUIDS[0], "2G", "10"), name="b")
            two.pods = one.pods
            self.prepared(here, one, two)
            self.assertEqual(here.allotted(one.pods[0]), (8 * GIB + 2 * 10**9, 35))
            here.kubelet.unprepare(one)
            wait_until("what it is told then", lambda: here.allotted(one.pods[0]) == (2 * 10**9, 10))
            here.kubelet.unprepare(two)
            wait_until("what it is told then", lambda: here.allotted(one.pods[0]) == (0, 0))

    def test_pods_that_come_to_a_shared_claim(self):
        with scene() as here:
            here.wait_devices(2)
            claim = Claim(own=False)
            self.prepared(here, claim)
            claim.pods.append("0b000000-0000-4000-8000-000000000001")
            here.api.put(claim.path, claim.to_object())
            wait_until("the new pod", lambda: here.allotted(claim.pods[1]) == (8 * GIB, 25))
            gone = claim.pods.pop(0)
            here.api.put(claim.path, claim.to_object())
            wait_until("the end of the old one", lambda: here.allotted(gone) == (0, 0))

    def test_pods_with_a_claim_in_common_have_the_sum_together(self):
        with scene() as here:
            here.wait_devices(2)
            common = Claim(own=False, pods=3)
            own = [Claim((UUIDS[0], "256Mi", "5"), name=f"own-{i}") for i in range(3)]
            for claim, pod in zip(own, common.pods):
                claim.pods = [pod]
            self.prepared(here, common, *own)
            for pod in common.pods:
                self.assertEqual(here.allotted(pod), (8 * GIB + 3 * (256 << 20), 25 + 3 * 5))
            here.kubelet.unprepare(common)
            for pod in common.pods:
                wait_until("what it is told then", lambda: here.allotted(pod) == (256 << 20, 5))

    def test_a_claim_that_is_gone_hides_no_other(self):
        with scene() as here:
            here.wait_devices(2)
            gone, claim = Claim(own=False, name="a"), Claim(own=False, name="b")
            self.prepared(here, gone, claim)
            here.api.remove(gone.path)
            claim.pods.append("0b000000-0000-4000-8000-000000000001")
            here.api.put(claim.path, claim.to_object())
            wait_until("the new pod", lambda: here.allotted(claim.pods[1]) == (8 * GIB, 25))
            asked = here.api.count("GET", gone.path, 404)
            here.api.wait("another look", lambda: here.api.count("GET", gone.path, 404) > asked + 1, 60)
            said = "warn: can't look for pods of claim users/a"
            self.assertEqual(here.log.read_text().count(said), 1)

    def test_what_the_daemon_did_not_hear_is_told_again(self):
        """Its socket is hidden while a pod comes: the driver's old connection shows no new daemon."""
        with scene() as here:
            here.wait_devices(2)
            claim = Claim(own=False)
            self.prepared(here, claim)
            socket = here.path / "run" / "daemon.sock"
            socket.rename(here.path / "hidden")
            claim.pods.append("0b000000-0000-4000-8000-000000000001")
            here.api.put(claim.path, claim.to_object())
            wait_until("a failure", lambda: "no daemon answers at" in here.log.read_text())
            self.assertIsNone(here.allotted(claim.pods[1]))
            (here.path / "hidden").rename(socket)
            wait_until("the pod", lambda: here.allotted(claim.pods[1]) == (8 * GIB, 25))

    def test_after_a_slow_look_there_is_a_pause(self):
        with scene() as here:
            here.wait_devices(2)
            claim = Claim(own=False)
            self.prepared(here, claim)
            here.api.delays.append(("resourceclaims", 6))
            asked = here.api.count("GET", claim.path)
            here.api.wait("a slow look", lambda: here.api.count("GET", claim.path) > asked, 60)
            here.api.delays.clear()
            asked = here.api.count("GET", claim.path)
            time.sleep(4)
            self.assertEqual(here.api.count("GET", claim.path), asked)

    def test_without_a_daemon_nothing_is_prepared(self):
        with scene(daemon=False) as here:
            claim = Claim()
            self.refused(here, claim, "no daemon answers at")
            here.start_daemon()
            wait_until("the daemon", lambda: self.prepared(here, claim)[0].error == "")
            here.end(here.daemon)
            here.daemon_log.unlink()
            here.start_daemon()
            wait_until("what it is told again", lambda: here.allotted(claim.pods[0]) == (8 * GIB, 25))

    def test_files_that_can_not_be_written(self):
        with scene() as here:
            here.wait_devices(2)
            claim = Claim()
            shutil.rmtree(here.cdi)
            here.cdi.write_text("no folder")
            here.api.put(claim.path, claim.to_object())
            self.assertIn("can't write the files of the claim", here.kubelet.prepare(claim)[claim.uid].error)
            wait_until("what it is told then", lambda: here.allotted(claim.pods[0]) == (0, 0))
            here.cdi.unlink()
            here.cdi.mkdir()
            self.assertEqual(self.prepared(here, claim)[0].error, "")
            self.assertEqual(set(here.specs()), {claim.uid})

    def test_names_that_are_paths(self):
        with scene() as here:
            here.wait_devices(2)
            for uid, name in (("../../x", "claim"), ("", "claim"), ("ab/cd", "claim"), ("abc", "../nodes"), ("abc", "a?b")):
                claim = Claim(name=name)
                claim.uid = uid
                self.assertIn("no right uid", here.kubelet.prepare(claim)[uid].error)
                if uid != "abc":
                    self.assertIn("no right uid", here.kubelet.unprepare(claim)[uid].error)
            self.assertEqual(here.specs(), {})
            self.assertEqual(here.api.count("GET", "resourceclaims"), 0)

    def test_bytes_that_are_no_messages(self):
        seed = int(os.environ.get("GPUSHARE_SEED", "1"))
        rng = random.Random(seed)
        with scene() as here:
            here.wait_devices(2)
            right = CLASSES[V1]["NodePrepareResourcesRequest"](
                claims=[CLASSES[V1]["Claim"](namespace="users", uid="ab-cd", name="c")]).SerializeToString()
            for _ in range(150):
                text = bytearray(right * rng.randrange(3) or rng.randbytes(rng.randrange(40)))
                for _ in range(rng.randrange(4)):
                    if text:
                        text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
                try:
                    here.kubelet.call(V1, "NodePrepareResources", bytes(text), "NodePrepareResourcesResponse")
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), grpc.StatusCode.INTERNAL, f"seed {seed}")
            self.assertIsNone(here.driver.poll())
            self.assertEqual(here.specs(), {})

    def test_files_that_a_crash_leaves(self):
        """A spec without its claim, and drafts."""
        with scene() as here:
            here.wait_devices(2)
            kept, lost = Claim(name="a"), Claim(name="b")
            self.prepared(here, kept, lost)
            here.end(here.driver, signal.SIGKILL)
            (here.state / f"{lost.uid}.json").unlink()
            (here.state / f"{lost.uid}.json.new").write_text("{")
            (here.cdi / f"{DRIVER}-claim_{kept.uid}.json").unlink()
            (here.cdi / f"{DRIVER}-claim_{lost.uid}.json.new").write_text("{")
            (here.cdi / "vendor.json").write_text("{}")
            here.start_driver()
            here.kubelet.register()
            self.assertEqual(set(here.specs()), {kept.uid, "vendor"})
            self.assertEqual([path.name for path in here.state.iterdir()], [f"{kept.uid}.json"])
            self.assertEqual(len(list(here.cdi.iterdir())), 2)


class History(unittest.TestCase):
    def play(self, here, rng):
        claims = [Claim((UUIDS[rng.randrange(2)], f"{rng.randrange(1, 9)}Gi", "10"), name=f"claim-{i}") for i in range(6)]
        for claim in claims:
            here.api.put(claim.path, claim.to_object())
        prepared, answers = set(), {}
        for _ in range(STEPS):
            what = rng.choice(["prepare"] * 5 + ["unprepare"] * 5 + ["restart", "kill", "fail", "daemon"])
            some = rng.sample(claims, rng.randrange(1, 4))
            if what == "prepare":
                for uid, answer in here.kubelet.prepare(*some, package=rng.choice((V1, V1BETA1))).items():
                    if answer.error:
                        self.assertNotIn(uid, prepared, answer.error)
                        continue
                    same = answer.SerializeToString(deterministic=True)
                    self.assertEqual(answers.setdefault(uid, same), same)
                    prepared.add(uid)
            elif what == "unprepare":
                for uid, answer in here.kubelet.unprepare(*some, package=rng.choice((V1, V1BETA1))).items():
                    self.assertEqual(answer.error, "")
                    prepared.discard(uid)
            elif what == "fail":
                here.api.fail("GET", "resourceclaims", *rng.choices((404, 409, 500, 503), k=2))
            elif what == "daemon":
                here.end(here.daemon)
                here.start_daemon()
                wait_until("the daemon", here.daemon_listens)
            else:
                how = signal.SIGTERM if what == "restart" else signal.SIGKILL
                self.assertEqual(here.end(here.driver, how), 0 if what == "restart" else -signal.SIGKILL)
                self.assertEqual(set(here.specs()), prepared)
                here.start_driver()
                here.kubelet.register()
            self.assertEqual(set(here.specs()), prepared)
            self.assertEqual({path.stem for path in here.state.iterdir()}, prepared)
        here.api.failures.clear()
        here.kubelet.unprepare(*claims)
        self.assertEqual(here.specs(), {})

    def test_exactly_the_prepared_claims_have_a_spec(self):
        seed = int(os.environ.get("GPUSHARE_SEED", "1"))
        for run in range(int(os.environ.get("GPUSHARE_RUNS", "3"))):
            with self.subTest(seed=seed + run), scene() as here:
                here.wait_devices(2)
                self.play(here, random.Random(seed + run))


if __name__ == "__main__":
    unittest.main()
