"""The daemon's metrics: the format, what is said of jobs on a simulated card, and what readers can't do to the daemon.
usage: test_daemon.py BUILD [unittest's arguments]"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import exposition
from exposition import value
from scene import MIB, OPENMETRICS, PATIENCE_S, SIMULATED_UUID, Scene, ask, wait_until

BUILD = os.path.abspath(sys.argv.pop(1))
SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROXY = "/usr/lib/systemd/systemd-socket-proxyd"
CONNECTIONS_MAX = 16
STANDARD, PRODUCTION = {"class": "standard"}, {"class": "production"}
JOB_SUMS = ("turns", "run_seconds", "held_seconds", "wait_seconds")


def counters(families):
    return {key: number for family in families.values() if family.type in ("counter", "histogram")
            for key, number in family.samples.items()}


class Case(unittest.TestCase):
    def scene(self, *settings, **options):
        scene = Scene(BUILD, *settings, **options)
        self.addCleanup(scene.end)
        return scene


class Jobs(Case):
    """Of programs that do not fit on the card together."""

    def check_counters(self, before, after):
        for key, number in counters(before).items():
            if not key[0].startswith("gpushare_job_"):
                self.assertGreaterEqual(counters(after).get(key, -1), number, key)

    def test_what_jobs_do_is_counted_and_stays_when_they_have_left(self):
        scene = self.scene("--tq", "50ms")
        jobs = [scene.start(), scene.start()]
        turns = scene.wait_for("hand-overs", lambda f: value(f, "gpushare_gpu_handovers_total") >= 4)
        later = scene.wait_for("more of them", lambda f: value(f, "gpushare_gpu_handovers_total") >
                               value(turns, "gpushare_gpu_handovers_total"))
        self.check_counters(turns, later)
        for key, number in counters(later).items():
            self.assertGreaterEqual(number, counters(turns).get(key, 0), key)
        self.assertEqual(value(later, "gpushare_gpu_takes_turns"), 1)
        self.assertEqual(value(later, "gpushare_gpu_memory_bytes"), 96 * MIB)
        self.assertLessEqual(value(later, "gpushare_gpu_memory_bytes", place="card"), 64 * MIB)
        self.assertEqual(value(later, "gpushare_job_memory_bytes", job_id="2"), 48 * MIB)
        self.assertEqual(value(later, "gpushare_host_memory_committed_bytes"), 32 * MIB)
        self.assertGreater(value(later, "gpushare_gpu_moved_bytes_total", direction="evict"), 0)
        self.check_sums(later)
        self.assertEqual(scene.ctl("set-class", "1", "production").returncode, 0)
        changed = scene.wait_for("a turn of that class", lambda f: value(f, "gpushare_gpu_turns_total", **PRODUCTION) > 0)
        self.check_counters(later, changed)
        later = changed
        scene.stop(jobs[1])
        scene.stop(jobs[0])
        end = scene.wait_for("they have left", lambda f: not f["gpushare_job_turns_total"].samples)
        self.check_counters(later, end)
        self.check_status(end, scene.status()["gpus"][0])

    def check_sums(self, families):
        """While none has left or changed its class, those of a GPU are those of its jobs, but for moments between the two."""
        for name in JOB_SUMS:
            of_gpu = value(families, f"gpushare_gpu_{name}_total", **STANDARD)
            self.assertAlmostEqual(of_gpu, value(families, f"gpushare_job_{name}_total", **STANDARD), places=1, msg=name)
            self.assertGreater(of_gpu, 0, name)

    def check_status(self, families, gpu):
        self.assertEqual(value(families, "gpushare_gpu_handovers_total"), gpu["handovers"])
        self.assertEqual(value(families, "gpushare_gpu_moved_bytes_total"), gpu["moved_bytes"])
        self.assertEqual(value(families, "gpushare_gpu_hidden_bytes_total"), gpu["handover"]["hidden_bytes"])
        self.assertGreaterEqual(value(families, "gpushare_gpu_handover_duration_seconds_count"), 4)
        seconds = value(families, "gpushare_gpu_handover_step_seconds_total")
        self.assertAlmostEqual(seconds, value(families, "gpushare_gpu_handover_duration_seconds_sum"), places=6)
        self.assertEqual(value(families, "gpushare_gpu_job_events_total", event="attached"), 2)
        self.assertEqual(value(families, "gpushare_gpu_job_events_total", event="detached"), 2)
        self.assertEqual(value(families, "gpushare_gpu_memory_bytes"), 0)
        self.assertEqual(value(families, "gpushare_clients_registered_total"), 2)

    def test_names_limits_and_refusals(self):
        scene = self.scene()
        name = 'a"b\\c'
        link = os.path.join(scene.folder, name)
        os.symlink(scene.program("tests", "system", "job"), link)
        scene.start(program=link, bytes_each=8 * MIB, GPUSHARE_CLASS="opportunistic", GPUSHARE_MEMORY_LIMIT="16M",
                    GPUSHARE_GANG="pair")
        families = scene.scrape()
        self.assertEqual(value(families, "gpushare_job_info", name=name, gang="pair", uid=str(os.getuid())), 1)
        self.assertEqual(value(families, "gpushare_job_memory_limit_bytes", name=name), 16 * MIB)
        self.assertEqual(value(families, "gpushare_job_limit_ratio", name=name), 1)

    def test_refusals(self):
        scene = self.scene("--host-memory", "0")
        scene.start()
        self.assertEqual(value(scene.scrape(), "gpushare_gpu_job_events_total", event="refused"), 0)
        result = subprocess.run([scene.program("daemon", "gpusharectl"), "run", scene.program("tests", "system", "job")],
                                env=scene.environment, capture_output=True, check=False, timeout=PATIENCE_S)
        self.assertNotEqual(result.returncode, 0)
        self.assertGreater(value(scene.scrape(), "gpushare_gpu_job_events_total", event="refused"), 0)

    def test_those_that_are_turned_away(self):
        scene = self.scene("--max-clients-per-user", "1")
        scene.start(bytes_each=8 * MIB)
        scene.start(bytes_each=8 * MIB)
        families = scene.scrape()
        self.assertGreaterEqual(value(families, "gpushare_clients_rejected_total", reason="limit"), 1)
        self.assertEqual(value(families, "gpushare_clients_rejected_total", reason="version"), 0)
        self.assertEqual(value(families, "gpushare_clients"), 1)

    def test_both_formats_tell_the_same(self):
        scene = self.scene()
        scene.start(bytes_each=8 * MIB)
        plain, openmetrics = scene.scrape(), scene.scrape(openmetrics=True)
        self.assertEqual([(f.help, set(f.samples)) for f in plain.values()],
                         [(f.help, set(f.samples)) for f in openmetrics.values()])


class Cards(Case):
    """What NVML, which is played, tells of them."""

    def test_what_a_card_does(self):
        scene = self.scene(nvml=f"gpus=2 quiet=1 pid={os.getpid()}")
        families = scene.wait_for("what they do", lambda f: f["gpushare_gpu_power_watts"].samples)
        card, other = {"gpu": SIMULATED_UUID, "index": "0"}, {"index": "1"}
        self.assertEqual(value(families, "gpushare_gpu_answers"), 2)
        self.assertEqual(value(families, "gpushare_gpu_temperature_celsius", **card), 61)
        self.assertEqual(value(families, "gpushare_gpu_power_watts", **card), 250.5)
        self.assertEqual(value(families, "gpushare_gpu_energy_joules_total", **card), 1234.567)
        self.assertEqual(value(families, "gpushare_gpu_utilization_ratio", **card), 0.97)
        self.assertEqual(value(families, "gpushare_gpu_memory_utilization_ratio", **card), 0.4)
        self.assertEqual(value(families, "gpushare_gpu_unshared_processes", **card), 1)
        self.assertEqual(value(families, "gpushare_gpu_unshared_memory_bytes", **card), 512 * MIB)
        self.assertEqual(value(families, "gpushare_gpu_unshared_processes", **other), 0)
        for name in ("temperature_celsius", "power_watts", "energy_joules_total", "utilization_ratio"):
            self.assertEqual(len(families["gpushare_gpu_" + name].samples), 1, name)
        self.check_status(scene)

    def check_status(self, scene):
        gpus = scene.status()["gpus"]
        self.assertEqual(gpus[0]["card"], {
            "answers": True, "temperature_celsius": 61, "power_watts": 250.5, "energy_joules": 1234.567,
            "gpu_utilization": 0.97, "memory_utilization": 0.4, "unshared_processes": 1, "unshared_bytes": 512 * MIB})
        self.assertEqual(gpus[1]["card"]["power_watts"], None)
        line = "  61 C, 250 W, GPU 97 %, memory 40 %; 1 unshared process with 512.0 MiB\n"
        self.assertIn(line, scene.ctl("status").stdout)
        self.assertIn(line, scene.ctl("top", "--batch", "-n", "1").stdout)
        self.assertLessEqual(len(line), 80)

    def test_a_job_is_no_unshared_process_and_a_lost_card_does_not_answer(self):
        scene = self.scene(nvml="gpus=2", GS_NVML_LOST=self.lost_folder())
        scene.start(bytes_each=8 * MIB)
        pid = scene.status()["gpus"][0]["jobs"][0]["pid"]
        scene.play_nvml(f"gpus=2 pid={pid} energy=5000")
        families = scene.wait_for("another reading", lambda f: f["gpushare_gpu_energy_joules_total"].samples and
                                  value(f, "gpushare_gpu_energy_joules_total", index="0") == 5)
        self.assertEqual(value(families, "gpushare_gpu_unshared_processes", index="0"), 0)
        self.assertEqual(value(families, "gpushare_gpu_answers", index="0"), 1)
        self.assertEqual(value(families, "gpushare_gpu_answers", index="1"), 0)
        self.assertEqual(scene.status()["gpus"][1]["card"]["answers"], False)
        self.assertIn("  the card does not answer: see the kernel's log (dmesg)\n", scene.ctl("status").stdout)

    def test_a_report_has_the_energy_of_jobs(self):
        scene = self.scene(nvml="gpus=1 energy=1000000")
        scene.start(bytes_each=8 * MIB)
        for joules in (1000, 1500):  # the second reading says how much the GPU takes
            scene.play_nvml(f"gpus=1 energy={joules * 1000}")
            scene.wait_for("a reading", lambda f: f["gpushare_gpu_energy_joules_total"].samples and
                           value(f, "gpushare_gpu_energy_joules_total", index="0") == joules)
        wait_until("it has some", lambda: any(row["energy_joules"] for row in json.loads(scene.ctl("report", "--json").stdout)["rows"]))
        scene.stop(scene.jobs[0])
        rows = json.loads(scene.ctl("report", "--json").stdout)["rows"]
        self.assertGreater(rows[0]["energy_joules"], 0)
        self.assertRegex(scene.ctl("report", "--csv").stdout, r",\d+\.\d{3}\n$")

    def lost_folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "1"), "w", encoding="utf-8"):
            pass
        return folder.name


class Requests(Case):
    def test_what_is_answered(self):
        scene = self.scene()
        status, headers, _ = ask(scene.address)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        status, headers, text = ask(scene.address, Accept=OPENMETRICS)
        self.assertEqual(headers["Content-Type"], "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertEqual(ask(scene.address, method="HEAD")[::2], (200, ""))
        self.assertEqual(ask(scene.address, "/")[0], 404)
        status, headers, _ = ask(scene.address, method="POST")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
        self.assertEqual(ask(scene.address)[0], 200)

    def test_what_is_no_request(self):
        scene = self.scene()
        for junk in (b"\0" * 1000, b"GET\r\n\r\n", b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 10000,
                     b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000, b"\x16\x03\x01\x02"):
            with self.connect(scene) as guest:
                try:
                    guest.sendall(junk)
                except OSError:
                    pass  # it has closed the connection meanwhile
        self.assertEqual(ask(scene.address)[0], 200)

    def connect(self, scene):
        guest = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        guest.settimeout(PATIENCE_S)
        guest.connect(scene.address[len("unix:"):])
        return guest

    def drain(self, guest):
        with contextlib.suppress(ConnectionResetError):
            while guest.recv(65536):
                pass

    def slow(self, scene, count):
        """Connections that say little or nothing."""
        guests = [self.connect(scene) for _ in range(count)]
        for i, guest in enumerate(guests):
            self.addCleanup(guest.close)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have made way already
                guest.sendall(b"GET /metrics HTTP/1.1\r\n"[:i])
        return guests

    def is_open(self, guest):
        guest.setblocking(False)
        try:
            return guest.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            guest.settimeout(PATIENCE_S)

    def test_who_is_slow_keeps_out_nobody(self):
        """All places are taken: the oldest ones make way, and each is closed in the end."""
        scene = self.scene()
        guests = self.slow(scene, 3 * CONNECTIONS_MAX)
        families = exposition.read(ask(scene.address)[2])
        self.drain(guests[0])
        self.assertTrue(self.is_open(guests[-1]))
        self.assertIsNotNone(scene.status())
        for guest in guests:
            self.drain(guest)
        families = exposition.read(ask(scene.address)[2])
        self.assertLess(value(families, "process_cpu_seconds_total"), 2)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
    def test_another_user_makes_way_first(self):
        scene = self.scene()
        os.chmod(scene.folder, 0o755)
        guest = self.slow(scene, 1)[0]
        guest.sendall(b"GET /metrics HTTP/1.1\r\n")
        flood = "import os, socket, sys\nos.setresuid(54321, 54321, 54321)\nguests = []\n" \
            "for _ in range(int(sys.argv[2])):\n    guests.append(socket.socket(socket.AF_UNIX))\n" \
            "    guests[-1].connect(sys.argv[1])\nprint(flush=True)\nsys.stdin.read()\n"
        with subprocess.Popen([sys.executable, "-c", flood, scene.address[len("unix:"):], str(3 * CONNECTIONS_MAX)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            self.assertEqual(ask(scene.address)[0], 200)
            guest.sendall(b"Host: x\r\n\r\n")
            self.assertIn(b" 200 OK", guest.recv(4096))
            other.stdin.close()

class Addresses(Case):
    def reload(self, scene, address):
        count = scene.log().count("has been read again")
        scene.write_config(address)
        scene.daemon.send_signal(signal.SIGHUP)
        wait_until("it has been read again", lambda: scene.log().count("has been read again") > count)

    def port(self, scene):
        wait_until("it says where they are", lambda: "metrics on 127.0.0.1:" in scene.log())
        return [line.split()[-1] for line in scene.log().split("\n") if "metrics on 127.0.0.1:" in line][-1]

    def test_a_port(self):
        scene = self.scene(metrics="127.0.0.1:0")
        exposition.read(ask(self.port(scene))[2])

    @unittest.skipUnless(os.path.exists(PROXY), "no systemd-socket-proxyd")
    def test_a_port_by_the_proxy_of_the_unit(self):
        """As systemd starts it, but for the path of the socket file."""
        scene = self.scene()
        with open(os.path.join(SOURCES, "packaging/systemd/gpushare-metrics.service"), encoding="utf-8") as file:
            command = re.search(r"(?m)^ExecStart=(.*)$", file.read())[1].split()
        self.assertEqual(command[0], PROXY)
        command[-1] = scene.address[len("unix:"):]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            proxy = subprocess.Popen(
                ["/bin/sh", "-c", 'export LISTEN_PID=$$; exec "$@" 3<&%d' % listener.fileno(), "sh", *command],
                pass_fds=[listener.fileno()], env={**os.environ, "LISTEN_FDS": "1"})
            try:
                exposition.read(ask("127.0.0.1:%d" % listener.getsockname()[1])[2])
            finally:
                proxy.kill()
                proxy.wait()

    def test_a_reload_takes_them_elsewhere(self):
        scene = self.scene()
        path = scene.address[len("unix:"):]
        before = os.stat(path).st_ino
        self.reload(scene, scene.address)
        self.assertEqual(os.stat(path).st_ino, before)
        self.reload(scene, "127.0.0.1:0")
        self.assertFalse(os.path.exists(path))
        self.assertEqual(ask(self.port(scene))[0], 200)
        self.reload(scene, "off")
        with self.assertRaises(ConnectionRefusedError):
            ask(self.port(scene))
        self.reload(scene, scene.address)
        self.assertEqual(ask(scene.address)[0], 200)

    def test_the_socket_file_goes_with_the_daemon(self):
        scene = self.scene()
        scene.daemon.send_signal(signal.SIGTERM)
        self.assertEqual(scene.daemon.wait(PATIENCE_S), 0)
        self.assertFalse(os.path.exists(scene.address[len("unix:"):]))

    def test_without_the_library_the_daemon_does_without(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libmicrohttpd.so.12"), "w", encoding="utf-8"):
                pass
            scene = self.scene(LD_LIBRARY_PATH=folder)
            wait_until("it says why", lambda: "metrics need libmicrohttpd.so.12" in scene.log())
            self.assertFalse(os.path.exists(scene.address[len("unix:"):]))

    def test_a_port_that_is_taken_leaves_the_daemon_without(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            scene = self.scene(metrics=address)
            wait_until("it says why", lambda: f"metrics = {address}: there are none" in scene.log())
            self.assertIsNotNone(scene.status())
        self.reload(scene, address)
        self.assertEqual(ask(address)[0], 200)


if __name__ == "__main__":
    unittest.main()
