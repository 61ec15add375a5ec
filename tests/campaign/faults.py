#!/usr/bin/env python3
"""Makes each call of gpushare-daemon to the C library that can fail do so, and counts which ones have.

The calls, and how they fail, are those of tests/guest/faults.py, which see. In each scene (see SCENES) the daemon meets
clients of every kind. It may refuse to start, with an exit code and a word; else it must live, and go on serving: a bystander
may lose its connection to the call that fails, once, and then has a whole turn; whoever comes afterwards is served; no
descriptor is left over, nor does a client stay counted; the daemon ends when it is told to, and unless it has said otherwise
the next one knows what has been set.

What the daemon asks of the C library is either made to fail, or listed with what it can't do (NEVER_FAIL).

usage: faults.py DAEMON GPUSHARECTL FAULTS [--quick] [--only TEXT] [--allocations | --system-calls] ...
       GS_FAULT=... faults.py DAEMON GPUSHARECTL FAULTS --scene SCENE      one failure again
"""
import errno
import gc
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "metrics")]
from played import Client, Gone, Silent  # noqa: E402
import scene as metrics_scene  # noqa: E402

MIB = 1 << 20
CARD = 64 * MIB
UUID = bytes(range(1, 17))
CLIENTS = 6  # of a user
GROUP, STRANGER = 65533, 65534
PATIENCE_S = 10
# How it is started, and for the last ones what it finds of a daemon before it.
SCENES = ("plain", "activated", "mps", "port", *(("host",) if os.getuid() == 0 else ()), "damaged", "later", "folder")

# ---- a scene ----


class Wrong(Exception):
    pass


def must(right, what):
    if not right:
        raise Wrong(what)


def pump(*clients):
    """They do as they are told, until nobody says anything more for a moment."""
    quiet = time.monotonic() + 0.02
    while time.monotonic() < quiet:
        for client in clients:
            try:
                while True:
                    obey(client, client.receive(0.001))
                    quiet = time.monotonic() + 0.02
            except Silent:
                pass


def obey(client, message):
    if message.name in ("ROOM", "LOCK_OK", "DROP_LOCK"):
        room_bytes, room_seq = message.values()[:2]
        client.send("RESIDENT", min(room_bytes, 40 * MIB), room_seq, 0, 0, gpu=message.gpu)
    if message.name == "LOCK_OK":
        client.send("LOCK_ACTIVE", 1, 1, epoch=message.epoch, gpu=message.gpu)
        client.holds = message.epoch
    elif message.name == "DROP_LOCK":
        client.send("LOCK_RELEASED", 1, epoch=message.epoch, gpu=message.gpu)
        client.holds = None


def join(path, name, gang=b"", gpus=1):
    client = Client(path, PATIENCE_S)
    client.register(name)
    client.send("COMMAND", name.encode())
    client.send("DECLARE", 200, 1, 0, 60 * MIB, gang, 0, 0, 0, 0)
    for gpu in range(gpus):
        client.attach(bytes([gpu]) + UUID[1:], CARD, 40 * MIB, gpu=gpu)
        if client.expect("ATTACHED", "REJECTED").name == "REJECTED":
            client.close()
            raise Gone("rejected")
    return client


def join_at_last(path, name):
    """The call that fails may be for it; then it is told so, and is served when it comes again."""
    try:
        return join(path, name)
    except Gone:
        return join(path, name)


def turn(client):
    """A whole one."""
    if client.holds is not None:
        client.send("LOCK_RELEASED", 1, epoch=client.holds)
        client.holds = None
    client.send("REQ_LOCK")
    grant = client.expect("LOCK_OK")
    client.send("LOCK_ACTIVE", 1, 1, epoch=grant.epoch)
    client.send("LOCK_RELEASED", 1, epoch=grant.epoch)
    return grant


