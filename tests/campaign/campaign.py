#!/usr/bin/env python3
"""Attacks a daemon as users would, beside programs of an honest one whose contents are checked. See README.md.

usage: campaign.py BUILD [ATTACK...] [--seconds N] [--judge] [--seed N]
       campaign.py BUILD --hours N             all of it at random, in one run with one daemon after the other
       campaign.py --list
Exit: 0; 1: something hangs, has crashed, has a wrong byte or is far from any target, or (--judge) misses a target;
77: not root.
"""
import argparse
import ctypes
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "metrics")]
import attackers  # noqa: E402
import scene  # noqa: E402
from played import Client, Gone, Silent, attached  # noqa: E402

HONEST, PROBE, ATTACKER = 65532, 65531, 65534
CROWD = range(65000, 65008)  # and others after these
MIB = 1 << 20
HANG_S = 60  # times the scale
SCALE = int(os.environ.get("GS_TEST_SCALE") or 1)
PDEATHSIG = 1
# What is far from any target, and so is wrong also on a machine that does much else: so many times the time, or the one that it
# takes there without the attack; of one that is the worst of many, twice as many; the memory; so much of a share.
FAR_TIMES, FAR_WORST_TIMES, FAR_MEMORY, FAR_SHARE = 10, 20, 2, 1 / 3


def spawn(uid, work):
    """A process of that user, which dies with this one. Its `work` has a function to call once it is ready; the end of
    the pipe from which that can be read is returned with the pid."""
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
            os.close(heard)
            attackers.raise_limits()
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)  # a change of the user clears it
            os.setpgid(0, 0)
            work(lambda text="ready\n": os.write(said, text.encode()))
        except (Gone, Silent, OSError) as error:
            print(f"an attacker has given up: {error}", file=sys.stderr)
        finally:
            os._exit(0)
    os.close(said)
    return pid, open(heard, encoding="utf-8")


def end_group(pid):
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.waitpid(pid, 0)


# ---- what holds, and what does not ----

class Results:
    """judge: a missed target fails, too."""

    def __init__(self, judge):
        self.judge, self.good, self.rows, self.faults = judge, True, [], 0

    def must(self, name, measured, target, right):
        """It depends on no machine."""
        self.add(name, measured, target, right, right)

    def add(self, name, measured, target, right, bearable=True):
        """right: the target is met; bearable: it is not far from any."""
        verdict = "ok" if right else "FAILS" if not bearable or self.judge else "misses"
        self.good &= verdict != "FAILS"
        self.rows.append((verdict, name, target, measured))
        print(f"{verdict:6} {name:44} {target:>14} {measured}", flush=True)

    def add_time(self, name, seconds, target_s, usual_s=0, worst=False, right=True, note=""):
        """usual_s: without the attack. right: what else must hold for the target to be met."""
        times = (FAR_WORST_TIMES if worst else FAR_TIMES) * SCALE
        self.add(name, f"{1e3 * seconds:.1f} ms{note}", f"<= {1e3 * target_s:.0f} ms", seconds <= target_s and right,
                 seconds <= times * max(target_s, usual_s))

    def show(self):
        print(f"\n{'':6} {'check':44} {'target':>14} measured")
        for row in self.rows:
            print("{:6} {:44} {:>14} {}".format(*row))
        print(f"kills and faults: {self.faults}")


# ---- a daemon and honest programs ----

