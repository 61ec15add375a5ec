#!/usr/bin/env python3
"""What the selftests give to the benchmarks as their Python: it speaks like the program that it is to run.

FAKE tells what goes wrong under libunified, FAKE_STOCK without it; the speeds are told by other variables, see below.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

import gpubench

words, env = sys.argv[1:], os.environ.get
OURS = "LD_PRELOAD" in os.environ
FAKE = env("FAKE" if OURS else "FAKE_STOCK", "same")
SOCKET = pathlib.Path(env("GPUSHARE_SOCKET", "/nonexistent"))
ROOT = pathlib.Path(sys.argv[0]).parent
TOLD = {"preloaded": gpubench.is_preloaded()}
reach = gpubench.Stages().reach


def option(name, default=""):
    return words[words.index(name) + 1] if name in words else default


def beside_socket(what):
    """What the fake daemon and gpusharectl know."""
    return pathlib.Path(f"{SOCKET}.{what}")


def read(what, default=""):
    return beside_socket(what).read_text() if OURS and beside_socket(what).exists() else default


def appear(side=""):
    """The daemon knows it. Which job it is, from 0."""
    if OURS and SOCKET.exists() and FAKE != "unknown":
        with open(beside_socket("pids"), "a") as pids:
            pids.write(f"{os.getpid()} {side}\n")
        return [line.split()[0] for line in read("pids").splitlines()].index(str(os.getpid()))


def be_seen():
    """By somebody who looks at the status: one look is over."""
    while OURS and not beside_socket(f"seen.{os.getpid()}").exists():
        time.sleep(0.01)


def hashed():
    return option("--seed", "1") + {"DIFFERENT": "x", "unstable": str(time.monotonic_ns())}.get(FAKE, "")


def framework_checks():
    appear()
    if FAKE == "stopped" and env("GPUSHARE_LOG") == "debug":
        print("gpushare: GPU work stands still\n" * 3, file=sys.stderr)
    reach("result", TOLD | {"hash": hashed()})
    sys.exit(3 if FAKE == "crash_at_end" else 0)


def bursts():
    """As long as its work, times the factor of the daemon's mode, FAKE_ON or FAKE_AUTO."""
    appear()
    reach("imported")
    reach("allocated")
    if FAKE == "unknown setting":
        print("gpushare: GPUSHARE_MEMORY is managed or off, not 'swap': the default is taken", file=sys.stderr)
    work = reach("ready", {"pass_s": 0.5})
    mode = SOCKET.read_text() if OURS else "stock"
    factor = {"on": float(env("FAKE_ON", "1.2")), "auto": float(env("FAKE_AUTO", "1"))}.get(mode, 1)
    start_s = 1000.0  # the same for all, however late
    gpu_s = work["rounds"] * work["passes"] * 0.5
    end_s = start_s + (gpu_s + work["rounds"] * work["cpu_s"]) * factor
    reach("done")
    reach("result", TOLD | {"start_s": start_s, "end_s": end_s, "gpu_s": gpu_s, "memory_gib": 8,
                            "hash": "x" if FAKE == "DIFFERENT" else f"h{work}"})


def steady_rate(order, policy, place):
    """100 per second alone. Under a daemon FAKE_SHARE of that if its policy is fair, else FAKE_ALONE; where iterations
    are counted FAKE_SRTF and so on, by the policy; with weights, shares of 96."""
    if not OURS:
        return 100
    weights = dict(line.split() for line in read("weights").splitlines())
    if weights:
        return 96 * float(weights[str(place + 1)]) / sum(map(float, weights.values()))
    if "iterations" in order:
        return 100 * float(env("FAKE_" + policy.upper(), "1"))
    return 100 * float(env("FAKE_SHARE" if policy == "fair" else "FAKE_ALONE", "1"))


def steady():
    order = reach("imported")
    place, policy = appear(), read("policy", "rr")
    if policy == "fair" and "until_s" in order:  # fair.py looks
        be_seen()
    start_s = time.monotonic()
    if OURS and policy == "srtf" and "iterations" in order:
        if not 0 < float(env("GPUSHARE_EXPECTED_RUNTIME", "0")) < 100 or env("GPUSHARE_EXPECTED_MEMORY") != "7168M":
            sys.exit("nobody told how long it takes, or how much memory")
    if "iterations" in order:
        end_s = start_s + order["iterations"] / steady_rate(order, policy, place)
    elif order:
        end_s = order.get("until_s", start_s + order.get("seconds", 0))
        time.sleep(max(0, end_s - time.monotonic()) if "until_s" in order else 0)
    else:
        sys.stdin.readline()
        end_s = time.monotonic()
    rate = steady_rate(order, policy, place)  # weights come meanwhile
    count = order.get("iterations", int((end_s - start_s) * rate))
    reach("done", {"begun_s": start_s, "start_s": start_s, "end_s": end_s,
                   "ends_s": [start_s + (index + 0.5) / rate for index in range(count)]})
    reach("result", TOLD | {"hash": "x" if FAKE == "DIFFERENT" else f"h{count}", "memory_right": FAKE != "memory",
                            "memory_gib": 7})


def serve():
    """Every second one is away, as the fake gpusharectl tells: what that adds is FAKE_AWAY, else FAKE_HERE."""
    if "--list" in words:
        print("a b c d e f")
        return
    reach("imported")
    if env("FAKE_DEAD") == option("--model"):
        sys.exit("no memory")
    place, warm = appear(), 0
    order = reach("ready")
    while "warm" in order:
        warm, order = warm + 1, reach("warm")
    if warm != 1:
        sys.exit(f"{warm} requests before the first that is timed")
    added_ms = float(env("FAKE_AWAY", "200") if place % 2 else env("FAKE_HERE", "1")) if OURS else 0
    reach("result", TOLD | {"requests": [[order["start_s"] + at_s, 10 + added_ms] for at_s in order["requests_s"]],
                            "answer": FAKE})


