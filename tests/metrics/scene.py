"""A daemon that shows its metrics, and programs on a simulated card."""
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

import exposition

MIB = 1 << 20
SIMULATED_UUID = "GPU-2f2e49ab-d434-d28e-7d88-e4646992c400"
PATIENCE_S = 60
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class SocketFile(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self.host)
        except OSError:
            self.sock.close()
            raise


def ask(address, path="/metrics", method="GET", timeout=PATIENCE_S, **headers):
    """Status, headers and text."""
    if address.startswith("unix:"):
        connection = SocketFile(address[len("unix:"):], timeout=timeout)
    else:
        connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.02)
    return result


class Scene:
    """build: the build folder; nvml: what the played NVML reads, in which GPU 0 is the simulated card. Ends what it has
    started."""

    def __init__(self, build, *settings, metrics=None, nvml=None, **environment):
        self.build, self.folder = build, tempfile.mkdtemp(prefix="gpushare-metrics-")
        self.socket = os.path.join(self.folder, "daemon.sock")
        self.address = metrics or "unix:" + os.path.join(self.folder, "metrics.sock")
        self.config = os.path.join(self.folder, "gpushare.conf")
        self.write_config(self.address)
        self.jobs = []
        if nvml is not None:
            self.play_nvml(nvml)
            environment |= {"GPUSHARE_NVML": self.program("tests", "nvml", "lib", "libnvidia-ml.so.1"),
                            "GS_NVML_SCRIPT": self.nvml_script}
        self.environment = {**os.environ, "LD_LIBRARY_PATH": os.path.join(build, "tests", "sim"),
                            "GPUSHARE_SIM_CARD": "p100,capacity=64MiB", "GPUSHARE_SOCKET": self.socket,
                            "GPUSHARE_SIM_STATE": os.path.join(self.folder, "state")}
        self.errors = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        self.settings, self.daemon_environment = settings, environment
        self.start_daemon()

    @property
    def nvml_script(self):
        return os.path.join(self.folder, "nvml")

    def play_nvml(self, text):
        """What it says from its next helper on."""
        with open(self.nvml_script + ".new", "w", encoding="utf-8") as file:
            file.write(f"uuid={SIMULATED_UUID} bytes={64 * MIB} {text}")
        os.replace(self.nvml_script + ".new", self.nvml_script)

    def start_daemon(self):
        command = [self.program("daemon", "gpushare-daemon"), "--config", self.config, "--socket", self.socket,
                   *self.settings]
        self.daemon = subprocess.Popen(command, stderr=self.errors, env={**os.environ, **self.daemon_environment})
        self.wait_for_daemon()

    def wait_for_daemon(self):
        wait_until("the daemon answers", lambda: self.status() or self.daemon.poll() is not None)

    def program(self, *path):
        return os.path.join(self.build, *path)

    def write_config(self, address):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"metrics = {address}\n")

    def log(self):
        with open(self.errors.name, encoding="utf-8") as file:
            return file.read()

    def ctl(self, *arguments):
        return subprocess.run([self.program("daemon", "gpusharectl"), "--socket", self.socket, *arguments],
                              capture_output=True, text=True, check=False)

    def status(self):
        result = self.ctl("status", "--json")
        return json.loads(result.stdout) if result.returncode == 0 else None

    def start(self, *options, program=None, bytes_each=48 * MIB, user=None,
              **environment):
        """A program that works until it is told to stop; it has its memory."""
        command = [self.program("daemon", "gpusharectl"), "run", "--", program or self.program("tests", "system", "job"),
                   "--bytes", str(bytes_each), "--rounds", "0", "--spin", "5ms", *options]
        output = os.path.join(self.folder, f"job{len(self.jobs)}.out")
        with open(output, "w", encoding="utf-8") as file:
            job = subprocess.Popen(command, env={**self.environment, **environment}, stdin=subprocess.PIPE, stdout=file,
                                   stderr=self.errors, text=True, user=user, extra_groups=[] if user else None)
        self.jobs.append(job)

        def ready():
            with open(output, encoding="utf-8") as said:
                return "filled" in said.read() or job.poll() is not None
        wait_until("the program has filled its memory", ready)
        return job

    def stop(self, job):
        job.stdin.write("stop\n")
        job.stdin.close()
        assert job.wait(PATIENCE_S) == 0, self.log()

    def scrape(self, openmetrics=False):
        """Not the text that was made for somebody before."""
        time.sleep(0.25)
        status, _, text = ask(self.address, Accept=OPENMETRICS if openmetrics else "text/plain")
        assert status == 200, text
        return exposition.read(text, openmetrics)

    def wait_for(self, what, condition):
        """Scrapes until it is so; returns that scrape."""
        def look():
            families = self.scrape()
            return families if condition(families) else None
        return wait_until(what, look)

    def end(self):
        for process in [*self.jobs, self.daemon]:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()
        self.errors.close()
        shutil.rmtree(self.folder)


class QuietScene(Scene):
    """Without metrics: with an empty configuration."""

    def write_config(self, _):
        with open(self.config, "w", encoding="utf-8"):
            pass
