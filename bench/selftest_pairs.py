#!/usr/bin/env python3
"""Tests of pairs.py without a GPU: fake jobs, daemon and MPS.

What matters: targets that are missed, memory that is wrong, jobs that die or are not MPS' clients are told and end with
status 1; what was measured before is still there; the sweep finds the limit; no MPS outlives the program; a host that
is slower in one round than in another one changes no ratio, and one that changes within a round is told.
"""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import time
import types
import unittest
from unittest import mock

import company
import gpubench
import opportune
import pairs
import selftest
import selftest_scheduling
import speeds

# 100 iterations per second alone. Beside each other half of that; with ours an opportunistic job beside production has
# its limit (what was set, or FAKE_AUTO_ and its workload, or FAKE_AUTO), and what it has beyond 30 % production lacks.
# FAKE_HOST: of production's runs, the speed of its host.
FAKE_JOB = r'''#!/usr/bin/env python3
"""Speaks like opportune.py."""
import gpubench, os, pathlib, sys, time
words, env = sys.argv[1:], os.environ.get
if words[0] == "-c":
    sys.exit(int(env("FAKE_GPU", "0")))
workload = words[words.index("--workload") + 1]
late = "opportunistic" if workload in ("mobilenet", "transformer", "graph", "resnet50") else "production"
side = env("GPUSHARE_CLASS", late)
ours, fake, socket = "LD_PRELOAD" in os.environ, env("FAKE", "same"), env("GPUSHARE_SOCKET")
root = pathlib.Path(env("FAKE_ROOT"))
own = root / f"span.{side}.{workload}"
own.unlink(missing_ok=True)
host = list(map(float, env("FAKE_HOST", "1").split(",")))
def spans(whose, late_s=0):
    """When the others run, as far as they have been told."""
    told = [map(float, path.read_text().split()) for path in root.glob(f"span.{whose}.*") if path != own]
    return [(from_s, to_s + late_s) for from_s, to_s in told]
reach = gpubench.Stages(True).reach
def limit():
    path = pathlib.Path(socket + ".rate")
    text = path.read_text() if path.exists() else "auto"
    auto = env("FAKE_AUTO_" + workload, env("FAKE_AUTO", "0.3"))
    return float(auto) if text == "auto" else float(text.rstrip("%")) / 100
def shared():
    if not ours:
        return 0.5
    return limit() if side == "opportunistic" else 1 - max(0, limit() - 0.3)
def run(order):
    start, until = order["start_s"], order["until_s"]
    host_speed = (host.pop(0) if len(host) > 1 else host[0]) if side == "production" else 1
    own.write_text(f"{start} {until}")
    time.sleep(max(0, start - time.monotonic()))
    share = shared()
    time.sleep(max(0, until - time.monotonic()))
    production = spans("production", float(env("FAKE_BACK", "0")))
    opportunistic = spans("opportunistic")
    def speed(at_s):
        beside, guests = ([from_s for from_s, to_s in runs if from_s <= at_s < to_s]
                          for runs in (production, opportunistic))
        if side == "production":
            return host_speed * (share if guests else 1)
        return share if beside else 0.5 if guests else 1
    if "requests_s" in order:
        times = [[start + at_s, 5 / speed(start + at_s)] for at_s in order["requests_s"]]
        return {"requests": times, "waited_ms": [ms - 4 for _, ms in times]}
    ends, at_s = [], start
    while at_s < until:
        at_s += 0.01 / max(speed(at_s), 0.01)
        ends.append(at_s)
    return {"start_s": start, "end_s": at_s, "ends_s": ends}
if reach("imported"):
    sys.exit("an order too soon")
if env("CUDA_MPS_PIPE_DIRECTORY"):
    with open(env("CUDA_MPS_PIPE_DIRECTORY") + "/clients", "a") as clients:
        clients.write(f"{os.getpid()}\n")
if ours and not env("GPUSHARE_CLASS"):
    sys.exit("no class")
if ours:
    with open(socket + ".pids", "a") as pids:
        pids.write(f"{os.getpid()} {side}\n")
    if env("GPUSHARE_MEMORY") != "swap":
        sys.exit("not the memory that was asked for")
if fake == "failed" and side == "opportunistic":
    sys.exit("it went wrong")
if env("CUDA_MPS_CLIENT_PRIORITY") and (ours or side == "production"):
    sys.exit("not its priority")
answer = {"preloaded": "libunified" in pathlib.Path("/proc/self/maps").read_text(), "memory_gib": 1}
while True:
    order = reach("ready", answer)
    if order is None:
        break
    if order["do"] == "run" and fake == "dies" and ours:
        sys.exit("it went wrong later")
    answer = run(order) if order["do"] == "run" else {"memory_right": fake != "memory", "request_s": 0.01}
'''

