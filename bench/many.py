#!/usr/bin/env python3
"""Many inference servers (bench/serve.py), each with a model of its own, in a capacity that holds a third of them.

Each server gets a request every 2 to 10 s, at random (--seed), and nearly all of these find their model evicted. The
first --hot of them get one every 0.2 to 0.5 s: what they cost that stay on the card. First all of them run stock, all
in the card's memory; then under libunified with the same requests. What a request took longer than its model's median
stock request is what sharing has added, told apart by whether the model was on the card when the request came: by the
daemon's last status before that, 50 ms earlier at most or so. Every model must give the answer that it gave when it was
stock.

With --alternate requests come in turn, to one server after the other, so many seconds apart: so each comes after a
switch. What it takes longer than stock, less what a hand-over's moves take by the daemon's own count, is the rest. For
two language models of 14 GiB: --names llm,llm_b --capacity 20GiB --alternate 1

A process takes about 0.5 GiB of the card for its context, which no capacity counts, and 1 to 2 GiB of host memory
besides its model. One that does not start is left out, and told. Figures, a chart many.png of who ran when, and
timeline.json in --out.
"""
import argparse
import bisect
import contextlib
import os
import random
import statistics
import subprocess
import time

import gpubench
import sharing
import timeline
import watch

PROGRAM = gpubench.HERE / "serve.py"
IMPORT_S, BUILD_S, LIST_S, WARM_S = 120, 120, 120, 60
TARGET_MS, REST_TARGET_MS = 5, 15
MANAGED_GIB = {"llm": 16, "llm_b": 16}
AT_ONCE = max(12, len(os.sched_getaffinity(0)))
LEAD_S = 1
RESIDENT = 0.98  # of a model's bytes: it is on the card


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sharing.arguments(parser)
    parser.add_argument("--models", type=int, default=42, help="at most (default: %(default)s)")
    parser.add_argument("--names", metavar="MODELS", help="these, instead of the first ones of the list")
    parser.add_argument("--memory", choices=("swap", "managed"), default="swap", help="default: %(default)s")
    parser.add_argument("--capacity", metavar="SIZE", help="instead of --share")
    parser.add_argument("--alternate", type=float, metavar="SECONDS", help="between two requests, whoever has them")
    parser.add_argument("--share", type=float, default=1 / 3, help="of what all have, that is the capacity "
                        "(default: a third)")
    parser.add_argument("--request-seconds", type=float, default=60, help="of requests (default: %(default)g)")
    parser.add_argument("--gap", type=float, nargs=2, default=(2, 10), metavar="SECONDS",
                        help="between two requests of a server (default: 2 10)")
    parser.add_argument("--hot", type=int, default=4, help="models with the gap --hot-gap (default: %(default)s)")
    parser.add_argument("--hot-gap", type=float, nargs=2, default=(0.2, 0.5), metavar="SECONDS",
                        help="(default: 0.2 0.5)")
    parser.add_argument("--warm", action=argparse.BooleanOptionalAction, default=True,
                        help="one request to each before the clock starts: the first would pay for the moves that the "
                        "new capacity asks for (default: %(default)s)")
    parser.add_argument("--policy", default="rr", help="default: %(default)s")
    parser.add_argument("--tq", type=float, default=1, help="quantum in seconds (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1)
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
    chance, times_s = random.Random(f"{args.seed} {name}"), []
    gap = args.hot_gap if is_hot else args.gap
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
        bench = self.bench
        memory = bench.args.memory
        env = gpubench.variant_env(self.variant, bench.build, self.daemon, memory=memory)
        guard = bench.guard if self.daemon and memory == "managed" else None
        return self.stack.enter_context(gpubench.Job(
            f"many-{self.variant}-{name}", [bench.args.python, PROGRAM, "--held", "--model", name], env, bench.out,
            bench.budget, guard, MANAGED_GIB.get(name, 2)))

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
        if bench.args.warm:
            servers.warm()
        results = servers.serve()
        servers.finish()
        return results


def set_capacity(bench, daemon):
    """What was asked for, or so that it holds --share of what all have together."""
    used = [job["used_bytes"] for job in watch.keep_jobs(daemon.status()).values()]
    bench.figures.add("many_memory", sum(used) / sharing.GIB, "GiB")
    capacity = max(int(sum(used) * bench.args.share), max(used, default=0) + (64 << 20))
    if not bench.args.capacity:
        bench.figures.add("many_capacity", capacity / sharing.GIB, "GiB")
    daemon.ctl("set-capacity", bench.args.capacity or str(capacity))


def run_ours(bench, names):
    """The results, and model -> the daemon's looks at it."""
    args = bench.args
    with bench.daemon("auto", args.tq, None) as daemon, contextlib.ExitStack() as stack:
        daemon.ctl("set-policy", args.policy)
        servers = Servers(bench, stack, daemon)
        servers.start(names)
        set_capacity(bench, daemon)
        if args.warm:
            servers.warm()
        told = sharing.Told(before=daemon.status())
        with watch.JobWatch(daemon) as looks:
            results = servers.serve()
        told.after = daemon.status()
        servers.finish()
        sharing.add_moves(bench.figures, "many", told)
        bench.move_ms = told.moves()["move_ns"] / max(told.told("handovers"), 1) / 1e6 if told.moves() else 0
        names = servers.names()
        timeline.write(bench.out, "many", [watch.panel(f"{len(results)} models, {args.policy}", looks, names)])
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


def check_answers(bench, stock, ours):
    different = [name for name in ours if ours[name]["answer"] != stock[name]["answer"]]
    bench.figures.add("many_results", "DIFFERENT" if different else "same")
    if different:
        bench.wrong.append(f"many_results: {' '.join(different)}")


def report(bench, stock, ours, looks):
    figures = bench.figures
    add_latencies(figures, "", ours)
    check_answers(bench, stock, ours)
    for resident, values in added_ms(stock, ours, looks).items():
        name = "resident" if resident else "evicted"
        figures.add(f"many_requests_{name}", len(values))
        if values:
            figures.add(f"many_added_ms_{name}", statistics.mean(values), "ms")
            figures.add(f"many_added_p99_ms_{name}", percentile(values, 0.99), "ms")
    if bench.args.alternate:
        figures.add("many_stock_median_ms", statistics.median(all_ms(stock)), "ms")
        rests = [ms - bench.move_ms for values in added_ms(stock, ours, looks).values() for ms in values]
        figures.add("many_rest_ms", statistics.mean(rests), "ms")
        figures.judge("many_rest_ms", at_most=REST_TARGET_MS, judged=not bench.args.quick)
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
