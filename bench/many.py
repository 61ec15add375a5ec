#!/usr/bin/env python3
"""Many inference servers (bench/serve.py), each with a model of its own, in a capacity that holds a third of them.

Each server gets a request every 2 to 10 s, at random, and nearly all of these find their model evicted. The first --hot
of them get one every 0.2 to 0.5 s: what they cost that stay on the card. Before the clock starts each gets one, as the
first would pay for the moves that the new capacity asks for. First all of them run stock, all in the card's memory;
then under libunified with the same requests. What a request took longer than its model's median stock request is what
sharing has added, told apart by whether the model was on the card when the request came: by the daemon's last status
before that, 50 ms earlier at most or so. Every model must give the answer that it gave when it was stock.

With --resident the capacity is the whole card, as in Salus' experiment: all models stay on it, and what counts is what all
requests took longer in the mean.

With --alternate requests come in turn, to one server after the other, so many seconds apart: so each comes after a
switch. What it takes longer than stock, less what a hand-over's moves take by the daemon's own count, is the rest. For
two language models of 14 GiB: --names llm,llm_b --capacity 20GiB --alternate 1

A process takes about 0.5 GiB of the card for its context, which no capacity counts, and 1 to 2 GiB of host memory
besides its model. One that does not start is left out, and told.
"""
import bisect
import contextlib
import os
import random
import statistics
import subprocess
import time

import gpubench
import sharing
import watch

PROGRAM = gpubench.HERE / "serve.py"
IMPORT_S, BUILD_S, LIST_S, WARM_S = 120, 120, 120, 60
TARGET_MS, REST_TARGET_MS = 5, 15
MANAGED_GIB = {"llm": 16, "llm_b": 16}
AT_ONCE = max(12, len(os.sched_getaffinity(0)))
LEAD_S = 1
SHARE, POLICY, TQ_S = 1 / 3, "rr", 1  # the capacity, of what all have
HOT, HOT_GAP_S, GAP_S, SEED = 4, (0.2, 0.5), (2, 10), 1
RESIDENT = 0.98  # of a model's bytes: it is on the card


def parse_arguments():
    parser = sharing.parser(__doc__)
    sharing.option(parser, "--models", 42, "at most")
    parser.add_argument("--names", metavar="MODELS", help="these, instead of the first ones of the list")
    parser.add_argument("--capacity", metavar="SIZE", help="instead of a third")
    parser.add_argument("--resident", action="store_true", help="the whole card is the capacity: all stay on it")
    parser.add_argument("--alternate", type=float, metavar="SECONDS", help="between two requests, whoever has them")
    sharing.option(parser, "--request-seconds", 60.0, "of requests")
    sharing.option(parser, "--hot", HOT, "models with requests every 0.2 to 0.5 s")
    args = parser.parse_args()
    if args.quick:
        args.models, args.request_seconds = min(args.models, 8), min(args.request_seconds, 20)
    return args


def available(bench):
    """The models of this installation, as many as are wanted."""
    if bench.args.names:
        return bench.args.names.split(",")
    try:
        asked = subprocess.run([bench.args.python, PROGRAM, "--list"], env=gpubench.clean_env(), capture_output=True,
                               text=True, timeout=bench.budget.clip(LIST_S), check=False)
    except subprocess.TimeoutExpired:
        raise gpubench.BenchError("serve.py --list does not answer") from None
    if asked.returncode != 0:
        raise gpubench.BenchError(f"serve.py --list: {asked.stderr.strip()[-300:]}")
    return asked.stdout.split()[:bench.args.models]


def requests_of(args, name, is_hot, place, count):
    """When they come, in seconds; the same for stock and ours. It is server number `place` of so many."""
    if args.alternate:
        every_s = args.alternate * count
        return [args.alternate * place + every_s * index for index in range(int(args.request_seconds / every_s))]
    chance, times_s = random.Random(f"{SEED} {name}"), []
    gap = HOT_GAP_S if is_hot else GAP_S
    at_s = chance.uniform(0, gap[1])
    while at_s < args.request_seconds:
        times_s.append(round(at_s, 4))
        at_s += chance.uniform(*gap)
    return times_s


class Servers:
    """All that have started."""

    def __init__(self, bench, stack, daemon=None):
        self.bench, self.stack, self.daemon = bench, stack, daemon
        self.variant = "daemon" if daemon else "stock"
        self.jobs = {}  # model -> Job

    def start(self, names):
        """A few at a time; who fails is left out."""
        for first in range(0, len(names), AT_ONCE):
            new = {name: self.launch(name) for name in names[first:first + AT_ONCE]}
            for stage, timeout_s in (("imported", IMPORT_S), ("ready", BUILD_S)):
                for name in list(new):
                    self.wait(new, name, stage, timeout_s)
                for name in list(new) if stage == "imported" else ():
                    new[name].go()
            self.jobs |= new
            gpubench.note(f"{self.variant}: {len(self.jobs)} servers, {self.bench.budget.left():.0f} s left")

    def launch(self, name):
        return self.stack.enter_context(self.bench.job(
            f"{self.variant}-{name}", [PROGRAM, "--model", name], self.variant, self.daemon, self.bench.args.memory,
            MANAGED_GIB.get(name, 2)))

    def wait(self, new, name, stage, timeout_s):
        try:
            new[name].expect(stage, timeout_s)
        except gpubench.BenchError as error:
            gpubench.note(f"left out: {error}")
            new.pop(name).__exit__()

    def warm(self):
        """One after the other: each has then been moved where the capacity wants it."""
        for job in self.jobs.values():
            job.go({"warm": True})
            job.expect("warm", WARM_S)

    def serve(self):
        """model -> its requests: [when it came, ms]."""
        args, start_s = self.bench.args, time.monotonic() + LEAD_S
        for place, (name, job) in enumerate(self.jobs.items()):
            job.go({"start_s": start_s, "requests_s": requests_of(args, name, name in self.bench.hot, place,
                                                                  len(self.jobs))})
        results = {name: job.expect("result", args.request_seconds + 120) for name, job in self.jobs.items()}
        for name, job in self.jobs.items():
            gpubench.check_guest(self.variant, results[name], job, self.daemon)
        return results

    def finish(self):
        for job in self.jobs.values():
            job.go()
        for job in self.jobs.values():
            job.wait_end(60)

    def names(self):
        return {job.process.pid: name for name, job in self.jobs.items()}


