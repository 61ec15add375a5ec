"""The kernel of Jupyter with a shared GPU, as Jupyter starts it: it is a job, is interrupted, and ends. Skipped without
jupyter_client and ipykernel (pip install --target BUILD/python jupyter_client ipykernel).
usage: test_kernel.py BUILD SOURCES"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import ipykernel  # noqa: F401
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import KernelManager
except ImportError as missing:
    print(missing)
    sys.exit(77)

build, sources = (os.path.realpath(argument) for argument in sys.argv[1:3])
PATIENCE_S = 60
CTL = os.path.join(build, "daemon/gpusharectl")

USE_GPU = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
codes = [driver.cuInit(0), driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
         driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8 << 20)),
         driver.cuMemsetD8_v2(address, 1, ctypes.c_size_t(8 << 20))]
print(codes)
"""


def wait_until(true, what):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError("not within a minute: " + what)
        time.sleep(0.05)


class Kernel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = os.path.join(folder.name, "daemon.sock")
        self.environment = dict(
            os.environ, PATH=os.path.dirname(CTL) + ":" + os.environ["PATH"], GPUSHARE_SOCKET=self.socket,
            GPUSHARE_CLASS="opportunistic", GPUSHARE_SIM_CARD="p100,capacity=64MiB",
            GPUSHARE_SIM_STATE=os.path.join(folder.name, "card"), LD_LIBRARY_PATH=os.path.join(build, "tests/sim"),
            JUPYTER_RUNTIME_DIR=folder.name, IPYTHONDIR=folder.name)
        self.environment.pop("LD_PRELOAD", None)
        self.daemon = subprocess.Popen([os.path.join(build, "daemon/gpushare-daemon"), "--socket", self.socket])
        self.addCleanup(self.daemon.wait, PATIENCE_S)
        self.addCleanup(self.daemon.terminate)
        wait_until(lambda: self.ask().returncode == 0, "the daemon answers")
        specs = KernelSpecManager(kernel_dirs=[os.path.join(sources, "packaging/jupyter")], ensure_native_kernel=False)
        self.manager = KernelManager(kernel_name="gpushare", kernel_spec_manager=specs, transport="ipc",
                                     connection_file=os.path.join(folder.name, "kernel.json"))
        self.manager.start_kernel(env=self.environment)
        self.addCleanup(self.manager.shutdown_kernel, now=True)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.addCleanup(self.client.stop_channels)
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def ask(self):
        return subprocess.run([CTL, "--socket", self.socket, "status", "--json"], capture_output=True, text=True,
                              check=False)

    def jobs(self):
        return [job for gpu in json.loads(self.ask().stdout)["gpus"] for job in gpu["jobs"]]

    def execute(self, code):
        told = []
        reply = self.client.execute_interactive(code, timeout=PATIENCE_S, output_hook=lambda message: told.append(
            message["content"].get("text", "")))
        return reply["content"]["status"], "".join(told)

    def test_it_is_a_job_until_it_ends(self):
        self.assertEqual(self.execute("1 + 1")[0], "ok")
        self.assertEqual(self.jobs(), [])
        self.assertEqual(self.execute(USE_GPU), ("ok", "[0, 0, 0, 0]\n"))
        wait_until(lambda: [job["class"] for job in self.jobs()] == ["opportunistic"], "the kernel is a job")
        self.manager.shutdown_kernel()
        wait_until(lambda: self.jobs() == [], "the job is over")

    def test_it_can_be_interrupted(self):
        self.execute(USE_GPU)
        # With stop_on_error, the kernel would also refuse what arrives in the moment after the interruption.
        asked = self.client.execute("print('began', flush=True)\nwhile True: pass", stop_on_error=False)
        wait_until(lambda: self.client.get_iopub_msg(timeout=PATIENCE_S)["content"].get("text") == "began\n", "it began")
        self.manager.interrupt_kernel()
        reply = self.client.get_shell_msg(timeout=PATIENCE_S)
        while reply["parent_header"].get("msg_id") != asked:
            reply = self.client.get_shell_msg(timeout=PATIENCE_S)
        self.assertEqual(reply["content"].get("ename"), "KeyboardInterrupt")
        self.assertEqual(self.execute("print(2 + 2)"), ("ok", "4\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