class Stage:
    """The daemon with the failing call, in a folder."""

    def __init__(self, daemon, ctl, faults, kind, folder):
        self.daemon, self.ctl_path, self.faults, self.kind, self.folder = daemon, ctl, faults, kind, folder
        self.path = os.path.join(folder, *(["made"] if kind == "port" else []), "daemon.sock")
        self.state = os.path.join(folder, "state")
        self.config = os.path.join(folder, "conf")
        os.mkdir(self.config + ".d")
        metrics = "127.0.0.1:0" if kind == "port" else f"unix:{folder}/metrics.sock"
        for name, text in (("conf", f"tq = 20ms\ngroup = {GROUP}\nmetrics = {metrics}\n[gpu {UUID.hex()}]\n"
                            "[user root]\nmax_weight = 10000\n"),
                           ("conf.d/10.conf", f"max_clients_per_user = {CLIENTS}\nlog = debug\non_job_end = exec sleep 1000\n")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text.replace(UUID.hex(), "-".join(UUID.hex()[a:b] for a, b in (
                    (0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))))
        self.log_path = os.path.join(folder, "log")
        self.listener = None
        if kind == "host":
            self.play_host()

    def play_host(self):
        """A host with two GPUs, whose device file this process, which plays all clients, has open."""
        os.chmod(self.folder, 0o755)
        for gpu in range(2):
            card = os.path.join(self.folder, f"host/proc/driver/nvidia/gpus/0000:0{gpu}:00.0")
            os.makedirs(card)
            with open(os.path.join(card, "information"), "w", encoding="utf-8") as file:
                file.write(f"Model: card\nGPU UUID: GPU-{uuid.UUID(bytes=bytes([gpu]) + UUID[1:])}\nDevice Minor: 3\n")
        with open(os.path.join(self.folder, "host/proc/devices"), "w", encoding="utf-8") as file:
            file.write("  1 nvidia\n")
        device = os.path.join(self.folder, "nvidia0")
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self.device = os.open(device, os.O_RDWR)

    def start(self, failing):
        environment = {**os.environ, "STATE_DIRECTORY": self.folder, "GPUSHARE_NVML": "/nowhere/libnvidia-ml.so",
                       "GPUSHARE_HOST_ROOT": os.path.join(self.folder, "host")}
        if failing:
            environment.update(GS_FAULT_DAEMON="1", LD_PRELOAD=self.faults)
        else:
            environment = {name: value for name, value in environment.items() if not name.startswith("GS_FAULT")}
        command = [self.daemon, "--config", self.config, "--socket", self.path, "--mode", "on", "--grace", "1s"]
        place = None
        if self.kind == "mps":
            command += ["--spatial", "mps"]
            environment["PATH"] = os.path.join(os.path.dirname(self.faults), "..", "system", "mps") + ":" + environment["PATH"]
        if self.kind == "activated":
            place = self.listen()
            command = ["/bin/sh", "-c", 'export LISTEN_PID=$$ LISTEN_FDS=1; ' + (
                f'export LD_PRELOAD="{self.faults}"; ' if failing else "") + 'exec "$@"', "sh", *command]
            environment.pop("LD_PRELOAD", None)
            environment["NOTIFY_SOCKET"] = os.path.join(self.folder, "notify")
            environment["JOURNAL_STREAM"] = "1:2"
        if self.kind == "port":
            def place():
                resource.setrlimit(resource.RLIMIT_NOFILE, (1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log, close_fds=False, preexec_fn=place)

    def listen(self):
        if not self.listener:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.listener.bind(self.path)
            self.listener.listen(64)
            self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.notified.bind(os.path.join(self.folder, "notify"))

        def place():
            os.dup2(self.listener.fileno(), 100)
            os.dup2(100, 3)
            os.close(100)
        return place

    def wait_until_it_listens(self):
        """False: it has ended, as it may where a call of its beginning fails."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                must(self.process.returncode > 0, f"the daemon has crashed at its start: {self.process.returncode}")
                must("error: " in self.log(), "the daemon has not started, and not said why")
                return False
            if "listening on" in self.log():
                return True
            time.sleep(0.005)
        raise Wrong("the daemon neither listens nor ends")

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def leave_behind(self):
        """What the next daemon finds."""
        if self.kind == "port":
            os.path.exists(self.path) and os.unlink(self.path)
            os.rmdir(os.path.dirname(self.path))
        elif self.kind == "damaged":
            with open(self.state, "ab") as file:
                file.write(b"nonsense\n")
                for job in range(1, 2000):
                    file.write(line_of(f"ended\t{job}\t{job}\t1\t1\t0\t0\t1\t1\t1\t1\tprogram"))
                file.write(b"torn")
        elif self.kind == "later":
            with open(self.state, "wb") as file:
                file.write(line_of("gpushare-state\t2"))
        elif self.kind == "folder":
            os.unlink(self.state)
            os.mkdir(self.state)

    def grandchildren(self):
        """Of the daemon: the process that looks at others is one."""
        def children(pid):
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
                return [int(word) for word in file.read().split()]
        return [pid for child in children(self.process.pid) for pid in children(child)]

    def alive(self):
        must(self.process.poll() is None, f"the daemon has ended: {self.process.returncode}")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ctl(self, *words):
        return subprocess.run([self.ctl_path, "--socket", self.path, *words], capture_output=True, timeout=3 * PATIENCE_S,
                              check=False)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            must(self.process.wait(PATIENCE_S) == 0, f"the daemon has not ended well: {self.process.returncode}")
        except subprocess.TimeoutExpired as error:
            raise Wrong("the daemon does not end") from error


def line_of(text):
    """Of the file of what outlives the daemon."""
    total = 0xcbf29ce484222325
    for byte in text.encode():
        total = (total ^ byte) * 0x100000001b3 % (1 << 64)
    return f"{total:016x}\t{text}\n".encode()


def visit(stage):
    """Clients of all kinds come and go. Whatever happens to their own connections is theirs."""
    def others_turns():
        clients = [join(stage.path, "one"), join(stage.path, "two")]
        for client in clients:
            client.send("REQ_LOCK")
        pump(*clients)
        clients[0].send("MEM_REQUEST", 44 * MIB, 4 * MIB, 0)
        clients[0].send("MEM_REQUEST", 400 * MIB, 4 * MIB, 0)
        clients[0].send("MEM_REPORT", 30 * MIB, 0, 0)
        clients[0].send("MEM_SHORT", MIB)
        clients[0].send("CLIENT_STATE", 1, 0, 7)
        pump(*clients)
        clients[1].send("DETACH")
        clients[1].send("EXITING", 3)
        pump(clients[0])
        for job in ("2", "3"):
            stage.ctl("evict", job)
        for client in clients:
            client.close()

    def gang():
        clients = [join(stage.path, f"g{i}", b"gang", 2) for i in range(2)]
        for client in clients:
            client.send("REQ_LOCK")
            client.send("REQ_LOCK", gpu=1)
        pump(*clients)
        for client in clients:
            client.close()

    def readers():
        with Client(stage.path) as follower:
            follower.send("GET_EVENTS", 1, 0, 0, 1)
            follower.expect("EVENTS_BEGIN")
            for words in (["status", "--json"], ["events"], ["history"], ["why", "1"], ["set-weight", "1", "300"],
                          ["set-tq", "30ms"], ["set-policy", "srtf"], ["set-policy", "priority"], ["set-capacity", "60M"],
                          ["pause", "1"], ["resume", "1"], ["resume", "1"], ["set-class", "1", "production"],
                          ["set-policy", "fair"], ["report"], ["reload"], ["kill", "-s", "CONT", "1"]):
                stage.ctl(*words)

    def allotments():
        with Client(stage.path) as kubelet:
            for weight in (50, 70, 0):
                kubelet.send("ALLOT", UUID, 7, 20 * MIB, weight, 3, b"0123-4567")
                kubelet.expect("REPLY")

    def member():
        os.chmod(stage.folder, 0o755)
        for groups in ([GROUP], list(range(70000, 70100)) + [GROUP]):
            subprocess.run([stage.ctl_path, "--socket", stage.path, "set-tq", "40ms"], user=STRANGER, group=STRANGER,
                           extra_groups=groups, capture_output=True, timeout=PATIENCE_S, check=False)

    def metrics():
        where = re.findall(r"metrics on (\S+)", stage.log())
        if where:
            metrics_scene.ask(where[-1], timeout=PATIENCE_S)
        if where and stage.kind == "port":
            host, _, port = where[-1].rpartition(":")
            crowd = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(20)]
            time.sleep(0.02)
            for one in crowd:
                one.close()

    def mps_again():
        """Its control dies, and is started anew."""
        pids = re.findall(r"MPS starts for .*\(pid (\d+)\)", stage.log())
        if pids:
            os.kill(int(pids[-1]), signal.SIGKILL)
            end = time.monotonic() + 1
            while stage.log().count("MPS starts for") == len(pids) and time.monotonic() < end:
                time.sleep(0.02)

    def looked_for_in_vain():
        """Who looks for devices does not answer; a client leaves meanwhile, and another one is let in."""
        if stage.kind != "host":
            return
        first = join(stage.path, "seen")
        for pid in stage.grandchildren():
            os.kill(pid, signal.SIGSTOP)
        for stays in (False, True):
            client = Client(stage.path, PATIENCE_S)
            client.register()
            client.attach(UUID, CARD, MIB)
            time.sleep(0.02)
            if stays:
                client.expect("ATTACHED")
            client.close()
        first.close()

    def opportunistic():
        client = Client(stage.path, PATIENCE_S)
        client.register("low")
        client.send("DECLARE", 1, 0, 10 ** 9, 0, b"", 0, 2, 0, 0)
        client.attach(UUID, CARD, MIB)
        client.send("REQ_LOCK")
        pump(client)
        client.close()

    def strangers():
        with Client(stage.path) as client:
            client.send_packet(b"nonsense")
        with Client(stage.path) as client:
            client.send("REGISTER", 1, b"old", 0, 0, version=1)
            client.receive()
        with Client(stage.path) as client:
            client.send("ASK_SPATIAL")
            client.receive()
        crowd = [Client(stage.path, PATIENCE_S) for _ in range(CLIENTS + 1)]
        for client in crowd:
            client.register()

    def signals():
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGUSR1):
            stage.process.send_signal(number)
            end = time.monotonic() + 1
            while f"by {number.name}" not in stage.log() and time.monotonic() < end:  # of two that wait the lower one comes first
                time.sleep(0.02)

    for part in (others_turns, gang, readers, allotments, member, metrics, mps_again, looked_for_in_vain, opportunistic, strangers,
                 signals):
        try:
            part()
        except (Gone, Silent, OSError) as error:
            print(f"{part.__name__}: {error}")
        stage.alive()


def turn_at_last(stage, client, name):
    """The client, which may have had to come back."""
    try:
        pump(client)
        turn(client)
        return client
    except Gone:
        client.close()
    client = join_at_last(stage.path, name)
    turn(client)
    return client


def await_descriptors(stage, wanted):
    gc.collect()  # connections that an exception has kept
    end = time.monotonic() + PATIENCE_S
    while stage.descriptors() > wanted and time.monotonic() < end:
        time.sleep(0.02)
    must(stage.descriptors() <= wanted, f"descriptors are left over: {stage.descriptors()}, not {wanted}")


def usual_descriptors(stage):
    """Of a daemon with one client, and nothing that fails."""
    stage.start(failing=False)
    must(stage.wait_until_it_listens(), "the daemon does not start")
    client = join(stage.path, "first")
    count = stage.descriptors()
    client.close()
    if stage.kind == "plain":  # its socket file is left
        stage.process.kill()
        stage.process.wait()
    else:
        stage.end()
    stage.leave_behind()
    open(stage.log_path, "w", encoding="utf-8").close()
    return count


def play(stage):
    wanted, kept = usual_descriptors(stage), False
    stage.start(failing=True)
    if stage.wait_until_it_listens():
        stage.ctl("status")  # of no GPU
        bystander = join_at_last(stage.path, "bystander")
        visit(stage)
        bystander = turn_at_last(stage, bystander, "bystander")
        await_descriptors(stage, wanted)
        others = []
        for _ in range(CLIENTS - 1):  # nobody who has gone is counted
            others.append(join_at_last(stage.path, "late"))
        others[-1] = turn_at_last(stage, others[-1], "late")
        for client in [bystander, *others]:
            client.close()
        stage.alive()
        kept = stage.ctl("set-tq", "123ms").returncode == 0
        stage.end()
        kept &= "nothing is kept over restarts" not in stage.log() and "can't be kept" not in stage.log()
    elif stage.kind != "activated":
        os.path.exists(stage.path) and os.unlink(stage.path)
    stage.start(failing=False)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            join(stage.path, "afterwards").close()
            break
        except (Gone, Silent):
            time.sleep(0.02)
    else:
        raise Wrong("a daemon that is started afterwards serves nobody")
    tq_ns = json.loads(stage.ctl("status", "--json").stdout)["daemon"]["default_tq_ns"]
    must(not kept or tq_ns == 123 * 10 ** 6, f"what has been set is lost: the quantum is {tq_ns} ns")
    stage.end()


def scene_main(daemon, ctl, faults, kind):
    with tempfile.TemporaryDirectory(prefix="gpushare-faults-") as folder:
        stage = Stage(daemon, ctl, faults, kind, folder)
        stage.process = None
        try:
            play(stage)
            return 0
        except (Wrong, Gone, Silent, subprocess.TimeoutExpired, FileNotFoundError, ProcessLookupError) as error:
            print(f"{type(error).__name__}: {error}\n{stage.log()[-1500:]}")
            return 1
        finally:
            if stage.process and stage.process.poll() is None:
                stage.process.kill()
                stage.process.wait()


# ---- the campaign ----

FILES, MEMORY = [errno.EMFILE, errno.ENOMEM], [errno.ENOMEM]
# Beside what tests/guest/faults.py has.
ALLOCATIONS = {"strdup": MEMORY, "open_memstream": MEMORY, "fopen": FILES, "fopen64": FILES, "opendir": FILES,
               "scandir": MEMORY, "memfd_create": FILES, "epoll_create1": FILES, "timerfd_create": FILES,
               "signalfd": FILES, "pipe2": FILES, "openat": FILES, "accept4": [errno.EMFILE, errno.ENOBUFS,
                                                                              errno.ECONNABORTED],
               "fork": [errno.EAGAIN], "fdopendir": MEMORY, "fopencookie": MEMORY, "socketpair": FILES,
               "glob": [1]}  # GLOB_NOSPACE
READ = [errno.EIO, errno.EINTR]
SYSTEM_CALLS = {
    "bind": [errno.EADDRINUSE, errno.EACCES], "chdir": [errno.EACCES], "chmod": [errno.EPERM], "dup2": [errno.EMFILE],
    "epoll_ctl": [errno.ENOSPC, errno.ENOMEM], "epoll_wait": [errno.EINTR], "fchmod": [errno.EPERM, errno.EIO],
    "fchmodat": [errno.EPERM, errno.EIO], "fdatasync": [errno.EIO, errno.ENOSPC], "fgetpwent": [errno.EIO],
    "fsync": [errno.EIO], "ftruncate": [errno.ENOMEM], "getgrnam": [errno.EIO, errno.EMFILE], "getpeername": [errno.ENOTCONN],
    "getpriority": [errno.EACCES], "getpwnam": [errno.EIO, errno.EMFILE], "getrlimit": [errno.EINVAL],
    "getsockname": [errno.ENOBUFS], "getsockopt": [errno.ENOPROTOOPT], "ioctl": [errno.ENOTTY], "kill": [errno.EPERM],
    "linkat": [errno.EPERM, errno.ENOSPC], "listen": [errno.EADDRINUSE], "lstat": [errno.EACCES], "mkdir": [errno.EACCES, errno.ENOSPC],
    "mkdirat": [errno.ENOSPC, errno.EACCES], "mkdtemp": [errno.ENOSPC, errno.EACCES], "pread": READ, "__pread_chk": READ,
    "__read_chk": READ, "readdir": [errno.EIO], "readlink": [errno.EACCES], "readlinkat": [errno.EACCES],
    "recv": [errno.EINTR, errno.ECONNRESET], "rename": [errno.ENOSPC], "renameat": [errno.ENOSPC, errno.EIO],
    "renameat2": [errno.EINVAL, errno.EXDEV], "sem_clockwait": [errno.ETIMEDOUT, errno.EINTR], "sem_wait": [errno.EINTR],
    "send": [errno.EAGAIN, errno.EPIPE], "setpriority": [errno.EACCES], "setrlimit": [errno.EPERM],
    "setsockopt": [errno.EINVAL], "shutdown": [errno.ENOTCONN], "sigtimedwait": [errno.EAGAIN, errno.EINTR],
    "statx": [errno.EACCES], "timerfd_settime": [errno.EINVAL], "unlink": [errno.EACCES], "unlinkat": [errno.EACCES, errno.EBUSY],
    "waitpid": [errno.ECHILD, errno.EINTR],
}
# Whoever can't tell whether a number is still its own leaves it open (src/common/descriptor.h). That is for guests in a
# program; that the file of a descriptor can't be looked at does not happen to the daemon.
NEVER = {"syscall in look_at": MEMORY, "stat in is_at": [errno.EACCES]}
EXCUSED = {
    **{name: "see NEVER" for name in NEVER},
    **{name: "the page is off in the scenes: tests/web/test_web.py" for name in (
        "fork in begin (web_child", "readlink in readlink < find_program", "access in find_program", "dup2 in become < begin (web_child",
        "chdir in become < begin (web_child", "prctl in process_bind_to < become", "kill in web_child_end", "waitpid in web_child_end",
        "waitpid in web_child_on_child")},
    "kill in read_and_tell": "a signal to the process itself",
    "shutdown in expire": "a reader of metrics that is slow for seconds: tests/metrics/test_daemon.py",
    "malloc in ini_parse_stream": "inih's, for settings that gpushare does not use",
    "realloc in ini_parse_stream": "inih's, for settings that gpushare does not use",
    "fopen64 in ini_parse": "inih's, for files that it opens itself",
    "openat in read_text < read_uuid": "a host with NVIDIA's kernel module",
    "setenv in set_environment": "in the child that becomes MPS, where the injector is not",
    "socket in wire_socket_as_guest": "the library's way to the daemon",
    "socket in wire_connect_as (": "a daemon that finds another one's socket file: tests/system/test_daemon.c",
    "pthread_create in create (thread.c": "the library's threads",
    "malloc in begin < learn (terms.c": "runs of a second and more: tests/unit/test_history.c",
    "malloc in learn (terms.c": "likewise, where begin is inlined",
    "write in lock_complain": "a lock that is taken out of its rank",
    "realloc in provide_room": "jobs that come while a status is being made",
    **{f"{name} in process_close_from": "kernels without close_range" for name in ("opendir", "readdir", "getrlimit")},
    **{f"epoll_ctl in set_accepting < {where}": "only after a connection that can't be taken: with allocations"
       for where in ("accept_peers", "do_what_is_due")},
    "epoll_ctl in peer_set_events < forget_look": "a process that ends while it is looked for: tests/unit/test_daemon_presence.c",
    "kill in card_query_on_time": "a helper that hangs for a minute: tests/unit/test_card_query.c",
    "kill in card_query_end": "a helper that hangs at the daemon's end: tests/unit/test_card_query.c",
    **{name: "cards are watched with NVML, which the scenes do not have: tests/unit/test_card_query.c" for name in (
        "fork in begin_watch", "fork in card_watch_go_on", "syscall in clock_sleep < look_for_ever", "kill in card_watch_go_on", "kill in card_watch_stop",
        "waitpid in card_watch_on_child", "munmap in card_watch_stop")},
    **{f"{name} in {where}": "an MPS that does not end when asked to: tests/system/test_mps.c"
       for name, where in (("kill", "stop < mps_end"), ("kill", "kill_and_wait"), ("waitpid", "kill_and_wait"))},
    "shutdown in expire < exporter_run": "connections of ten seconds: tests/metrics/test_daemon.py",
    **{f"{name} lock_folder": "a folder that another daemon has: tests/unit/test_state.c" for name in ("poll in poll < await_end <", "fcntl in")},
    "syscall in clock_sleep < await_end": "another daemon whose process can't be seen: tests/unit/test_state.c",
    "access in check_config": "gpushare-daemon --check-config: tests/unit/test_ctl_doctor.c",
    "fdatasync in state_close": "no thread can be started: tests/unit/test_state.c",
    **{f"{name} in {where}": "nobody reads the log: tests/unit/test_daemon_log.c"
       for name, where in (("poll", "poll < write_line"), ("write", "take_line"))},
    "syscall in write_at_once": "the library's way to the log",
    **{f"{name} in is_fresh_socket": "the library's way to the daemon" for name in ("getsockopt", "getpeername")},
    "syscall in wire_connect_as_guest": "the library's way to the daemon",
    "syscall in clock_sleep < wire_connect_patiently": "gpusharectl's way to the daemon",
    "syscall in clock_sleep < thread_start_needed": "the library's threads",
    "syscall in wire_socket_as_guest": "the library's way to the daemon",
    **{f"syscall in descriptor_close < {where}": "the library's descriptors" for where in ("descriptor_keep", "descriptor_hang_up")},
    "recv in recv < descriptor_hang_up": "the library's descriptors",
    "shutdown in descriptor_hang_up": "the library's descriptors",
    "getrlimit in descriptor_may_stay": "the library's descriptors",
    **{f"{name} in {where}": "the library's descriptors"
       for name, where in (("syscall", "run_frozen"), ("syscall", "descriptor_own_table"), ("syscall", "duplicate"),
                           ("syscall", "futex_wait_by < futex_wait < descriptor_apart"), ("syscall", "futex_wake < run_errand"))},
    **{name: "only after another call has failed"
       for name in ("write in write_all < catch_up", "unlinkat in make_anew", "fstat in read_only", "syscall in process_open_since")},
}

# What the daemon asks of the C library and does not come here, and why not. Without __isoc23_, _chk and the like.
NEVER_FAIL = {
    "it is no function": "optarg optind stderr",
    "it is reckoned": """ctype_b_loc exp2 fmax fmin hypot ldexp log log2 pow sqrt qsort bcmp memchr memcmp memcpy memmove mempcpy memrchr
        memset stpcpy strcat strchr strchrnul strcmp strcpy strcspn strerror strlen strncat strncmp strncpy strnlen strrchr
        strsep strspn strstr strtok_r strtol strtoul strtoull sscanf snprintf sprintf vsnprintf inet_ntop inet_pton""",
    "it can't": """errno_location stack_chk_fail libc_start_main cxa_finalize gmon_start _exit exit getenv secure_getenv geteuid
        getpid getppid libc_current_sigrtmin umask signal sigaddset sigemptyset sigfillset sigprocmask pthread_sigmask unsetenv mallopt dirfd
        clock_gettime pthread_attr_destroy pthread_attr_init pthread_attr_setaffinity_np pthread_attr_setdetachstate
        pthread_attr_setinheritsched pthread_attr_setschedparam pthread_attr_setschedpolicy pthread_cond_destroy
        pthread_cond_broadcast pthread_cond_clockwait pthread_cond_init pthread_cond_wait eventfd_read eventfd_write pthread_join pthread_mutex_destroy pthread_mutex_init
        pthread_mutex_lock pthread_mutex_unlock pthread_setcancelstate sem_init sem_post sem_trywait""",
    "what it frees is free": "free close closedir fclose dlclose globfree",
    "the stream keeps the error, and all of it is read or written": """fprintf printf fputs fputs_unlocked fwrite
        fwrite_unlocked fputc putchar puts overflow fgets ferror getopt_long""",
    "libraries that are missing, or no such program: tests/metrics, tests/nvml, tests/system/test_mps.c":
        "dlopen dlsym dlerror execvp",
    "a child's, before it becomes on_job_end; that it has failed is its exit status: tests/unit/test_daemon_hook.c":
        "execve setpgid",
    "a child's, before it becomes gpushare-web; the log says that it could not start: tests/web/test_web.py": "realpath",
}


def unknown_calls(daemon, known):
    """Whom nobody has thought of."""
    names = re.findall(r" U (\w+)", subprocess.run(["nm", "-D", "--undefined-only", daemon], capture_output=True, text=True,
                                                    check=True).stdout)
    never = {name for words in NEVER_FAIL.values() for name in words.split()}
    return [name for name in names if name not in known and not re.match("__(asan|ubsan|tsan|sanitizer|lsan)_|_ITM_", name)
            and re.sub("^__(isoc\\d+_)?|_chk$|64$|__$", "", name) not in never and name not in never]


def main():
    if "--scene" in sys.argv:
        return scene_main(*sys.argv[1:4], sys.argv[sys.argv.index("--scene") + 1])
    sys.path[0] = os.path.join(HERE, "..", "guest")
    sys.modules.pop("faults", None)
    import faults as guest
    guest.ALLOCATIONS.update(ALLOCATIONS)
    guest.SYSTEM_CALLS.update(SYSTEM_CALLS)
    guest.EXCUSED = EXCUSED
    guest.NEVER = NEVER
    guest.Site.is_bearable = False
    guest.HANG_S = 60
    daemon, ctl, faults = sys.argv[1:4]
    unknown = unknown_calls(daemon, guest.ALLOCATIONS.keys() | guest.SYSTEM_CALLS.keys())
    if unknown:
        sys.exit(f"neither made to fail nor in NEVER_FAIL: {' '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        runner = os.path.join(folder, "scenes")
        with open(runner, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n[ "$1" = --list ] && echo {" ".join(SCENES)} && exit\n'
                       f'exec {sys.executable} -B {os.path.abspath(__file__)} {daemon} {ctl} {faults} --scene "$1"\n')
        os.chmod(runner, 0o755)
        sys.argv[1:4] = [daemon, runner]
        return guest.main()


if __name__ == "__main__":
    sys.exit(main())