class Guarded(scene.Scene):
    """The daemon has its socket from a service manager, which starts it again."""

    def __init__(self, build, *settings, **environment):
        self.listener = None
        self.honest, self.bystanders, self.card = {}, [], None
        super().__init__(build, *settings, **environment)

    def start_daemon(self):
        if not self.listener:
            os.chmod(self.folder, 0o755)
            for name in ("state.d", "home"):
                os.mkdir(os.path.join(self.folder, name))
            os.chmod(os.path.join(self.folder, "home"), 0o777)
            self.environment["GPUSHARE_SIM_STATE"] = os.path.join(self.folder, "home", "state")
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.listener.bind(self.socket)
            os.chmod(self.socket, 0o666)
            self.listener.listen(128)  # as the service's

        def place():
            os.dup2(self.listener.fileno(), 100)
            os.dup2(100, 3)
            os.close(100)
        self.daemon = subprocess.Popen(
            ["/bin/sh", "-c", 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "sh",
             self.program("daemon", "gpushare-daemon"), "--config", self.config, "--socket", self.socket,
             *self.settings], stderr=self.errors, close_fds=False, preexec_fn=place,
            env={**os.environ, "STATE_DIRECTORY": os.path.join(self.folder, "state.d"), **self.daemon_environment})
        self.wait_for_daemon()

    def start_churn(self, **environment):
        output = os.path.join(self.folder, f"job{len(self.jobs)}.out")
        with open(output, "w", encoding="utf-8") as file:
            self.jobs.append(subprocess.Popen(
                [self.program("daemon", "gpusharectl"), "run", "--", self.program("tests", "system", "churn"), "--bytes",
                 "16M", "--threads", "1"], env={**self.environment, **environment}, stdin=subprocess.PIPE, stdout=file,
                stderr=self.errors, text=True, user=HONEST, extra_groups=[]))
        return self.jobs[-1]

    def start_bystanders(self):
        self.bystanders = [self.start("--progress", user=HONEST, bytes_each=40 * MIB),
                           self.start("--progress", user=HONEST, bytes_each=40 * MIB, GPUSHARE_MEMORY="swap"),
                           self.start_churn()]
        scene.wait_until("the third one has its memory", lambda: "ready" in self.output(self.bystanders[2]))

    def output(self, job):
        with open(os.path.join(self.folder, f"job{self.jobs.index(job)}.out"), encoding="utf-8") as file:
            return file.read()

    def rounds(self):
        return [self.output(job).count("round ") for job in self.bystanders[:2]]

    def check_progress(self, patience_s=HANG_S * SCALE):
        """How many of them hang: they do no more rounds."""
        before, end = self.rounds(), time.monotonic() + patience_s
        hung = len(before)
        while hung and time.monotonic() < end:
            time.sleep(0.05)
            hung = sum(after < old + 2 for old, after in zip(before, self.rounds()))
        return hung

    def finish(self):
        """(hung, wrong, refused) of the bystanders: their contents are checked at their ends. Refused: for want of
        memory."""
        hung = wrong = refused = 0
        for job in self.bystanders:
            job.send_signal(signal.SIGCONT)
            try:
                if job is not self.bystanders[2]:
                    job.stdin.write("stop\n")
                job.stdin.close()
            except BrokenPipeError:
                pass
        for job in self.bystanders:
            try:
                if job.wait(HANG_S * SCALE) == 0 and self.output(job).endswith("ok\n"):
                    continue
                print(f"a bystander ended with {job.returncode}: {self.output(job)[-300:]}", file=sys.stderr)
                if "OUT_OF_MEMORY" in self.output(job):
                    refused += 1
                else:
                    wrong += 1
            except subprocess.TimeoutExpired:
                hung += 1
        return hung, wrong, refused

    def uuid(self):
        """A daemon that has just begun knows of no card before the first job has told it."""
        deadline = time.monotonic() + HANG_S * SCALE
        while not (gpus := self.status().get("gpus")) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.card = gpus[0]["uuid"]
        return bytes.fromhex(self.card.removeprefix("GPU-").replace("-", ""))

    def gpu_ns(self):
        """Of the honest user; None: no answer."""
        status = self.status()
        if not status:
            return None
        return sum(job["gpu_ns"] for gpu in status["gpus"] for job in gpu["jobs"] if job["uid"] == HONEST)

    def resident_bytes(self):
        try:
            with open(f"/proc/{self.daemon.pid}/status", encoding="utf-8") as file:
                return int(next(line for line in file if line.startswith("VmRSS")).split()[1]) << 10
        except (OSError, StopIteration):
            return 0

    def play_card(self, total_bytes):
        """From the next start on, the host tells that it has the card that is there."""
        uuid = self.card
        script = os.path.join(self.folder, "nvml.txt")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"gpus=1 uuid={uuid} bytes={total_bytes}\n")
        self.daemon_environment.update(GPUSHARE_NVML=self.program("tests", "nvml", "lib", "libnvidia-ml.so.1"),
                                       GS_NVML_SCRIPT=script)

    def restart(self, outage_s=0.0, how=signal.SIGKILL):
        self.daemon.send_signal(how)
        self.daemon.wait(HANG_S)
        time.sleep(outage_s)
        self.start_daemon()

    def end(self):
        super().end()
        if self.listener:
            self.listener.close()