FAKE_CTL = r'''#!/usr/bin/env python3
import json, os, pathlib, sys
words = sys.argv[1:]
socket = pathlib.Path(words[words.index("--socket") + 1])
pids = pathlib.Path(str(socket) + ".pids")
known = [line.split() for line in pids.read_text().splitlines()] if pids.exists() else []
if "set-rate" in words:
    job, rate = words[-2:]
    if os.environ.get("FAKE_RATE") == "unknown" or known[int(job) - 1][1] != "opportunistic":
        sys.exit("set-rate: not known")
    pathlib.Path(str(socket) + ".rate").write_text(rate)
    with open(os.environ["FAKE_ROOT"] + "/rates", "a") as rates:
        rates.write(rate + "\n")
if "status" in words:
    fake = os.environ.get("FAKE_MPS", "")
    served = {"mps": "down" if fake == "broken" else "runs", "mps_programs": 0 if fake == "lonely" else len(known)}
    print(json.dumps({"daemon": served, "gpus": [{"handovers": 0, "jobs": [
        {"pid": int(pid), "job": index + 1, "limit_share": 0.3 if side == "opportunistic" else None}
        for index, (pid, side) in enumerate(known)]}]}))
'''

FAKE_DAEMON = r'''#!/usr/bin/env python3
import os, pathlib, signal, sys
if "--capacity" in sys.argv:
    (pathlib.Path(os.environ["FAKE_ROOT"]) / "capacity").write_text(sys.argv[sys.argv.index("--capacity") + 1])
socket = sys.argv[sys.argv.index("--socket") + 1]
if "--spatial" in sys.argv:
    logs = pathlib.Path(socket + ".mps/log")
    logs.mkdir(parents=True)
    (logs / "control.log").write_text("spatial = " + sys.argv[sys.argv.index("--spatial") + 1])
pathlib.Path(socket).write_text("")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
'''

# A daemon of MPS is a process that sleeps. FAKE_MPS: broken, lonely (it serves nobody), deaf (it does not quit).
FAKE_MPS = r'''#!/usr/bin/env python3
import os, pathlib, signal, subprocess, sys
fake = os.environ.get("FAKE_MPS", "")
pid = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "pid"
if "-d" in sys.argv:
    if fake == "broken":
        sys.exit("no such thing here")
    pid.write_text(str(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid))
    sys.exit(0)
order = sys.stdin.readline().split()
if order[0] == "quit" and fake != "deaf":
    os.kill(int(pid.read_text()), signal.SIGKILL)
elif order[0] == "get_server_list":
    print(4711)
elif order[0] == "get_client_list":
    print("" if fake == "lonely" else pid.with_name("clients").read_text())
with open(os.environ["FAKE_ROOT"] + "/mps", "a") as orders:
    orders.write(order[0] + "\n")
'''


def has_words(path, words):
    try:
        return all(word in path.read_bytes() for word in words)
    except OSError:
        return False