def ranks():
    appear()
    be_seen()
    start_s = 1000.0  # the same for all, however late
    for rank in (0, 1):
        print("@rank " + json.dumps(TOLD | {
            "rank": rank, "pid": os.getpid(), "iterations": 7, "start_s": start_s, "end_s": start_s + (2 if OURS else 1),
            "hash": "x" if FAKE == "DIFFERENT" else f"r{rank}", "memory_right": True, "memory_gib": 7}), flush=True)


class Workloads:
    """Of alone.py: FAKE_MANAGED, FAKE_SWAP: how much longer an iteration takes. Of sweep.py: FAKE_SPEED. FAKE_FAILS:
    MEMORY:WORKLOAD:error or dead. Of pairs.py: 100 iterations per second alone. Beside each other half of that; with ours
    an opportunistic job beside production has FAKE_AUTO, and what it has beyond 30 % production lacks. FAKE_HOST: of
    production's runs, the speed of its host."""

    def __init__(self):
        self.host = list(map(float, env("FAKE_HOST", "1").split(",")))
        self.own = self.side = self.workload = None

    def play(self):
        appear(env("GPUSHARE_CLASS", ""))
        reach("imported")
        if env("CUDA_MPS_PIPE_DIRECTORY"):
            with open(env("CUDA_MPS_PIPE_DIRECTORY") + "/clients", "a") as clients:
                clients.write(f"{os.getpid()}\n")
        answer = TOLD
        while order := reach("ready", answer):
            answer = getattr(self, order["do"])(order)

    def build(self, order):
        self.workload = order["workload"]
        late = "opportunistic" if self.workload in ("mobilenet", "transformer", "graph", "resnet50") else "production"
        self.side = env("GPUSHARE_CLASS", late)
        self.own = ROOT / f"span.{self.side}.{self.workload}"
        self.own.unlink(missing_ok=True)
        fails = env("FAKE_FAILS", "").split(":")
        if fails[:2] == [env("GPUSHARE_MEMORY", "stock"), self.workload]:
            if fails[2] == "dead":
                sys.exit("it went wrong")
            return {"error": "no such kernel"}
        return {}

    def check(self, _):
        return {"memory_right": FAKE != "memory"}

    def time(self, _):
        return {"request_s": 0.01}

    def drop(self, _):
        return {}

    def run(self, order):
        if FAKE == "dies":
            sys.exit("it went wrong later")
        if "start_s" not in order:
            count = order.get("iterations", 50)
            slower = float(env("FAKE_" + env("GPUSHARE_MEMORY", "stock").upper(), "1"))
            return {"iterations": count, "seconds": count * 0.01 * slower}
        if OURS and (not env("GPUSHARE_CLASS") or env("GPUSHARE_MEMORY") != "swap"):
            sys.exit("no class, or not the memory that was asked for")
        if self.workload.startswith(("sweep_", "salus_")):
            time.sleep(max(0, order["until_s"] - time.monotonic()))
            return self.steps(order, lambda _: float(env("FAKE_SPEED", "1")) if OURS else 1)
        return self.run_beside(order)

    @staticmethod
    def steps(order, speed):
        ends_s, at_s = [], order["start_s"]
        while at_s < order["until_s"]:
            at_s += 0.01 / max(speed(at_s), 0.01)
            ends_s.append(at_s)
        return {"start_s": order["start_s"], "end_s": at_s, "ends_s": ends_s}

    def share(self):
        """Beside the other."""
        limit = float(env("FAKE_AUTO", "0.3"))
        if not OURS:
            return 0.5
        return limit if self.side == "opportunistic" else 1 - max(0, limit - 0.3)

    def spans(self, side):
        """When the others run, as far as they have been told."""
        told = [map(float, path.read_text().split()) for path in ROOT.glob(f"span.{side}.*") if path != self.own]
        return [(from_s, to_s) for from_s, to_s in told]

    def run_beside(self, order):
        start_s, until_s = order["start_s"], order["until_s"]
        host = (self.host.pop(0) if len(self.host) > 1 else self.host[0]) if self.side == "production" else 1
        self.own.write_text(f"{start_s} {until_s}")
        time.sleep(max(0, start_s - time.monotonic()))
        share = self.share()
        time.sleep(max(0, until_s - time.monotonic()))
        production, guests = self.spans("production"), self.spans("opportunistic")

        def speed(at_s):
            beside, disturbed = (any(from_s <= at_s < to_s for from_s, to_s in spans) for spans in (production, guests))
            if self.side == "production":
                return host * (share if disturbed else 1)
            return share if beside else 0.5 if disturbed else 1
        if "requests_s" in order:
            times = [[start_s + at_s, 5 / speed(start_s + at_s)] for at_s in order["requests_s"]]
            return {"requests": times}
        return self.steps(order, speed)


def main():
    if words[0] == "-c":
        print(env("FAKE_GPUS", "2"))
        sys.exit(0 if "device_count" in words[1] else int(env("FAKE_GPU", "0")))
    if FAKE == "failed":
        sys.exit("it went wrong")
    if FAKE == "hang":
        if env("FAKE_PID"):
            pathlib.Path(env("FAKE_PID")).write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
        time.sleep(1000)
    program = "ranks" if words[0] == "-m" else pathlib.Path(words[0]).stem
    globals()[program]() if program != "workloads" else Workloads().play()


main()
