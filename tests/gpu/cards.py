"""What the daemon knows of the host's cards, and who may hold them: by the host's word, not by that of programs."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

import harness

UNKNOWN, NOT_OPEN = 3, 4  # enum gs_reject_reason
NOBODY = 65534


def smi():
    """[(index, uuid, name)], as nvidia-smi tells."""
    done = subprocess.run(["nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader"], capture_output=True,
                          text=True, timeout=30, check=True)
    rows = (line.split(", ") for line in done.stdout.splitlines())
    return [(int(index), uuid, name) for index, uuid, name in rows]


def cuda_total_bytes():
    """What a program is told, of the first device that it sees; by another process, as that has the GPU open then."""
    code = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); d = ctypes.c_int(); b = ctypes.c_size_t(); c.cuInit(0);"
            "c.cuDeviceGet(ctypes.byref(d), 0); c.cuDeviceTotalMem_v2(ctypes.byref(b), d); print(b.value)")
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout)


def stranger(test, daemon, uuid, size_bytes):
    with test.start("stranger", uuid, size_bytes, env=test.env(daemon, preload=())) as one:
        return one.finish()[-1]


def known_cards(test):
    with test.daemon(capacity=None) as daemon:
        gpus = daemon.status()["gpus"]
        cards = [(gpu["index"], gpu["uuid"], gpu["name"]) for gpu in gpus]
        harness.check(len(cards) == len(smi()), f"{cards}, nvidia-smi: {smi()}")
        for ours, theirs in zip(cards, smi()):
            harness.check(ours[:2] == theirs[:2] and theirs[2].startswith(ours[2]), f"{ours}, nvidia-smi: {theirs}")
        total = cuda_total_bytes()
        harness.check(gpus[0]["total_bytes"] == total, f"{gpus[0]['total_bytes']} bytes, to CUDA {total}")


def settable(test):
    with test.daemon() as daemon:
        daemon.ctl("set-tq", "--gpu", "0", "7")
        daemon.ctl("set-policy", "--gpu", smi()[0][1][:12], "rr")
        gpu = daemon.status()["gpus"][0]
        harness.check(gpu["tq_ns"] == 7_000_000_000 and gpu["policy"] == "rr", f"{gpu}")


def believed(test, daemon):
    """Who has the GPU open shares it; who has not, or invents one, does not, and changes nothing."""
    uuid = smi()[0][1]
    total = daemon.status()["gpus"][0]["total_bytes"]
    answers = [stranger(test, daemon, uuid, 1 << 20), stranger(test, daemon, "any", 1 << 40)]
    harness.check(answers == [f"rejected {NOT_OPEN}", f"rejected {UNKNOWN}"], f"strangers: {answers}")
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(test.start("job", "--bytes", "16M", "--rounds", "0", "--progress", env=test.env(daemon)))
                for _ in range(2)]
        for job in jobs:
            job.expect("round 3")
        status = daemon.status()
        known = harness.jobs_of(status)
        harness.check({job.pid for job in jobs} == known.keys(), f"{known.keys()} of {[job.pid for job in jobs]}")
        harness.check(status["gpus"][0]["total_bytes"] == total and len(status["gpus"]) == len(smi()), "a lie counts")
        for job in jobs:
            job.say("stop")
        for job in jobs:
            job.finish()
    harness.check(harness.handovers_of(daemon.status()) > 0, "no hand-over")


def presence(test):
    with test.daemon() as daemon:
        believed(test, daemon)


def as_a_service(test):
    """As systemd starts it: nobody's user, with the two capabilities of the unit."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise harness.Skip("needs root and setpriv")
    capabilities = "+sys_ptrace,+dac_read_search"
    daemon = test.daemon()
    program = pathlib.Path(daemon.folder, "gpushare-daemon")  # the build may lie where nobody else may look
    shutil.copy(test.build.daemon, program)
    for path in (daemon.folder, program, daemon.folder / "empty.conf"):
        os.chown(path, NOBODY, NOBODY)
    daemon.command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--bounding-set=-all,{capabilities}",
                      f"--inh-caps=-all,{capabilities}", f"--ambient-caps=-all,{capabilities}", program, *daemon.command[1:]]
    with daemon:
        for task in pathlib.Path("/proc", str(daemon.process.pid), "task").iterdir():
            status = (task / "status").read_text()
            harness.check("CapEff:\t0000000000000000" in status, f"thread {task.name} of the daemon keeps capabilities")
        believed(test, daemon)


def cases(test):
    test.case("known_cards", lambda: known_cards(test))
    test.case("settable", lambda: settable(test))
    test.case("presence", lambda: presence(test))
    test.case("as_a_service", lambda: as_a_service(test))


harness.main(cases)