# ---- a program that joins, again and again ----

def join(path):
    def work(say):
        while True:
            begun = time.monotonic()
            say(f"begin {begun}\n")
            try:
                with Client(path, 600) as client:
                    client.register("probe")
            except (Gone, Silent):
                say("fails\n")
                continue
            finally:
                say(f"end {time.monotonic() - begun}\n")
            time.sleep(0.005)
    return work


class Probe:
    def __init__(self, path):
        self.pid, self.file = spawn(PROBE, join(path))
        os.set_blocking(self.file.fileno(), False)
        self.text = b""

    def end(self):
        """(p99, worst, how many failed) of what a program waits for REGISTERED, in seconds; one that still waits
        counts."""
        now = time.monotonic()
        self.listen()
        end_group(self.pid)
        self.file.close()
        lines = self.text.decode().splitlines()
        waits = sorted(float(line.split()[1]) for line in lines if line.startswith("end "))
        if lines and lines[-1].startswith("begin "):
            waits = sorted(waits + [now - float(lines[-1].split()[1])])
        return waits[len(waits) * 99 // 100], waits[-1], lines.count("fails")

    def listen(self):
        """Now and then, or it waits for room in its pipe, and not for the daemon."""
        try:
            while chunk := os.read(self.file.fileno(), 1 << 20):
                self.text += chunk
        except BlockingIOError:
            pass


def probe_for(guarded, seconds):
    probe = Probe(guarded.socket)
    time.sleep(seconds)
    return probe.end()


# ---- beside an attack ----

class Chaos:
    """Kills, stops and restarts at random moments."""

    def __init__(self, guarded, results, *kinds, outage_s=0.5):
        self.scene, self.results, self.kinds, self.outage_s = guarded, results, kinds, outage_s
        self.victims, self.stopped = [], []

    def step(self):
        {"kill_job": self.kill_job, "kill_daemon": self.kill_daemon, "stop": self.stop}[random.choice(self.kinds)]()
        self.results.faults += 1

    def kill_job(self):
        self.victims.append(self.scene.start_churn(GPUSHARE_MEMORY=random.choice(["managed", "swap"])))
        time.sleep(random.uniform(0, 0.1))
        if len(self.victims) > 2:
            victim = self.victims.pop(random.randrange(len(self.victims)))
            victim.kill()
            victim.wait()
            victim.stdin.close()

    def kill_daemon(self):
        time.sleep(random.uniform(0, 0.3))
        self.scene.restart(random.choice([0, random.uniform(0, self.outage_s)]),
                           random.choice([signal.SIGKILL, signal.SIGTERM]))

    def stop(self):
        victim = random.choice(self.scene.bystanders)
        victim.send_signal(signal.SIGSTOP)
        time.sleep(random.uniform(0, 0.4))
        victim.send_signal(signal.SIGCONT)

    def end(self):
        for victim in self.victims:
            victim.kill()
            victim.wait()
            victim.stdin.close()


class Share:
    """GPU time and rounds of the honest user, from now on."""

    def __init__(self, guarded):
        self.guarded, self.begun = guarded, time.monotonic()
        self.begun_ns, self.begun_rounds = guarded.gpu_ns(), sum(guarded.rounds())

    def end(self):
        """Of the time; None: the daemon does not say. And rounds per second."""
        took, ended_ns = time.monotonic() - self.begun, self.guarded.gpu_ns()
        rounds = (sum(self.guarded.rounds()) - self.begun_rounds) / took
        known = None not in (self.begun_ns, ended_ns)
        return (ended_ns - self.begun_ns) / 1e9 / took if known else None, rounds


def report_share(results, name, undisturbed, seen, least):
    """What is left of what it was: half, where another user wants as much."""
    (before, before_rounds), (share, rounds) = undisturbed, seen
    part = share / before if share is not None and before else rounds / before_rounds
    what = f"{100 * share:.0f} % of the time" if share is not None else "no status"
    results.add(f"{name}: GPU time of the honest user", f"{100 * part:.0f} % ({what}, {rounds:.0f} rounds/s)",
                f">= {100 * least:.0f} %", part >= least, part >= least * FAR_SHARE / SCALE)


def begin_attack(guarded, work, users, watch):
    """Returns once they are ready, or after a while."""
    uuid, total_bytes = guarded.uuid(), guarded.status()["gpus"][0]["total_bytes"]
    started = [spawn(uid, lambda ready: work(guarded.socket, uuid, total_bytes, ready)) for uid in users if work]
    waiting, end = [said for _, said in started], time.monotonic() + 30 * SCALE
    while waiting and time.monotonic() < end:
        watch()
        heard = select.select(waiting, [], [], 0.05)[0]
        waiting = [said for said in waiting if said not in heard]
    return started


def attack(guarded, results, name, seconds, work=None, chaos=None, users=(ATTACKER,), least=0.45, during=None):
    """One attack beside the bystanders, and what it has done to them. least: share of the GPU time that they had before."""
    sizes = [guarded.resident_bytes()]
    started, outages = [], chaos and "kill_daemon" in chaos.kinds
    share = Share(guarded)
    usual_s, _, _ = probe_for(guarded, 1.5) if not outages else (0, 0, 0)
    undisturbed = share.end()
    probe = None
    try:
        started = begin_attack(guarded, work, users, lambda: sizes.append(guarded.resident_bytes()))
        probe, share, end = Probe(guarded.socket), Share(guarded), time.monotonic() + seconds
        if during:
            during()
        while time.monotonic() < end:
            sizes.append(guarded.resident_bytes())
            probe.listen()
            if chaos:
                chaos.step()
            else:
                time.sleep(0.1)
        seen = share.end()
    finally:
        p99, worst, failed = probe.end() if probe else (0, 0, 0)
        for pid, said in started:
            end_group(pid)
            said.close()
        if chaos:
            chaos.end()
    alive = guarded.daemon.poll() is None
    results.must(f"{name}: daemon's crashes", f"{0 if alive else 1}", "0", alive)
    if not alive:
        guarded.start_daemon()
    if not outages:
        results.add_time(f"{name}: REGISTER p99", p99, 0.05, usual_s, right=not failed,
                         note=f" ({failed} failed; {1e3 * usual_s:.1f} ms without)")
        results.add_time(f"{name}: worst answer", worst, 0.1, usual_s, worst=True)
        grown = (max(sizes) - sizes[0]) / MIB
        results.add(f"{name}: daemon's memory", f"+{grown:.0f} MiB", "<= 64 MiB", grown <= 64, grown <= 64 * FAR_MEMORY * SCALE)
        report_share(results, name, undisturbed, seen, least)
    hung = guarded.check_progress()
    results.must(f"{name}: hung jobs", str(hung), "0", hung == 0)


def plain_scene(build, grace="2s"):
    guarded = Guarded(build, "--mode", "on", "--tq", "50ms", "--grace", grace)
    guarded.start_bystanders()
    return guarded


def over(guarded, results, name):
    hung, wrong, refused = guarded.finish()
    results.must(f"{name}: wrong bytes, or another end", str(wrong), "0", wrong == 0)
    results.must(f"{name}: jobs that do not end", str(hung), "0", hung == 0)
    results.must(f"{name}: jobs without memory", str(refused), "0", refused == 0)
    guarded.end()


# ---- the attacks ----

def beside(work, chaos=(), outage_s=0.5, least=0.45, seconds_least=0):
    """least: less where the attackers need the processors that the simulated GPU needs, too."""
    def run(build, results, name, seconds):
        guarded = plain_scene(build)
        try:
            attack(guarded, results, name, max(seconds, seconds_least), work,
                   Chaos(guarded, results, *chaos, outage_s=outage_s) if chaos else None, least=least)
        finally:
            over(guarded, results, name)
    return run


def beside_silence(work):
    """Who does not answer has the GPU for five graces; then others have it for twice as long. So it takes some of both to see
    what is left to them."""
    def run(build, results, name, seconds):
        guarded = plain_scene(build, "250ms")
        try:
            attack(guarded, results, name, max(seconds, 7.5), work)
        finally:
            over(guarded, results, name)
    return run


def liars_first(build, results, name, seconds):
    """They come before anybody else; the host says what the card is."""
    guarded = plain_scene(build)
    try:
        uuid, total_bytes = guarded.uuid(), guarded.status()["gpus"][0]["total_bytes"]
        guarded.finish()
        guarded.play_card(total_bytes)
        for size, text in ((MIB, "1 MiB"), (1 << 40, "1 TiB")):
            guarded.restart()
            pid, said = spawn(ATTACKER, lambda ready, size=size: (attackers.gather(
                guarded.socket, uuid, size, 1, ready=ready), attackers.for_ever()))
            said.readline()
            begun = time.monotonic()
            jobs = [subprocess.Popen(
                [guarded.program("daemon", "gpusharectl"), "run", "--", guarded.program("tests", "system", "job"), "--bytes",
                 str(40 * MIB), "--rounds", "20"], env=guarded.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=guarded.errors, user=HONEST, extra_groups=[]) for _ in range(2)]
            guarded.jobs += jobs
            codes = []
            for job in jobs:
                try:
                    codes.append(job.wait(max(seconds, 20) * SCALE))
                except subprocess.TimeoutExpired:
                    codes.append("hangs")
            seen = [gpu["total_bytes"] for gpu in (guarded.status() or {"gpus": []})["gpus"]]
            results.must(f"{name}: jobs beside a card of {text}", f"{codes} in {time.monotonic() - begun:.1f} s", "[0, 0]",
                        codes == [0, 0])
            results.must(f"{name}: the card's size after {text}", f"{seen}", str(total_bytes),
                        all(bytes_seen == total_bytes for bytes_seen in seen))
            end_group(pid)
            said.close()
    finally:
        guarded.bystanders = []
        over(guarded, results, name)


def uuids(build, results, name, seconds):
    """Afterwards there is still room for a GPU that there is."""
    guarded = Guarded(build, "--mode", "on", "--tq", "50ms", "--grace", "2s")
    try:
        pid, said = spawn(ATTACKER, lambda ready: attackers.uuids(guarded.socket, None, 64 * MIB, ready))
        said.readline()
        guarded.start_bystanders()
        shared = [gpu for gpu in (guarded.status() or {"gpus": []})["gpus"] if any(
            job["uid"] == HONEST for job in gpu["jobs"])]
        results.must(f"{name}: the honest user's GPU is shared", str(len(shared) > 0), "True", bool(shared))
        end_group(pid)
        said.close()
        hung = guarded.check_progress()
        results.must(f"{name}: hung jobs", str(hung), "0", hung == 0)
    finally:
        over(guarded, results, name)


def slow_readers(build, results, name, seconds):
    """Beside who does not read the metrics, others can."""
    guarded = plain_scene(build)

    def scrape():
        begun = time.monotonic()
        try:
            scene.ask(guarded.address, timeout=10)
            took = time.monotonic() - begun
        except OSError:
            took = float("inf")
        results.add_time(f"{name}: metrics", took, 1)
    try:
        attack(guarded, results, name, seconds, attackers.slow_readers, least=0.2, during=scrape)
    finally:
        over(guarded, results, name)


def worst_register(path, count):
    worst = 0
    for _ in range(count):
        begun = time.monotonic()
        try:
            with Client(path, 10) as client:
                client.register()
            worst = max(worst, time.monotonic() - begun)
        except (Gone, Silent):
            return float("inf")
    return worst


def log_stalled(build, results, name, seconds):
    """Nobody reads what the daemon logs."""
    del seconds
    folder_scene = Guarded(build)
    try:
        usual_s = worst_register(folder_scene.socket, 1000)
        folder_scene.daemon.kill()
        folder_scene.daemon.wait()
        unread, log = os.pipe()
        errors, folder_scene.errors = folder_scene.errors, os.fdopen(log, "w")
        folder_scene.settings = ("--log", "debug")
        folder_scene.start_daemon()
        results.add_time(f"{name}: REGISTER, at worst", worst_register(folder_scene.socket, 2000), 0.01, usual_s, worst=True)
        os.close(unread)
        folder_scene.errors.close()
        folder_scene.errors = errors
    finally:
        folder_scene.end()


def dead_holder(build, results, name, seconds):
    """The GPU is the next one's once the holder is dead, whoever else has its socket."""
    del seconds
    guarded = Guarded(build, "--mode", "on", "--tq", "1h", "--grace", "1h")
    try:
        uuid = os.urandom(16)
        pid, said = spawn(ATTACKER, lambda ready: attackers.holder_with_child(guarded.socket, uuid, 64 * MIB, ready))
        said.readline()
        with attached(guarded.socket, uuid, 64 * MIB, 48 * MIB) as client:
            client.send("REQ_LOCK")
            time.sleep(0.2)
            os.kill(pid, signal.SIGKILL)
            begun = time.monotonic()
            try:
                client.expect("LOCK_OK", patience_s=10)
                took = time.monotonic() - begun
            except (Gone, Silent):
                took = float("inf")
        results.faults += 1
        results.add_time(f"{name}: until the GPU is free", took, 0.1)
        end_group(pid)
        said.close()
    finally:
        guarded.end()


def indebted_holder(build, results, name, seconds):
    """Its user keeps the daemon busy, and so do others: that does not put off what its end gives to the next one."""
    guarded = Guarded(build, "--mode", "on", "--tq", "1h", "--grace", "1h")
    path, card = guarded.socket, (os.urandom(16), 64 * MIB)
    started = []

    def begin(uid, work):
        started.append(spawn(uid, lambda ready: work(path, *card, ready)))
        return started[-1][0], started[-1][1].readline()

    def kill(pid, _job, _control):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # on a busy machine that takes its time

    def evict(_pid, job, control):
        control.send("EVICT", job)

    def waited_s(pid):
        """For a processor, so far: the question is what the daemon does first, once it has one."""
        with open(f"/proc/{pid}/schedstat", encoding="utf-8") as file:
            return int(file.read().split()[1]) / 1e9

    def await_turn(uid, end_holder):
        """Of the next one in line, once the holder has ended so: how long that takes, in seconds."""
        pid, job = begin(uid, attackers.holder)
        if not job:
            return float("inf")  # the one before still holds it
        flood, _ = begin(uid, attackers.flood_closes)
        with attached(path, *card, 8 * MIB) as client, Client(path) as control:  # which fits beside what an evicted one keeps
            client.send("REQ_LOCK")
            time.sleep(1)
            end_holder(pid, int(job), control)
            begun, both = time.monotonic(), (guarded.daemon.pid, os.getpid())
            waited = [waited_s(one) for one in both]
            try:
                client.expect("LOCK_OK", patience_s=10)
                took = time.monotonic() - begun
                return max(0, took - max(waited_s(one) - before for one, before in zip(both, waited)))
            except (Gone, Silent):
                return float("inf")
            finally:
                for ended in (pid, flood):
                    os.kill(ended, signal.SIGKILL)
    try:
        for uid in CROWD:
            begin(uid, attackers.flood_declares)
        for what, end in (("killed", kill), ("evicted", evict)):
            waits, until = [], time.monotonic() + seconds
            while time.monotonic() < until or len(waits) < 3:
                waits.append(await_turn(CROWD[-1] + len(started), end))
                results.faults += 1
            worst = max(waits)
            results.add(f"{name}: {what}, until the GPU is free", f"{1e3 * worst:.1f} ms ({len(waits)} times)", "<= 100 ms",
                        worst <= 0.1, worst <= 3 * SCALE)
    finally:
        for pid, said in started:
            end_group(pid)
            said.close()
        guarded.end()


ATTACKS = {
    "liars_first": liars_first, "liars_size": beside_silence(attackers.liars_size), "liars_memory": beside_silence(attackers.liars_memory),
    "liars_silent": beside_silence(attackers.liars_silent),
    "uuids": uuids, "flood_messages": beside(attackers.flood_messages, least=0.2), "flood_connects": beside(attackers.flood_connects, least=0.2),
    "flood_status": beside(attackers.flood_status, least=0.2), "flood_events": beside(attackers.flood_events, least=0.2),
    "fakes_many": beside(attackers.fakes_many), "fakes_gpu": beside(attackers.fakes_gpu), "slow_readers": slow_readers,
    "kill_jobs": beside(None, ["kill_job"], least=0.2), "kill_daemon": beside(None, ["kill_daemon"]),
    "stops": beside(None, ["stop"], least=0.2, seconds_least=6), "outages": beside(None, ["kill_daemon", "stop"], outage_s=3),
    "log_stalled": log_stalled, "dead_holder": dead_holder, "indebted_holder": indebted_holder,
}

AT_RANDOM = [attackers.liars_size, attackers.liars_memory, attackers.liars_silent, attackers.flood_messages, attackers.flood_connects,
             attackers.flood_status, attackers.flood_events, attackers.fakes_many, attackers.fakes_gpu,
             attackers.slow_readers, None]


def all_at_random(build, results, seconds):
    """The bystanders stay, whatever comes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        guarded = plain_scene(build)
        try:
            shift_end = min(end, time.monotonic() + 600)
            while time.monotonic() < shift_end:
                work = random.choice(AT_RANDOM)
                name = work.__name__ if work else "kills"
                chaos = Chaos(guarded, results, "kill_job", "kill_job", "kill_job", "kill_daemon", "stop",
                              outage_s=random.choice([0.1, 0.1, 0.1, 30]))
                attack(guarded, results, name, random.uniform(5, 30), work, chaos)
        finally:
            over(guarded, results, "at random")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?")
    parser.add_argument("attacks", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seconds", type=float, default=5, help="of each attack")
    parser.add_argument("--hours", type=float, help="all of it at random, for so long")
    parser.add_argument("--judge", action="store_true", help="a target that is missed fails")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(ATTACKS))
        return 0
    if os.getuid() != 0:
        print("skipped: programs of several users need root")
        return 77
    print(f"seed {arguments.seed}")
    random.seed(arguments.seed)
    attackers.raise_limits()
    results = Results(arguments.judge)
    if arguments.hours:
        all_at_random(arguments.build, results, 3600 * arguments.hours)
    else:
        for name in arguments.attacks or ATTACKS:
            ATTACKS[name](arguments.build, results, name, arguments.seconds)
    results.show()
    return 0 if results.good else 1


if __name__ == "__main__":
    sys.exit(main())
