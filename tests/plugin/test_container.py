"""What Allocate answers makes a program share the GPU: applied as a container runtime does, to a program on the simulated
driver, in a mount namespace of its own.

Needs grpcio, protobuf and the right to make namespaces; ends with 77 without them."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import unittest

try:
    import container
    from kubelet import GPU, OPPORTUNISTIC, PATIENCE_S, UUIDS, scene
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

if container.SKIP:
    print(f"skipped: {container.SKIP}")
    sys.exit(77)


class Container(unittest.TestCase):
    @contextlib.contextmanager
    def program(self, here, environment, mounts, image=None):
        """The program has used the GPU, and waits. image: the environment that the image has."""
        pairs = [(path, host) for path, (host, read_only) in mounts.items() if read_only]
        process = container.start(here.path / "scratch", [os.environ["GS_IDLER"]], {**(image or {}), **environment}, pairs)
        try:
            self.assertEqual(process.stdout.readline(), "idle\n")
            yield process
            process.stdin.close()
            self.assertEqual(process.stdout.read(), "ok\n")
            self.assertEqual(process.wait(PATIENCE_S), 0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    @staticmethod
    def jobs(here):
        command = [os.environ["GS_CTL"], "--socket", here.path / "run" / "daemon.sock", "--json", "status"]
        status = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return [job for gpu in status["gpus"] for job in gpu["jobs"]]

    @staticmethod
    def has_mapped(process, library):
        return os.path.basename(library) in pathlib.Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")

    @contextlib.contextmanager
    def scene(self, *options):
        """With the library where the init container has put it."""
        with scene(*options, kubelet=False, daemon=False) as here:
            library = here.path / "library"
            library.mkdir()
            subprocess.run([os.environ["GS_INSTALL_LIBRARY"], os.environ["GS_LIBRARY"], library], check=True, capture_output=True)
            here.end(here.plugin)
            here.start_daemon()
            here.kubelet.start()
            here.start_plugin("--library-dir", library, *options)
            here.kubelet.wait_healthy(10)
            yield here

    def test_its_program_is_a_job(self):
        with self.scene("--opportunistic-shares", "3") as here:
            here.kubelet.wait_healthy(3, OPPORTUNISTIC)
            for resource, ids, expected in (
                (GPU, (0, 1), {"class": "standard", "weight": 200}),
                (OPPORTUNISTIC, (2,), {"class": "opportunistic", "weight": 100}),
            ):
                environment, mounts, _ = here.kubelet.clients[resource].allocate(*(f"{UUIDS[0]}.{n}" for n in ids))
                with self.subTest(resource), self.program(here, environment, mounts) as process:
                    (job,) = self.jobs(here)
                    self.assertEqual({name: job[name] for name in expected}, expected)
                    self.assertTrue(self.has_mapped(process, "libunified.so"))

    def test_the_preloads_of_images(self):
        own = os.environ["GS_NVML_FOLDER"] + "/libnvidia-ml.so.1"  # any library
        for options, stays in (((), True), (("--preload", "env"), False)):
            with self.scene(*options) as here:
                environment, mounts, _ = here.kubelet.clients[GPU].allocate(f"{UUIDS[0]}.0")
                with self.subTest(options=options), self.program(here, environment, mounts, {"LD_PRELOAD": own}) as process:
                    self.assertEqual(len(self.jobs(here)), 1)
                    self.assertEqual(self.has_mapped(process, own), stays)  # as docs/KUBERNETES.md says


if __name__ == "__main__":
    unittest.main()
