"""gpusharectl --host over a real ssh: two daemons behind two sshd of the test's user, on loopback ports, with keys and
configurations of their own. Skipped where sshd is not installed (Debian: openssh-server, openssh-client).
usage: test_ssh.py BUILD"""
import json
import os
import pty
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCES, "tests", "metrics"))
from scene import MIB, PATIENCE_S, QuietScene, free_port, wait_until  # noqa: E402

build = os.path.realpath(sys.argv[1])
CTL = os.path.join(build, "daemon", "gpusharectl")
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
# The server of root wants this folder. The package's service makes it; here a folder of the server's own stands for it.
WITHOUT_RUN = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec "$@"', "sh"]
NEEDS_RUN = os.getuid() == 0 and not os.path.isdir("/run/sshd")
HOSTS = ("a", "b")
GREETING = "Authorized users only."
PASSED_ON = ("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "GS_STRICT")  # to gpusharectl there

SERVER = """
HostKey {folder}/{name}.key
AuthorizedKeysFile {folder}/authorized
Banner {folder}/greeting
PidFile none
UsePAM no
StrictModes no
PermitUserRC no
PasswordAuthentication no
KbdInteractiveAuthentication no
ListenAddress 127.0.0.1:{port}
ListenAddress 127.0.0.1:{bare_port}
Match LocalPort {port}
  SetEnv PATH={build}/daemon:/usr/bin:/bin GPUSHARE_SOCKET={socket} {passed_on}
Match LocalPort {bare_port}
  SetEnv PATH=/usr/bin:/bin
"""

CLIENT = """
Host *
  HostName 127.0.0.1
  User {user}
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known
  GlobalKnownHostsFile none
"""

# In front of that: ssh takes the first value of each setting.
CLIENT_HOST = """
Host {name}
  Port {port}
  HostKeyAlias {known_as}
  IdentityFile {folder}/{identity}
  StrictHostKeyChecking {checking}
"""


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="gpushare-hosts-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.user = pwd.getpwuid(os.getuid()).pw_name
        cls.silent = socket.create_server(("127.0.0.1", 0))
        cls.addClassCleanup(cls.silent.close)
        cls.ports = {name: free_port() for name in ("a", "b", "bare", "down")}
        for name in ("a.key", "b.key", "user", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cls.path(name)], check=True)
        shutil.copy(cls.path("user.pub"), cls.path("authorized"))
        cls.write("greeting", GREETING + "\n")
        cls.write("known", "".join(f"{name} {cls.read(name + '.key.pub')}" for name in HOSTS))
        cls.write_client()
        cls.scenes = {}
        for name in HOSTS:
            cls.scenes[name] = QuietScene(build)
            cls.addClassCleanup(cls.scenes[name].end)
            cls.start_server(name)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def read(cls, name):
        with open(cls.path(name), encoding="utf-8") as file:
            return file.read()

    @classmethod
    def write(cls, name, text):
        with open(cls.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def write_client(cls):
        def host(name, port, known_as="a", identity="user", checking="yes"):
            return CLIENT_HOST.format(folder=cls.folder, name=name, port=port, known_as=known_as, identity=identity, checking=checking)
        cls.write("client", "".join((
            host("a", cls.ports["a"]), host("b", cls.ports["b"], known_as="b"),
            host("bare", cls.ports["bare"]), host("down", cls.ports["down"]), host("silent", cls.silent.getsockname()[1]),
            host("stranger", cls.ports["a"], identity="stranger"), host("forged", cls.ports["a"], known_as="b"),
            host("asking", cls.ports["a"], known_as="nobody", checking="ask"),
            CLIENT.format(folder=cls.folder, user=cls.user))))

    @classmethod
    def start_server(cls, name):
        cls.write(name + ".conf", SERVER.format(
            folder=cls.folder, name=name, port=cls.ports[name], build=build, socket=cls.scenes[name].socket,
            bare_port=cls.ports["bare"] if name == "a" else free_port(),
            passed_on=" ".join(f"{key}={os.environ[key]}" for key in PASSED_ON if key in os.environ)))
        command = [SSHD, "-D", "-e", "-f", cls.path(name + ".conf")]
        if NEEDS_RUN:
            command = WITHOUT_RUN + command
        with open(cls.path(name + ".log"), "ab") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.kill)
        wait_until(f"sshd of {name} answers", lambda: answers(cls.ports[name]) or server.poll() is not None)
        assert server.poll() is None, cls.read(name + ".log")

    def environment(self, **variables):
        return {**os.environ, "GPUSHARE_SSH": f"ssh -F {self.path('client')}", "GPUSHARE_SSH_TIMEOUT": str(PATIENCE_S),
                "GPUSHARE_SOCKET": "/nonexistent", **variables}

    def ask(self, *arguments, code=0, **variables):
        """What it prints, by lines."""
        result = subprocess.run([CTL, *arguments], env=self.environment(**variables), stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
        self.assertEqual((result.returncode, result.stderr), (code, ""), (result.stdout, self.read("a.log")))
        return result.stdout.splitlines()

    def start_job(self, host, name):
        job = self.scenes[host].start(bytes_each=8 * MIB, GPUSHARE_NAME=name)
        self.addCleanup(self.scenes[host].stop, job)

    def test_status_and_top_show_the_jobs_of_both_hosts(self):
        self.start_job("a", "train")
        self.start_job("b", "serve")
        for command in (["status"], ["top", "--batch", "-n", "2", "-d", "0.1"]):
            lines = self.ask(*command, "--host", "a,b")
            rows = [line.split() for line in lines if line.startswith(HOSTS)]
            self.assertEqual([row[:2] for row in rows], [["a", "0"], ["b", "0"]] * (len(rows) // 2), lines)
            self.assertEqual([row[-1] for row in rows[:2]], [f"{self.user}:train", f"{self.user}:serve"], lines)
            self.assertEqual(len(rows), 4 if "top" in command else 2, lines)
            self.assertFalse([line for line in lines if GREETING in line])

    def test_a_report_has_the_rows_of_both_hosts(self):
        for host in HOSTS:
            self.start_job(host, "train")
        lines = self.ask("report", "--since", "1h", "--host", "a,b")
        self.assertEqual([line.split()[:2] for line in lines[1:]], [["a", self.user], ["b", self.user]], lines)

    def test_json_is_an_object_of_each_host(self):
        told = {told["host"]: told for told in map(json.loads, self.ask("status", "--json", "--host", "a,down", code=3))}
        self.assertEqual((told["a"]["error"], told["down"]["status"]), (None, None))
        self.assertIn("gpus", told["a"]["status"])
        self.assertRegex(told["down"]["error"], "Connection refused$")

    def test_a_host_that_is_not_reached_is_a_line_with_its_reason(self):
        reasons = {
            "down": f"ssh: connect to host 127.0.0.1 port {self.ports['down']}: Connection refused",
            "stranger": f"{self.user}@127.0.0.1: Permission denied (publickey).",
            "forged": "Host key verification failed.",
            "bare": "install gpushare there: "}
        lines = self.ask("status", "--host", ",".join(["a", *reasons]), code=3)
        self.assertTrue(lines[1].startswith("a "), lines)
        self.assertNotIn("does not answer", lines[1])
        for line, (name, reason) in zip(lines[2:], reasons.items(), strict=True):
            self.assertTrue(line.startswith(f"{name:8} does not answer: {reason}"), (line, self.read("a.log")))
        self.assertRegex(lines[-1], "gpusharectl.*not found$")

    def test_a_host_that_says_nothing_has_its_time(self):
        lines = self.ask("status", "--host", "silent", code=3, GPUSHARE_SSH_TIMEOUT="2")
        self.assertEqual(lines[1], "silent does not answer: no answer within 2 s (GPUSHARE_SSH_TIMEOUT)")

    def test_a_host_without_a_daemon_says_so(self):
        scene = self.scenes["b"]
        self.addCleanup(scene.start_daemon)
        scene.daemon.terminate()
        scene.daemon.wait(PATIENCE_S)
        lines = self.ask("status", "--host", "a,b", code=3)
        self.assertTrue(lines[2].startswith("b    does not answer: "), lines)
        self.assertIn(scene.socket, lines[2])
        self.assertNotIn(GREETING, lines[2])

    def test_a_connection_that_stays_holds_nothing_up(self):
        shared = "-oControlMaster=auto -oControlPersist=600 -oControlPath=" + self.path("shared")
        ssh = f"ssh -F {self.path('client')} {shared}"
        self.addCleanup(subprocess.run, [*ssh.split(), "-O", "exit", "a"], capture_output=True, check=True)
        for _ in range(2):
            lines = self.ask("status", "--host", "a", GPUSHARE_SSH=ssh)
            self.assertNotIn("does not answer", lines[1])

    # ssh would ask whether the host's key is known, and wait for an answer in vain.
    def test_on_a_terminal_nobody_is_asked(self):
        mine, terminal = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
             " os.execv(sys.argv[1], sys.argv[1:])", CTL, "status", "--host", "asking"],
            env=self.environment(), stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
        os.close(terminal)
        said = b""
        try:
            while chunk := os.read(mine, 4096):
                said += chunk
        except OSError:
            pass  # all have closed the terminal
        os.close(mine)
        self.assertEqual(process.wait(PATIENCE_S), 3, said)
        self.assertEqual(said.split(b"\r\n")[1:], [b"asking does not answer: Host key verification failed.", b""], said)


if __name__ == "__main__":
    if not SSHD or not all(shutil.which(name) for name in ("ssh", "ssh-keygen")):
        print("sshd, ssh and ssh-keygen are not here")
        sys.exit(77)
    if NEEDS_RUN and subprocess.run([*WITHOUT_RUN[:2], "true"], capture_output=True, check=False).returncode:
        print("root's sshd wants /run/sshd, which is not here, and no folder can stand for it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