def living_mps(root):
    """Processes of a fake MPS of this test."""
    words = (b"/gpushare-mps-", b"FAKE_ROOT=" + os.fsencode(root))
    return [path for path in pathlib.Path("/proc").glob("[0-9]*/environ") if has_words(path, words)]


class PairsFakes(selftest_scheduling.SchedulingFakes):
    """What pairs.py and guests.py run on."""
    JOB, DAEMON, CTL = FAKE_JOB, FAKE_DAEMON, FAKE_CTL
    PROGRAM, QUICK = None, ()

    def setUp(self):
        super().setUp()
        selftest.write_program(self.root / "bin/nvidia-cuda-mps-control", FAKE_MPS)

    def run_fakes(self, *options, **env):
        env |= {"FAKE_ROOT": str(self.root), "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}
        result = self.run_bench(self.PROGRAM, *self.QUICK, *options, **env)
        self.assertFalse(living_mps(self.root))
        return result


class PairsTest(PairsFakes):
    PROGRAM = "pairs.py"
    QUICK = ("--measure-seconds", "0.6", "--alone-seconds", "0.8", "--lead", "0.05", "--settle", "0.2",
             "--sweep-seconds", "0.25", "--idle", "0")
    ONE = ("--pairs", "shufflenet_mobilenet")

    def test_all_modes(self):
        code, figures, errors = self.run_fakes(*self.ONE)
        self.assertEqual(code, 0, errors)
        name = "pairs_shufflenet_mobilenet_"
        for mode in ("stock", "mps", "mps_priority"):
            self.assertAlmostEqual(figures[f"{name}{mode}_production_over_alone"], 0.5, 1)
            self.assertAlmostEqual(figures[f"{name}{mode}_production_p99_over_alone"], 2, 1)
        for mode in ("ours", "ours_mps"):
            self.assertAlmostEqual(figures[f"{name}{mode}_production_over_alone"], 1, 2)
            self.assertAlmostEqual(figures[f"{name}{mode}_opportunistic_over_alone"], 0.3, 1)
            self.assertAlmostEqual(figures[f"{name}{mode}_production_alone_over_stock"], 1, 2)
            self.assertEqual(figures[f"{name}{mode}_best_limit"], 30)
            self.assertAlmostEqual(figures[f"{name}{mode}_opportunistic_over_best"], 1, 1)
            self.assertAlmostEqual(figures[f"{name}{mode}_opportunistic_over_stock_alone"], 0.3, 1)
        self.assertIn("shufflenet_mobilenet: stock 17 s, mps 17 s, mps-priority 17 s, ours 19 s, ours-mps 19 s", errors)
        self.assertEqual((self.root / "mps").read_text().split().count("quit"), 2)
        self.assertEqual((self.root / "out/mps.log").read_text(), "spatial = mps")
        told = json.loads((self.root / "out/rates.json").read_text())["shufflenet_mobilenet"]
        self.assertEqual(list(told), list(pairs.MODES))
        self.assertEqual([told[mode]["lines"] != [] for mode in pairs.MODES], [False, False, False, True, True])
        names = [line["name"] for line in told["ours"]["lines"]]
        self.assertEqual([names.count(name) for name in ("limit", "production", "opportunistic")], [8, 8, 8])
        pixels = self.pixels("pairs.png")
        for color in ((20, 90, 200), (225, 110, 20)):
            self.assertGreater(pixels.count(bytes(color)), 500)

    def test_host_that_differs_between_rounds(self):
        for pair, ratio in (("shufflenet_mobilenet", "over_alone"), ("server_transformer", "answers_over_alone")):
            _, figures, errors = self.run_fakes("--pairs", pair, "--modes", "stock", FAKE_HOST="1,1,0.6,0.6,1.3,1.3")
            name = f"pairs_{pair}_stock_production_{ratio}"
            self.assertAlmostEqual(figures[name], 0.5, 2, errors)
            self.assertLess(figures[name + "_spread"], 0.03)

    def test_host_that_differs_within_a_round(self):
        for pair, ratio in (("shufflenet_mobilenet", "over_alone"), ("server_transformer", "answers_over_alone")):
            _, figures, errors = self.run_fakes("--pairs", pair, "--modes", "stock", FAKE_HOST="1,1,1,0.6,1,1")
            name = f"pairs_{pair}_stock_production_{ratio}"
            self.assertAlmostEqual(figures[name + "_spread"], 0.2, 2, errors)
            self.assertLess(figures[name], 0.49)

    def test_one_round(self):
        code, figures, errors = self.run_fakes(*self.ONE, "--modes", "ours", "--sweep", "0", "--rounds", "1")
        name = "pairs_shufflenet_mobilenet_ours_production_over_alone"
        self.assertEqual((code, figures[name + "_verdict"]), (0, "pass"), errors)
        self.assertNotIn(name + "_spread", figures)

    def test_production_slowed(self):
        code, figures, _ = self.run_fakes(*self.ONE, "--modes", "ours", "--sweep", "0", FAKE_AUTO="0.4")
        name = "pairs_shufflenet_mobilenet_ours_"
        self.assertAlmostEqual(figures[name + "production_over_alone"], 0.9, 2)
        self.assertEqual((code, figures[name + "production_over_alone_verdict"]), (1, "MISSED"))
        self.assertEqual(figures[name + "production_p99_over_alone_verdict"], "MISSED")

    def test_opportunistic_has_too_little(self):
        code, figures, errors = self.run_fakes(*self.ONE, "--modes", "ours", FAKE_AUTO="0.2")
        name = "pairs_shufflenet_mobilenet_ours_opportunistic_"
        self.assertAlmostEqual(figures[name + "over_best"], 0.67, 1, errors)
        self.assertEqual((code, figures[name + "over_best_verdict"]), (1, "MISSED"))

    def test_server(self):
        code, figures, errors = self.run_fakes("--pairs", "server_transformer", "--modes", "stock,ours")
        name = "pairs_server_transformer_"
        verdict = figures[name + "ours_opportunistic_over_stock_alone_verdict"]  # 0.75 can't be had beside the fakes
        self.assertEqual((code, verdict, figures["pairs_wrong"]), (1, "MISSED", 1), errors)
        self.assertEqual(figures[name + "stock_production_speed_over_alone"], 0.5)
        self.assertEqual(figures[name + "stock_production_p99_over_alone"], 2)
        self.assertEqual(figures[name + "ours_production_p99_over_alone"], 1)
        self.assertEqual(figures[name + "ours_best_limit"], 30)
        rates = (self.root / "rates").read_text().split()[-10:]
        self.assertEqual(rates, ["23%", "auto", "60%", "auto", "38%", "auto", "30%", "auto", "34%", "auto"])

    def test_least_share(self):
        code, figures, errors = self.run_fakes("--pairs", "shufflenet4_mobilenet4", "--modes", "stock,ours", "--sweep", "0",
                                               FAKE_AUTO="0.05")
        name = "pairs_shufflenet4_mobilenet4_ours_opportunistic_over_stock_alone_verdict"
        self.assertEqual((code, figures[name]), (1, "MISSED"), errors)

    def test_language_model(self):
        """As many requests as take 40 % of its time."""
        code, figures, errors = self.run_fakes("--pairs", "llm_resnet50", "--modes", "ours", "--sweep", "0")
        name = "pairs_llm_resnet50_ours_production_"
        self.assertEqual((code, figures[name + "p99_over_alone_verdict"]), (0, "pass"), errors)
        self.assertEqual(figures[name + "p99_added_ms"], 0)

    def test_turns(self):
        code, figures, errors = self.run_fakes("--pairs", "server_turns", "--modes", "ours", FAKE_AUTO="0.9")
        name = "pairs_server_turns_ours_production_p99_added_ms"
        self.assertEqual((code, figures[name + "_target"]), (1, 5), errors)
        self.assertAlmostEqual(figures[name], 5 / 0.4 - 5, 1)
        self.assertNotIn("pairs_server_turns_ours_best_limit", figures)

    def test_more_memory_than_there_is(self):
        code, figures, errors = self.run_fakes("--pairs", "tight", "--modes", "ours")
        self.assertEqual((code, figures["pairs_tight_ours_production_over_alone_verdict"]), (0, "pass"), errors)
        self.assertNotIn("pairs_tight_ours_best_limit", figures)
        self.assertFalse((self.root / "classes").exists())
        self.assertEqual((self.root / "capacity").read_text(), "12G")

    def test_no_mps(self):
        code, figures, errors = self.run_fakes(*self.ONE, "--modes", "stock,mps,ours-mps", FAKE_MPS="broken")
        self.assertEqual((code, figures["pairs_mps_verdict"], figures["pairs_ours_mps_verdict"]),
                         (0, "skipped", "skipped"), errors)
        self.assertEqual(errors.count("without MPS: nvidia-cuda-mps-control -d: exit status 1: no such thing here"), 1)
        self.assertIn("pairs_shufflenet_mobilenet_stock_production_over_alone", figures)

    def test_jobs_that_are_no_clients_of_mps(self):
        code, figures, errors = self.run_fakes(*self.ONE, "--modes", "stock,mps", FAKE_MPS="lonely")
        self.assertEqual(code, 1)
        self.assertIn("MPS serves 0 of 2 jobs", errors)
        self.assertNotIn("pairs_shufflenet_mobilenet_mps_production_over_alone", figures)

    def test_jobs_that_do_not_use_the_daemons_mps(self):
        code, figures, errors = self.run_fakes(*self.ONE, "--modes", "stock,ours-mps", FAKE_MPS="lonely")
        self.assertEqual(code, 1)
        self.assertIn("MPS serves 0 of 2 jobs", errors)
        self.assertNotIn("pairs_shufflenet_mobilenet_ours_mps_production_over_alone", figures)

    def test_mps_that_does_not_quit(self):
        code, _, errors = self.run_fakes(*self.ONE, "--modes", "mps", FAKE_MPS="deaf")
        self.assertEqual(code, 0, errors)

    def test_sigterm_takes_everybody_along(self):
        env = os.environ | {"FAKE_ROOT": str(self.root), "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}
        command = [sys.executable, gpubench.HERE / "pairs.py", "--build", self.root / "build", "--python",
                   self.root / "python", "--out", self.root / "out", *self.ONE, "--modes", "mps"]
        bench = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end_s = time.monotonic() + 30
        while not list(self.root.glob("span.opportunistic.*")) and time.monotonic() < end_s:
            time.sleep(0.01)
        own = [str(self.root)]
        self.assertTrue(living_mps(self.root) and selftest.running(own))
        bench.terminate()
        self.assertNotEqual(bench.wait(timeout=30), 0)
        self.assertFalse(living_mps(self.root) or selftest.running(own))

    def test_no_sweep_to_be_had(self):
        code, figures, errors = self.run_fakes(*self.ONE, "--modes", "ours", FAKE_RATE="unknown")
        self.assertEqual(code, 1)
        self.assertRegex(errors, "WRONG shufflenet_mobilenet, ours, sweep: gpusharectl set-rate [12] 23%: exit 1")
        self.assertEqual(figures["pairs_shufflenet_mobilenet_ours_production_over_alone_verdict"], "pass")

    def test_failure_leaves_the_rest(self):
        for fake, text in (("dies", "it went wrong later"), ("failed", "it went wrong"),
                           ("memory", "memory does not hold")):
            code, figures, errors = self.run_fakes(*self.ONE, "--modes", "stock,ours", "--sweep", "0", FAKE=fake)
            self.assertEqual(code, 1)
            self.assertIn(text, errors)
            self.assertEqual("pairs_shufflenet_mobilenet_stock_production_over_alone" in figures, fake != "failed")

    def test_no_time(self):
        code, figures, errors = self.run_fakes(*self.ONE, "--modes", "stock,ours", "--seconds", "20")
        self.assertEqual(code, 1)
        self.assertIn("no time left for it", errors)
        self.assertIn("pairs_shufflenet_mobilenet_stock_production_over_alone", figures)

    def test_no_gpu(self):
        self.assertEqual(self.run_fakes(FAKE_GPU="77")[0], 77)


def trained(ends_s, from_s, to_s, start_s=0):
    told = {"start_s": start_s, "ends_s": ends_s, "end_s": ends_s[-1]}
    return speeds.of([speeds.Piece(told, start_s, from_s, to_s, None)])


class SpeedsTest(unittest.TestCase):
    def test_parts_of_iterations_count(self):
        speed = trained([1, 2, 4], 0.5, 3)
        self.assertEqual((speed.throughput(), speed.pace(2, 3)), (0.8, 0.5))

    def test_a_long_iteration_counts_though_it_ends_too_late(self):
        self.assertEqual(trained([1, 2, 9], 1, 3).times_ms(), [1000, 7000])
        self.assertEqual(trained([1], 1, 3).times_ms(), [])

    def test_only_requests_that_both_had(self):
        def served(told, places):
            waited_ms = [ms / 5 for _, ms in told]
            return speeds.of([speeds.Piece({"requests": told, "waited_ms": waited_ms}, 0, 0, 10, places)])
        alone, beside = served([[1, 5], [2, 50]], [0, 1]), served([[0.5, 900], [1, 10]], [None, 0])
        self.assertEqual((beside.answers_over(alone), beside.p99_over(alone)), (0.5, 2))
        self.assertEqual((beside.speed_over(alone), beside.p99_steadied_over(alone)), (round(5 / 6, 4), 1.2))
        self.assertEqual([served([[1, 5], [9, ms]], [0, 1]).throughput() for ms in (900, 3500)], [1, 0.8])

    def test_what_is_added(self):
        self.assertEqual(trained([1, 2, 9], 1, 3).p99_added_ms(trained([1, 2, 3], 1, 3)), 6000)


class PlayedDuo:
    """Tells what pairs.py has done with it, in its order."""

    def __init__(self, name, mode):
        self.name, self.mode, self.told = name, mode, []
        self.jobs = {side: types.SimpleNamespace(finish=lambda _: None) for side in pairs.SIDES}

    def start(self):
        pass

    def check(self, _):
        pass

    def run(self, sides, lead_s, seconds, offset_s=0):
        self.told.append((sides, lead_s, seconds, offset_s))
        return {side: speeds.Piece(None, 0, lead_s, lead_s + seconds, None) for side in sides}


class RoundsTest(unittest.TestCase):
    def measured(self, name, mode, *options):
        words = ["pairs.py", "--sweep", "0", "--measure-seconds", "6", "--alone-seconds", "3", *options]
        with mock.patch.object(sys, "argv", words):
            args = pairs.parse_arguments()
        duo, seen = PlayedDuo(name, mode), pairs.Seen()
        pairs.measure(types.SimpleNamespace(args=args), duo, seen)
        return duo.told, seen

    def test_order(self):
        """The controller settles once."""
        alone, both = ("production",), pairs.SIDES
        told, seen = self.measured("server_transformer", "ours")
        self.assertEqual(told, [
            (("opportunistic",), 3, 1.5, 0),
            (alone, 0.5, 1, 0), (both, 8, 2, 0),
            (alone, 0.5, 1, 2), (both, 0.5, 2, 2),
            (alone, 0.5, 1, 4), (both, 0.5, 2, 4)])
        self.assertEqual([len(pieces) for pieces in seen.alone_pieces.values()], [3, 1])
        self.assertEqual((len(seen.rounds), len(seen.runs)), (3, 3))

    def test_order_without_a_controller(self):
        alone, both = ("production",), pairs.SIDES
        told, _ = self.measured("server_transformer", "stock", "--rounds", "2", "--alone-seconds", "8")
        self.assertEqual(told, [(("opportunistic",), 0.5, 4, 0), (alone, 0.5, 4, 0), (both, 0.5, 3, 0),
                                (alone, 0.5, 4, 4), (both, 0.5, 3, 4)])

    def test_rounds_have_requests_of_their_own(self):
        """Those of production alone, of which both has the same ones, as far as it goes."""
        told, _ = self.measured("server_transformer", "stock")
        alone, both = ([{place for place in company.requests_of(*run[1:])[1] if place is not None}
                        for run in told if run[0] == sides] for sides in (("production",), pairs.SIDES))
        self.assertTrue(all(few and few < many for few, many in zip(alone, both)))
        self.assertEqual(sum(map(len, both)), len(set.union(*both)))

    def test_rounds_take_only_their_leads_longer(self):
        def added_s(name, mode):
            plans_s = []
            for rounds in ("3", "1"):
                with mock.patch.object(sys, "argv", ["pairs.py", "--rounds", rounds]):
                    plans_s.append(pairs.plan_s(pairs.parse_arguments(), name, mode))
            return plans_s[0] - plans_s[1]
        leads_s = 4 * (0.5 + company.ORDER_S)
        self.assertAlmostEqual(added_s("shufflenet_mobilenet", "stock"), leads_s)
        self.assertAlmostEqual(added_s("shufflenet_mobilenet", "ours"), leads_s)
        self.assertAlmostEqual(added_s("tight", "ours"), leads_s + 2 * 2.5)  # each time production is to be idle first

    def test_at_least_one(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            self.measured("server_transformer", "stock", "--rounds", "0")


class PartsTest(unittest.TestCase):
    def test_parts_of_the_pattern_are_the_whole(self):
        whole, places = company.requests_of(0.5, 8, 0)
        first, second = company.requests_of(0.5, 4, 0), company.requests_of(0.5, 4, 4)
        lead = places.count(None)
        self.assertEqual([place for place in places if place is not None],
                         [place for part in (first, second) for place in part[1] if place is not None])
        self.assertEqual(first[0], whole[:len(first[0])])
        self.assertAlmostEqual(second[0][lead] + 4, whole[len(first[0])])
        self.assertEqual(whole, sorted(whole))

    def test_five_steps_find_a_limit(self):
        self.assertEqual((len(pairs.LIMITS), list(pairs.LIMITS)), (31, sorted(set(pairs.LIMITS))))

    def test_two_jobs_fit_the_bound(self):
        self.assertLessEqual(2 * opportune.LIMIT_GIB, gpubench.MANAGED_LIMIT_GIB)
        workloads = {side.workload for pair in pairs.PAIRS.values() for side in pair[:2]}
        self.assertLessEqual(workloads, set(opportune.NAMES))

    def test_a_run_begins_when_it_should(self):
        torch = selftest_scheduling.JobsTest.TORCH
        player = opportune.Player(torch, lambda: time.sleep(0.002), types.SimpleNamespace(is_right=lambda: False))
        start_s = time.monotonic() + 0.05
        told = player.obey({"do": "run", "start_s": start_s, "until_s": start_s + 0.05})
        self.assertGreaterEqual(told["start_s"], start_s)
        self.assertGreaterEqual(told["end_s"], start_s + 0.05)
        self.assertEqual(player.obey({"do": "check"}), {"memory_right": False})
        player.step = lambda: time.sleep(0.01) or 1
        self.assertAlmostEqual(player.obey({"do": "time"})["request_s"], 0.01, 2)


if __name__ == "__main__":
    selftest.main()
