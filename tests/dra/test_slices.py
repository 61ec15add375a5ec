"""What the driver publishes, and that it stays published: failures, conflicts, other tokens, a kubelet that removes it.
Needs grpcio, protobuf and openssl; ends with 77 without them."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

try:
    import grpc  # noqa: F401

    from node import NODE, PATIENCE_S, SLICE, UUIDS, scene, wait_until
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
if not shutil.which("openssl"):
    print("skipped: no openssl")
    sys.exit(77)
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

GIB = 1 << 30


def bytes_of(quantity):
    units = {"Mi": 1 << 20, "Gi": GIB}
    return int(quantity[:-2]) * units[quantity[-2:]] if quantity[-2:] in units else int(quantity)


class Slices(unittest.TestCase):
    def check_policy(self, capacity):
        """As the API server checks it: what may be asked for lies within the capacity, by steps."""
        value, policy = bytes_of(capacity["value"]), capacity["requestPolicy"]
        least, step = bytes_of(policy["validRange"]["min"]), bytes_of(policy["validRange"]["step"])
        default = bytes_of(policy["default"])
        self.assertLessEqual(least, default)
        self.assertLessEqual(default, value)
        self.assertEqual((default - least) % step, 0)
        self.assertLessEqual(least + step, value)

    def test_gpus_are_devices_with_capacities(self):
        with scene("--memory-percent", "150", gpus=f"{UUIDS[0]}:80G,{UUIDS[1]}") as here:
            published = here.wait_devices(2)
            spec = published["spec"]
            self.assertEqual(spec["driver"], "gpushare.io")
            self.assertEqual(spec["nodeName"], NODE)
            self.assertEqual(spec["pool"], {"name": NODE, "generation": 1, "resourceSliceCount": 1})
            self.assertEqual(published["metadata"]["ownerReferences"],
                             [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-of-the-node"}])
            known, unknown = spec["devices"]
            self.assertEqual(known["name"], f"gpu-{UUIDS[0][4:]}")
            self.assertTrue(known["allowMultipleAllocations"])
            self.assertEqual(known["attributes"], {"index": {"int": 0}, "uuid": {"string": UUIDS[0]}})
            self.assertEqual(known["capacity"]["memory"]["value"], "120Gi")
            self.assertEqual(known["capacity"]["share"]["value"], "100")
            self.assertNotIn("memory", unknown["capacity"])
            for capacity in known["capacity"].values():
                self.check_policy(capacity)
            if kubernetes_validate:
                for version in ("1.34", "1.37"):
                    kubernetes_validate.validate(published, version, strict=True)

    def test_attributes_that_nvml_tells(self):
        with scene(gpus="", env={"LD_LIBRARY_PATH": os.environ["GS_NVML_FOLDER"], "GS_NVML_GPUS": "1"}) as here:
            (device,) = here.wait_devices(1)["spec"]["devices"]
            self.assertEqual(device["attributes"]["productName"], {"string": "Played 80GB"})
            self.assertEqual(device["attributes"]["architecture"], {"string": "Hopper"})
            self.assertEqual(device["attributes"]["driverVersion"], {"version": "580.95.5"})
            self.assertEqual(device["capacity"]["memory"]["value"], "80Gi")

    def test_unhealthy_gpus_are_withdrawn(self):
        with tempfile.NamedTemporaryFile() as file:
            node = pathlib.Path(file.name + ".device")
            node.touch()
            with scene(gpus=f"{UUIDS[0]}:80G,{UUIDS[1]}:80G:{node}") as here:
                here.wait_devices(2)
                node.unlink()
                self.assertEqual(here.wait_devices(1)["spec"]["pool"]["generation"], 2)
                node.touch()
                self.assertEqual(here.wait_devices(2)["spec"]["pool"]["generation"], 3)
                node.unlink()

    def test_without_a_daemon_nothing_is_offered(self):
        with scene() as here:
            here.wait_devices(2)
            here.end(here.daemon)
            here.wait_devices(None)
            here.start_daemon()
            here.wait_devices(2)

    def test_failures_and_conflicts_are_tried_again(self):
        with scene(driver=False) as here:
            here.api.fail("POST", "resourceslices", 500, 503, 409, 429)
            here.api.fail("GET", "resourceslices", 502)
            here.start_driver()
            here.wait_devices(2)
            self.assertEqual(here.api.count("POST", status=201), 1)
            self.assertEqual(here.api.failures, [])

    def test_another_writer_is_overruled(self):
        """Between its look and its write somebody changes the slice: a conflict."""
        with scene() as here:
            version = here.wait_devices(2)["metadata"]["resourceVersion"]
            here.api.fail("PUT", "resourceslices", 409, 409)
            changed = {**here.api.objects[SLICE]}
            changed["spec"] = {**changed["spec"], "devices": [], "pool": {**changed["spec"]["pool"], "generation": 7}}
            here.api.put(SLICE, changed)
            here.kubelet.register()
            self.assertEqual(here.wait_devices(2)["spec"]["pool"]["generation"], 10)
            self.assertNotEqual(here.api.objects[SLICE]["metadata"]["resourceVersion"], version)

    def test_it_is_written_once(self):
        """Quantities that the server writes in its own way are no change."""
        with scene() as here:
            here.wait_devices(2)
            for _ in range(3):
                asked = here.api.count("GET", SLICE)
                here.kubelet.register()
                here.api.wait("a look", lambda: here.api.count("GET", SLICE) > asked, PATIENCE_S)
            self.assertEqual((here.api.count("POST"), here.api.count("PUT")), (1, 0))

    def test_a_kubelet_that_removes_it(self):
        with scene() as here:
            here.wait_devices(2)
            here.api.remove(SLICE)
            here.kubelet.register()
            self.assertEqual(here.wait_devices(2)["spec"]["pool"]["generation"], 2)

    def test_a_driver_that_is_started_anew(self):
        with scene() as here:
            here.wait_devices(2)
            here.end(here.driver)
            self.assertIn(SLICE, here.api.objects)
            here.start_driver(gpus=f"{UUIDS[0]}:80G")
            self.assertEqual(here.wait_devices(1)["spec"]["pool"]["generation"], 2)

    def test_it_goes_if_asked(self):
        with scene("--on-exit", "remove") as here:
            here.wait_devices(2)
            self.assertEqual(here.end(here.driver), 0)
            self.assertNotIn(SLICE, here.api.objects)

    def test_tokens_are_replaced(self):
        with scene() as here:
            here.wait_devices(2)
            here.api.tokens = {"second"}
            here.api.remove(SLICE)
            here.kubelet.register()
            here.api.wait("a refusal", lambda: here.api.count("GET", status=401), PATIENCE_S)
            (here.path / "token").write_text("second\n")
            here.wait_devices(2)

    def test_a_server_that_is_away(self):
        with scene() as here:
            here.wait_devices(2)
            here.api.stop()
            here.api.objects.pop(SLICE)
            here.kubelet.register()
            here.api.start()
            here.wait_devices(2)

    def test_a_server_that_nobody_vouches_for(self):
        with scene("--ca", "/etc/hostname") as here:
            wait_until("the first try", lambda: "not published yet: can't GET" in here.log.read_text())
            self.assertEqual(here.end(here.driver), 0)
            self.assertEqual(here.api.requests, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