def run_stock(bench, names):
    with contextlib.ExitStack() as stack:
        servers = Servers(bench, stack)
        servers.start(names)
        servers.warm()
        results = servers.serve()
        servers.finish()
        return results


def set_capacity(bench, daemon):
    """What was asked for, or so that it holds a third of what all have together."""
    used = [job["used_bytes"] for job in watch.keep_jobs(daemon.status()).values()]
    bench.figures.add("many_memory", sum(used) / sharing.GIB, "GiB")
    if bench.args.resident:
        return
    capacity = max(int(sum(used) * SHARE), max(used, default=0) + (64 << 20))
    if not bench.args.capacity:
        bench.figures.add("many_capacity", capacity / sharing.GIB, "GiB")
    daemon.ctl("set-capacity", bench.args.capacity or str(capacity))


def run_ours(bench, names):
    """The results, and model -> the daemon's looks at it."""
    with bench.daemon("auto", TQ_S, None) as daemon, contextlib.ExitStack() as stack:
        daemon.ctl("set-policy", POLICY)
        servers = Servers(bench, stack, daemon)
        servers.start(names)
        set_capacity(bench, daemon)
        servers.warm()
        told = sharing.Told(before=daemon.status())
        with watch.JobWatch(daemon) as looks:
            results = servers.serve()
        told.after = daemon.status()
        servers.finish()
        sharing.add_moves(bench.figures, "many", told)
        bench.move_ms = told.moves()["move_ns"] / max(told.told("handovers"), 1) / 1e6 if told.moves() else 0
        names = servers.names()
        return results, {name: looks.of_process(pid) for pid, name in names.items()}


def was_resident(looks, at_s):
    """By the last look before; None if there was none."""
    index = bisect.bisect([look_s for look_s, _ in looks], at_s) - 1
    return looks[index][1]["resident_bytes"] >= RESIDENT * looks[index][1]["used_bytes"] if index >= 0 else None


def added_ms(stock, ours, looks):
    """Whether the model was resident -> what each request took longer."""
    added = {True: [], False: []}
    for name, result in ours.items():
        base_ms = statistics.median(ms for _, ms in stock[name]["requests"])
        for at_s, ms in result["requests"]:
            resident = was_resident(looks[name], at_s)
            if resident is not None:
                added[resident].append(ms - base_ms)
    return added


def percentile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def all_ms(results):
    return [ms for result in results.values() for _, ms in result["requests"]]


def add_latencies(figures, name, results):
    """Of all requests, whatever was resident."""
    figures.add(f"many_{name}mean_ms", statistics.mean(all_ms(results)), "ms")
    figures.add(f"many_{name}p99_ms", percentile(all_ms(results), 0.99), "ms")


def report(bench, stock, ours, looks):
    figures = bench.figures
    add_latencies(figures, "", ours)
    answers, expected = ({name: results[name]["answer"] for name in ours} for results in (ours, stock))
    sharing.check_same(bench, "many", [answers], expected)
    added = added_ms(stock, ours, looks)
    everything = added[True] + added[False]
    figures.add("many_added_ms", statistics.mean(everything), "ms")
    figures.add("many_added_p99_ms", percentile(everything, 0.99), "ms")
    for resident, values in added.items():
        name = "resident" if resident else "evicted"
        figures.add(f"many_requests_{name}", len(values))
        if values:
            figures.add(f"many_added_ms_{name}", statistics.mean(values), "ms")
            figures.add(f"many_added_p99_ms_{name}", percentile(values, 0.99), "ms")
    if bench.args.alternate:
        figures.add("many_stock_median_ms", statistics.median(all_ms(stock)), "ms")
        figures.add("many_rest_ms", statistics.mean(everything) - bench.move_ms, "ms")
        figures.judge("many_rest_ms", at_most=REST_TARGET_MS, judged=not bench.args.quick)
        return
    if bench.args.resident:
        figures.judge("many_added_ms", at_most=TARGET_MS, judged=not bench.args.quick)
        return
    if figures.value("many_added_ms_resident") is None:
        raise gpubench.BenchError("no request found its model on the card")
    figures.judge("many_added_ms_resident", at_most=TARGET_MS, judged=not bench.args.quick)


def run(bench):
    names = available(bench)
    bench.hot = set(names[:bench.args.hot])
    stock = run_stock(bench, names)
    stock = {name: result for name, result in stock.items() if result["requests"]}
    bench.figures.add("many_stock_models", len(stock))
    if not stock:
        raise gpubench.BenchError("no server has started, or none has had a request")
    add_latencies(bench.figures, "stock_", stock)
    ours, looks = run_ours(bench, list(stock))
    bench.figures.add("many_models", len(ours))
    report(bench, stock, ours, looks)


if __name__ == "__main__":
    sharing.main("many", parse_arguments, run)
