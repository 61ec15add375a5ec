"""What a claim was granted binds the programs of its pod: the CDI spec applied as a container runtime does, to programs on
the simulated driver, in the control group of a pod.

Needs grpcio, protobuf, openssl and the right to make namespaces and control groups; ends with 77 without them."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import uuid

try:
    import container
    from node import PATIENCE_S, Claim, scene, wait_until
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

GPU = "GPU-9b877094-78e2-ce0b-13d0-df8117105e00"  # of the simulated card in GS_SIM_CARD
HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids")


@contextlib.contextmanager
def pod_group(pod):
    """A control group as the kubelet's for this pod, with systemd's names; None if there can be none."""
    name = f"kubepods-besteffort-pod{pod.replace('-', '_')}.slice"
    for folder in map(pathlib.Path, HIERARCHIES):
        group = folder / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / "cgroup.procs").exists():
                yield group
                return
        finally:
            wait_until("the end of the control group", lambda: not group.exists() or not remove(group))
    yield None


def remove(group):
    with contextlib.suppress(OSError):
        group.rmdir()
    return group.exists()


with pod_group(str(uuid.uuid4())) as tried:
    WHY = container.SKIP or (None if shutil.which("openssl") else "no openssl") or (None if tried else "no control groups")
if WHY:
    print(f"skipped: {WHY}")
    sys.exit(77)


class Container(unittest.TestCase):
    def run_job(self, here, claim, group, *arguments, **environment):
        """What a program in a container with the first device of the claim says at its end."""
        (device,) = here.specs()[claim.uid]["devices"]
        edits = device["containerEdits"]
        mounts = [(mount["containerPath"], mount["hostPath"]) for mount in edits["mounts"]]
        given = {**dict(entry.split("=", 1) for entry in edits["env"]), **environment}
        process = container.start(here.path / "scratch", [os.environ["GS_JOB"], *arguments], given, mounts, group)
        output, _ = process.communicate(timeout=PATIENCE_S)
        return output.strip().splitlines()[-1]

    def test_the_pods_programs_have_no_more_than_was_granted(self):
        with scene(driver=False) as here:
            library = here.path / "library"
            library.mkdir()
            subprocess.run([os.environ["GS_INSTALL_LIBRARY"], os.environ["GS_LIBRARY"], library], check=True, capture_output=True)
            here.start_driver("--library-dir", library, gpus=f"{GPU}:256M")
            here.wait_devices(1)
            claim = Claim((GPU, "64Mi", "25"))
            here.api.put(claim.path, claim.to_object())
            self.assertEqual(here.kubelet.prepare(claim)[claim.uid].error, "")
            with pod_group(claim.pods[0]) as group:
                self.assertEqual(self.run_job(here, claim, group, "--bytes", "32M"), "ok")
                self.assertIn("error", self.run_job(here, claim, group, "--bytes", "96M"))
                # Nor by a word of its own.
                self.assertIn("error", self.run_job(here, claim, group, "--bytes", "96M", GPUSHARE_MEMORY_LIMIT="200M"))
            with pod_group(str(uuid.uuid4())) as group:
                self.assertEqual(self.run_job(here, claim, group, "--bytes", "96M"), "ok")


if __name__ == "__main__":
    unittest.main()
