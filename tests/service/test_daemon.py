"""The daemon under a played service manager: notifications, watchdog, passed sockets, the journal, configuration.
usage: test_daemon.py DAEMON GPUSHARECTL"""
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

daemon, ctl = sys.argv[1:3]
PATIENCE_S = 60
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


class Manager(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.socket_path = self.path("daemon.sock")
        self.config = self.path("gpushare.conf")
        self.write("gpushare.conf", "")
        self.heard = self.bind(self.path("notify"))
        self.process = None

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def bind(self, address):
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        heard.bind(address)
        heard.settimeout(PATIENCE_S)
        self.addCleanup(heard.close)
        return heard

    def listener(self, kind=socket.SOCK_SEQPACKET):
        passed = socket.socket(socket.AF_UNIX, kind)
        self.addCleanup(passed.close)
        passed.bind(self.socket_path)
        passed.listen(16)
        return passed

    def start(self, *arguments, passed=(), stderr=None, **environment):
        """The descriptors passed become 3, 4, ...; the shell is what knows the daemon's pid beforehand."""
        def place():
            spare = [os.dup2(fd.fileno(), 100 + i) for i, fd in enumerate(passed)]
            for i, fd in enumerate(spare):
                os.dup2(fd, 3 + i)
        settings = {"NOTIFY_SOCKET": self.path("notify"), **environment}
        if passed:
            settings.setdefault("LISTEN_FDS", str(len(passed)))
        own_pid = "".join(f"export {name}=$$; " for name in ("LISTEN_PID", "WATCHDOG_PID") if name not in settings)
        with open(self.path("log"), "ab") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", own_pid + 'exec "$@"', "sh", daemon, "--config", self.config,
                 "--socket", self.socket_path, *arguments],
                env={**os.environ, **settings}, stderr=stderr or log, close_fds=False, preexec_fn=place)
        self.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def log(self):
        with open(self.path("log"), encoding="utf-8") as file:
            return file.read()

    def hear(self):
        message = self.heard.recv(4096).decode()
        return dict(line.split("=", 1) for line in message.split("\n"))

    def expect(self, name):
        """The next message that is more than a sign of life."""
        message = self.hear()
        while "WATCHDOG" in message:
            message = self.hear()
        self.assertIn(name, message)
        return message

    def await_log(self, text):
        """The log is written behind what the daemon does."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.log():
            self.assertLess(time.monotonic(), end, f"'{text}' is not in {self.log()}")
            time.sleep(0.01)

    def ask_status(self, path=None):
        result = subprocess.run([ctl, "status", "--socket", path or self.socket_path], capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)

    def default_tq(self):
        result = subprocess.run([ctl, "status", "--json", "--socket", self.socket_path], capture_output=True,
                                text=True, check=True)
        return result.stdout.split('"default_tq_ns":')[1].split(",")[0].strip()

    def stop(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        self.expect("STOPPING")
        self.assertEqual(self.process.wait(PATIENCE_S), code)

    def fails(self, code, text):
        self.assertEqual(self.process.wait(PATIENCE_S), code, self.log())
        self.assertIn(text, self.log())


class Notifications(Manager):
    def test_ready_when_it_can_be_reached(self):
        self.start()
        self.assertEqual(self.expect("READY"), {"READY": "1", "STATUS": "0 programs"})
        self.ask_status()
        self.stop()

    def test_an_abstract_address(self):
        self.heard = self.bind("\0" + self.path("abstract"))
        self.start(NOTIFY_SOCKET="@" + self.path("abstract"))
        self.expect("READY")
        self.stop()

    def test_without_a_manager_that_can_be_told(self):
        self.start(passed=[self.listener()], NOTIFY_SOCKET="vsock:2:1234")
        self.ask_status()
        self.await_log("NOTIFY_SOCKET=vsock:2:1234 can't be used")

    def test_reload(self):
        self.start()
        self.expect("READY")
        before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.process.send_signal(signal.SIGHUP)
        told_us = int(self.expect("RELOADING")["MONOTONIC_USEC"])
        self.assertLessEqual(before_us, told_us)
        self.assertLessEqual(told_us, time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
        self.assertEqual(self.expect("READY")["STATUS"], "0 programs")
        self.stop()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)
        self.expect("RELOADING")
        return self.expect("READY")["STATUS"]

    def test_a_bad_reload_keeps_what_there_was_and_says_so(self):
        self.write("gpushare.conf", "tq = 3\n")
        self.start()
        self.expect("READY")
        self.write("gpushare.conf.d/10-new.conf", "tq = 4\nmode = sometimes\n")
        status = self.reload()
        where = self.path("gpushare.conf.d/10-new.conf") + ":2: mode: 'sometimes'"
        self.assertIn("wrong configuration: " + where, status)
        self.await_log(where)
        self.await_log("the configuration stays as it was")
        self.assertEqual(self.default_tq(), "3000000000")
        self.write("gpushare.conf.d/10-new.conf", "tq = 4\n")
        self.assertEqual(self.reload(), "0 programs")
        self.assertEqual(self.default_tq(), "4000000000")
        self.stop()

    def test_a_bad_start_says_why(self):
        self.write("gpushare.conf", "tq = 3\nspeed = 9\n")
        self.start()
        self.assertIn("gpushare.conf:2: speed is not a setting", self.expect("STATUS")["STATUS"])
        self.fails(78, "gpushare.conf:2: speed is not a setting")


class Watchdog(Manager):
    def test_signs_of_life_come_by_themselves(self):
        begun_s = time.monotonic() # what has come while nobody read it has no time of its own
        self.start(WATCHDOG_USEC="400000")
        self.expect("READY")
        for _ in range(4):
            self.assertEqual(self.hear(), {"WATCHDOG": "1", "STATUS": "0 programs"})
        self.assertGreater(time.monotonic() - begun_s, 0.6, "they come at half of the time")
        self.stop()

    def test_none_from_a_loop_that_does_not_turn(self):
        """The other threads go on."""
        self.start(WATCHDOG_USEC="50000")
        self.expect("READY")
        libc = ctypes.CDLL(None, use_errno=True)
        for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
            if libc.ptrace(request, self.process.pid, None, None) < 0:
                self.skipTest(f"ptrace: {os.strerror(ctypes.get_errno())}")
        os.waitpid(self.process.pid, 0)
        self.heard.settimeout(0.5)
        with self.assertRaises(TimeoutError):
            while True:
                self.hear()  # what was told before
        self.heard.settimeout(PATIENCE_S)
        self.assertEqual(libc.ptrace(PTRACE_DETACH, self.process.pid, None, None), 0)
        self.assertIn("WATCHDOG", self.hear())
        self.stop()

    def test_a_slow_file_does_not_hold_the_loop_up(self):
        """One is a fifo without a writer. What has changed by a later signal is read once more."""
        self.start(WATCHDOG_USEC="50000")
        self.expect("READY")
        slow = self.config + ".d/10-slow.conf"
        os.mkdir(self.config + ".d")
        os.mkfifo(slow)
        for _ in range(2):
            self.process.send_signal(signal.SIGHUP)
            self.expect("RELOADING")
        for _ in range(3):
            self.assertIn("WATCHDOG", self.hear())
        self.ask_status()
        writer = os.open(slow, os.O_WRONLY)
        os.unlink(slow)
        self.write("gpushare.conf.d/10-slow.conf", "tq = 5\n")
        os.write(writer, b"tq = 4\n")
        os.close(writer)
        self.expect("READY")
        self.assertEqual(self.default_tq(), "5000000000")
        self.await_log("tq = 4 instead of its default")
        self.await_log("tq = 5 instead of 4")
        self.stop()

    def test_a_log_that_nobody_reads_does_not_hold_the_loop_up(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.start(stderr=write, WATCHDOG_USEC="50000")
        self.expect("READY")
        os.set_blocking(write, False)
        try:
            while True:
                os.write(write, b"x" * 4096)
        except BlockingIOError:
            pass
        os.set_blocking(write, True)
        os.close(write)
        self.process.send_signal(signal.SIGHUP)
        self.expect("RELOADING")  # and then a line for the log
        self.expect("READY")
        self.assertIn("WATCHDOG", self.hear())
        os.set_blocking(read, False)
        text = b""
        while b"has been read again" not in text:
            select.select([read], [], [], PATIENCE_S)
            text += os.read(read, 1 << 16)
        self.stop()

    def test_what_is_for_another_process_is_not_for_us(self):
        self.start(WATCHDOG_USEC="2000", WATCHDOG_PID="1", LISTEN_PID="1", LISTEN_FDS="1")
        self.expect("READY")
        self.ask_status()
        self.process.send_signal(signal.SIGTERM)
        self.assertIn("STOPPING", self.hear())
        self.assertEqual(self.process.wait(PATIENCE_S), 0)
        self.assertFalse(os.path.exists(self.socket_path))


class Activation(Manager):
    def test_who_connected_before_the_start_is_served(self):
        passed = self.listener()
        early = subprocess.Popen([ctl, "status", "--socket", self.socket_path], stdout=subprocess.PIPE)
        self.addCleanup(early.stdout.close)
        self.start(passed=[passed], LISTEN_FDNAMES="gpushare")
        self.expect("READY")
        self.assertEqual(early.wait(PATIENCE_S), 0)
        self.await_log("opened by the service manager")
        self.stop()
        self.assertTrue(os.path.exists(self.socket_path), "the socket is the manager's")

    def test_the_passed_socket_counts(self):
        passed = self.listener()
        self.start("--socket", self.path("other.sock"), passed=[passed])
        self.expect("READY")
        self.ask_status()
        self.assertFalse(os.path.exists(self.path("other.sock")))
        self.await_log("the service manager's socket counts")
        self.process.send_signal(signal.SIGHUP)
        self.expect("RELOADING")
        self.expect("READY")
        self.await_log("has been read again")
        self.assertNotIn("needs a restart", self.log())
        self.ask_status()
        self.stop()

    def test_one_of_several_by_its_name(self):
        other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(other.close)
        self.start(passed=[other, self.listener()], LISTEN_FDNAMES="other:gpushare")
        self.expect("READY")
        self.ask_status()
        self.stop()

    def test_another_name_is_refused(self):
        self.start(passed=[self.listener()], LISTEN_FDNAMES="gpushare-daemon.socket")
        self.fails(1, "named gpushare")

    def test_another_kind_is_refused(self):
        self.start(passed=[self.listener(socket.SOCK_STREAM)], LISTEN_FDNAMES="gpushare")
        self.fails(1, "ListenSequentialPacket")

    def test_one_that_does_not_listen_is_refused(self):
        passed = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(passed.close)
        self.start(passed=[passed], LISTEN_FDNAMES="gpushare")
        self.fails(1, "does not listen")

    def test_one_without_a_file_is_refused(self):
        passed = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(passed.close)
        passed.bind("\0" + self.path("abstract"))
        passed.listen(1)
        self.start(passed=[passed])
        self.fails(1, "is not a socket file")


class Journal(Manager):
    def start_with_stream(self, other=0):
        self.write("log", "")
        status = os.stat(self.path("log"))
        self.start(JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino + other}")

    def test_lines_have_their_priority(self):
        self.start_with_stream()
        self.expect("READY")
        self.write("gpushare.conf", "tq = soon\n")
        self.process.send_signal(signal.SIGHUP)
        self.expect("RELOADING")
        self.expect("READY")
        self.stop()
        lines = self.log().splitlines()
        self.assertTrue(all(line[0] == "<" and line[2] == ">" for line in lines), lines)
        self.assertTrue(any(line.startswith("<6>listening on ") for line in lines), lines)
        self.assertTrue(any(line.startswith("<3>" + self.config + ":1: ") for line in lines), lines)

    def test_redirected_since(self):
        self.start_with_stream(other=1)
        self.expect("READY")
        self.stop()
        self.assertIn("] info: listening on ", self.log())
        self.assertNotIn("<6>", self.log())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
