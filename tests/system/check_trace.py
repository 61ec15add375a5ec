#!/usr/bin/env python3
"""Checks a file of gpusharectl timeline by the rules of the Trace Event Format, and what it says by status.

usage: check_trace.py TRACE STATUS [HISTORY]    STATUS: gpusharectl status --json, of the same moment; HISTORY: gpusharectl
                                                history --json, once all jobs of its one GPU have ended

All times in microseconds. Says "ok", or the first thing that is wrong, and exits with 1.
"""
import collections
import json
import pathlib
import sys

NUMBERS = (int, float)
EPSILON_US = 0.01  # times are written with three digits or more
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


def require(right, *what):
    if not right:
        sys.exit("wrong: " + " ".join(map(str, what)))


def check_common(entry):
    require(isinstance(entry, dict), "no object:", entry)
    require(entry.get("ph") in ("X", "B", "E", "i", "C", "M"), "ph:", entry)
    require(isinstance(entry.get("name"), str) and entry["name"], "name:", entry)
    require(isinstance(entry.get("pid"), int) and isinstance(entry.get("tid"), int), "pid, tid:", entry)
    if entry["ph"] != "M":
        require(isinstance(entry.get("ts"), NUMBERS) and entry["ts"] >= 0, "ts:", entry)


def check_entry(entry):
    check_common(entry)
    if entry["ph"] == "X":
        require(isinstance(entry.get("dur"), NUMBERS) and entry["dur"] >= 0, "dur:", entry)
    elif entry["ph"] == "i":
        require(entry.get("s") in ("g", "p", "t"), "s:", entry)
    elif entry["ph"] == "C":
        values = entry.get("args", {}).values()
        require(values and all(isinstance(value, NUMBERS) and value >= 0 for value in values), "args:", entry)
    elif entry["ph"] == "M":
        require(METADATA.get(entry["name"]) in entry.get("args", {}), "metadata:", entry)


def check_slices(entries):
    """Those of a thread are one after the other; what begins ends."""
    threads, open_slices = collections.defaultdict(list), collections.Counter()
    for entry in entries:
        key = entry["pid"], entry["tid"]
        if entry["ph"] == "X":
            threads[key].append((entry["ts"], entry["ts"] + entry["dur"], entry["name"]))
        open_slices[key] += {"B": 1, "E": -1}.get(entry["ph"], 0)
        require(open_slices[key] >= 0, "an end without a beginning:", entry)
    require(not any(open_slices.values()), "a beginning without an end")
    for key, slices in threads.items():
        slices.sort()
        for before, after in zip(slices, slices[1:]):
            require(after[0] >= before[1] - EPSILON_US, "slices overlap in", key, before, after)


def check_names(entries):
    named = {(entry["name"], entry["pid"], entry["tid"]) for entry in entries if entry["ph"] == "M"}
    processes = {pid for name, pid, _ in named if name == "process_name"}
    for entry in entries:
        require(entry["pid"] in processes, "a process without a name:", entry)
        require(entry["ph"] not in "Xi" or ("thread_name", entry["pid"], entry["tid"]) in named,
                "a thread without a name:", entry)


def sum_of(entries, slice_name, arg):
    """No slice takes longer than it says."""
    slices = [entry for entry in entries if entry["ph"] == "X" and entry["name"] == slice_name]
    for entry in slices:
        require(entry["dur"] * 1000 <= entry["args"][arg] + EPSILON_US * 1000, "too long:", entry)
    return sum(entry["args"][arg] for entry in slices)


def check_gpu(entries, gpu):
    """The hand-overs, how long the GPU was idle for them, and what has moved."""
    mine = [entry for entry in entries if entry["pid"] == gpu["index"] + 1]
    count = sum(entry["ph"] == "i" and entry["name"] == "hand-over" for entry in mine)
    require(count == gpu["handovers"], count, "hand-overs, status:", gpu["handovers"])
    for slice_name, arg in (("drain", "drain_ns"), ("moves", "move_ns")):
        drawn_ns, told_ns = sum_of(mine, slice_name, arg), gpu["handover"][arg]
        require(drawn_ns == told_ns, arg, drawn_ns, "status:", told_ns)
    moved = sum(entry["args"]["bytes"] for entry in mine
                if entry["ph"] == "X" and entry["name"] in ("evicts", "restores") and "args" in entry)
    require(moved == gpu["moved_bytes"], moved, "bytes moved, status:", gpu["moved_bytes"])


def check_turns(entries, history):
    """A turn begins with what it restores, at a hand-over. Each job has had as many as history tells."""
    threads = {(entry["pid"], entry["tid"]): entry["args"]["name"].split(" (")[0]
               for entry in entries if entry["ph"] == "M" and entry["name"] == "thread_name"}
    begun = [(threads[entry["pid"], entry["tid"]], entry["ts"]) for entry in entries
             if entry["ph"] == "X" and entry["name"] == "restores" and "args" not in entry]
    held = {f"job {run['job']} {run['name']}": run["turns"] for run in history["runs"] if run["turns"]}
    told = dict(collections.Counter(name for name, _ in begun if not name.endswith(" memory")))
    require(told == held, "turns:", told, "history:", held)
    for entry in entries:
        require(entry["ph"] != "i" or entry["name"] != "hand-over" or
                any(abs(entry["ts"] - at) <= EPSILON_US for _, at in begun), "no turn begins at", entry)


def main():
    trace, status, *history = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:])
    entries = trace["traceEvents"]
    for entry in entries:
        check_entry(entry)
    check_slices(entries)
    check_names(entries)
    for gpu in status["gpus"]:
        check_gpu(entries, gpu)
    for told in history:
        check_turns(entries, told)
    print("ok")


if __name__ == "__main__":
    main()
