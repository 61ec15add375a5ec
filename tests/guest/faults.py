#!/usr/bin/env python3
"""Makes each call of libunified.so to the C library that can fail do so, and counts which ones have. See README.md.

The calls (sites) are those that its code has, by objdump. A first run of each scene (fault_scenes) tells which sites
it reaches, and how often; then each site fails in some of them. Exit: 0 if all that must hold in a scene held, and
each site of the kind "allocation" has failed, but for those that are excused below, which are listed.
"""
import argparse
import collections
import concurrent.futures
import errno
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

HANG_S = 20
SITE = struct.Struct("24sQIIII")
MEMORY, THREADS, FILES = errno.ENOMEM, errno.EAGAIN, errno.EMFILE

# What the functions of faults.c are for, and how each of them may fail, the likeliest first.
ALLOCATIONS = {
    "malloc": [MEMORY], "calloc": [MEMORY], "realloc": [MEMORY], "mmap": [MEMORY], "mremap": [MEMORY],
    "on_exit": [MEMORY], "setenv": [MEMORY], "__register_atfork": [MEMORY], "pthread_create": [THREADS],
    "pthread_key_create": [THREADS], "pthread_setspecific": [MEMORY], "eventfd": [FILES, MEMORY],
    "socket": [FILES, errno.ENOBUFS], "open": [FILES, errno.EINTR],
}
SYSTEM_CALLS = {
    "munmap": [MEMORY], "mprotect": [MEMORY], "madvise": [MEMORY, errno.EINVAL],
    "connect": [errno.ECONNREFUSED, errno.EAGAIN, errno.EINTR], "fcntl": [errno.EINVAL], "fstat": [MEMORY],
    "stat": [errno.EACCES], "access": [errno.EACCES], "poll": [errno.EINTR, MEMORY], "ppoll": [errno.EINTR, MEMORY],
    "read": [errno.EINTR, errno.EIO], "write": [errno.EINTR, errno.ENOSPC],
    "recvmsg": [errno.EINTR, MEMORY, errno.ECONNRESET], "sendmsg": [errno.EINTR, errno.ENOBUFS, errno.EPIPE],
    "prctl": [errno.EPERM], "syscall": [errno.EINTR], "sched_getaffinity": [errno.EPERM],
    "sysconf": [errno.EINVAL], "nanosleep": [errno.EINTR], "clock_nanosleep": [errno.EINTR],
}
# By the kernel's numbers, the same on x86-64 (first) and elsewhere: calls that can't fail as above.
SYSTEM_CALLS_BY_NUMBER = {
    "x86_64": {202: [errno.EINTR, errno.EAGAIN], 324: [errno.EPERM], 186: [], 234: [errno.EPERM],
               41: [FILES, errno.ENOBUFS], 257: [FILES, errno.EINTR], 3: []},
    "aarch64": {98: [errno.EINTR, errno.EAGAIN], 283: [errno.EPERM], 178: [], 131: [errno.EPERM],
                198: [FILES, errno.ENOBUFS], 56: [FILES, errno.EINTR], 57: []},
}

# What these take is as if the C library had been asked (descriptor.c).
OPENED_BY_NUMBER = ("syscall in descriptor_open", "syscall in wire_socket_as_guest")

# How these do not fail: an eventfd is on no disk.
NEVER = {"write in client_wake": [errno.ENOSPC], "read in wait_for_events": [errno.EIO]}

# Sites that no scene reaches, by "FUNCTION in OUR FUNCTION", and why not.
EXCUSED = {
    "calloc in opened_open": "memory of another process: tests/system/test_ipc.c", # where a compiler puts open_new into it
    "calloc in open_new": "memory of another process: tests/system/test_ipc.c",
    "malloc in lease_begin": "memory for another process: tests/system/test_ipc.c",
    "malloc in append < deferred_free": "a free whose work has not ended: often, but not each time",
    "malloc in ledger_snapshot": "unified memory moves in most runs of the scenes, not in each",
    "malloc in map_arrays": "the simulated driver maps no arrays",
    "malloc in plan_make": "unified memory moves in most runs of the scenes, not in each",
    "malloc in start < answer_from_now_on": "memory for another process: tests/system/test_ipc.c",
    "malloc in answer_late": "memory for another process: tests/system/test_ipc.c",
    "malloc in send < carry_out": "unified memory moves in most runs of the scenes, not in each",
    "realloc in list < reserves_note_used": "a pool of the driver's own, taken where ours could not be made: often, but not each time",
    "socket in wire_connect_as (": "gpusharectl's and the plugin's way to the daemon",
    "connect in wire_connect_as (": "gpusharectl's and the plugin's way to the daemon",
    "syscall in clock_sleep < slots_mine": "more than 16 threads that start without memory: tests/unit/gate/test_gate.c",
    "syscall in clock_sleep < room_fill": "a program that can have no thread for long, and whose memory does not fit",
    "clock_nanosleep in wait_for_part": "moves larger than those of the scenes",
    "munmap in map < pinned_make": "this kernel aligns large mappings",
    "munmap in pinned_give_back": "host memory that was unused for 30 s, or that the host lacks",
}


class Site:
    def __init__(self, function, address, is_jump, place, line):
        self.function, self.address, self.is_jump, self.place, self.line = function, address, is_jump, place, line
        self.calls = collections.Counter()  # by scene, without a failure
        self.seen = set()  # as what it calls: (function with a system call's number, address)
        self.again = 0  # calls in runs in which another one had failed
        self.failed = 0
        self.wrong = 0

    @property
    def name(self):
        return f"{self.function} in {self.place}"

    @property
    def is_allocation(self):
        return self.function in ALLOCATIONS or self.name.startswith(OPENED_BY_NUMBER)

    @property
    def is_bearable(self):
        """At each call: there is no memory, or no thread. (Without sockets there is no daemon.)"""
        return self.is_allocation and self.function not in ("socket", "open", "syscall")

    def errors(self):
        if self.function != "syscall":
            never = [error for name, errors in NEVER.items() if self.name.startswith(name) for error in errors]
            return [error for error in ALLOCATIONS.get(self.function) or SYSTEM_CALLS[self.function]
                    if error not in never]
        table = SYSTEM_CALLS_BY_NUMBER.get(os.uname().machine, {})
        numbers = {int(name.partition(".")[2]) for name, _ in self.seen}
        return sorted({error for number in numbers for error in table.get(number, [])})

    def faults(self):
        """What GS_FAULT calls it."""
        return [f"{name}:{address:x}" for name, address in sorted(self.seen)]


def places_of(library, addresses):
    """The function of each address with those that it has been inlined into, and the line outside of headers."""
    text = subprocess.run(["addr2line", "-a", "-i", "-f", "-s", "-e", library] + [f"{a - 1:#x}" for a in addresses],
                          capture_output=True, text=True, check=True).stdout.splitlines()
    places, current = [], None
    for line in text:
        if line.startswith("0x"):
            current = []
            places.append(current)
        else:
            current.append(line)
    return [(" < ".join(lines[0::2][:3]) + " (" + lines[1].split(" ")[0] + ")", line_of(lines[1::2]))
            for lines in places]


def line_of(frames):
    frames = [frame.split(" ")[0] for frame in frames]
    return next((frame for frame in frames if ".h:" not in frame), frames[0])


def find_sites(library):
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library],
                          capture_output=True, text=True, check=True).stdout.splitlines()
    call = re.compile(r"^\s*([0-9a-f]+):\s+(call|jmp|bl|b)q?\s+[0-9a-f]+ <([a-z_0-9]+)(?:@[A-Z0-9_.]+)?@plt>")
    found = []
    for number, line in enumerate(code):
        match = call.match(line)
        if match and (match[3] in ALLOCATIONS or match[3] in SYSTEM_CALLS):
            jump = match[2] in ("jmp", "b")
            following = re.match(r"^\s*([0-9a-f]+):", code[number + 1]) if number + 1 < len(code) else None
            after = int(following[1], 16) if following else int(match[1], 16) + 4
            found.append((match[3], after, jump))
    places = places_of(library, [after for _, after, _ in found])
    return [Site(function, after, jump, *place) for (function, after, jump), place in zip(found, places)]


def read_table(path):
    """(function, address): calls, failed"""
    entries = {}
    with open(path, "rb") as table:
        data = table.read()
    for at in range(0, len(data) - SITE.size + 1, SITE.size):
        name, address, state, calls, failed, _ = SITE.unpack_from(data, at)
        if state == 2:
            entries[name.rstrip(b"\0").decode(), address] = calls, failed
    return entries


class Campaign:
    def __init__(self, arguments):
        self.arguments = arguments
        self.sites = find_sites(arguments.library)
        self.calls = {(site.function, site.address): site for site in self.sites if not site.is_jump}
        self.jumps = {site.function: site for site in self.sites if site.is_jump}
        self.seconds = {}
        self.runs = 0
        self.failures = []

    def site_of(self, function, address):
        function = function.partition(".")[0]
        return self.calls.get((function, address)) or self.jumps.get(function)

    def run(self, scene, fault=None):
        """Output if it failed, seconds, the table."""
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "table")
            environment = dict(os.environ, GS_FAULT_TABLE=table)
            if fault:
                environment["GS_FAULT"] = fault
            begun = time.monotonic()
            done = subprocess.run([self.arguments.scenes, scene], env=environment, text=True, errors="replace",
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            took = time.monotonic() - begun
            entries = read_table(table) if os.path.exists(table) else {}
        wrong = done.stdout if done.returncode not in (0, 77) else None
        if wrong is None and took > HANG_S * int(os.environ.get("GS_TEST_SCALE") or 1):
            wrong = f"it took {took:.0f} s\n{done.stdout}"
        return wrong, took, entries, done.stdout

    def each(self, work, items):
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            return list(pool.map(work, items))

    # Without a failure.

    def look(self, scene):
        wrong, took, entries, text = self.run(scene)
        return scene, wrong, took, entries

    def survey(self, scenes):
        for scene, wrong, took, entries in self.each(self.look, scenes):
            if wrong:
                sys.exit(f"{scene} fails without any failure:\n{wrong}")
            self.seconds[scene] = took
            for (function, address), (calls, _) in entries.items():
                site = self.site_of(function, address)
                if site:
                    site.calls[scene] = max(calls, site.calls[scene])
                    site.seen.add((function, address))

    # With one.

    def choose(self, site):
        """(scene, fault) of each run."""
        if not self.can_fail(site):
            return []
        # First those that look at what is counted, and the shortest.
        scenes = sorted(site.calls, key=lambda scene: (not scene.startswith("books"), self.seconds[scene]))
        if self.arguments.scenes_each:
            scenes = scenes[:self.arguments.scenes_each]
        chosen = []
        for scene in scenes:
            count = site.calls[scene]
            which = [1] if self.arguments.quick else sorted({1, (count + 1) // 2, count}) + [0] * site.is_bearable
            for fault in site.faults():
                for error in site.errors()[:1 if self.arguments.quick else None]:
                    chosen += [(site, scene, f"{fault}:{call}:{error}") for call in which]
        return chosen

    def attempt(self, item):
        site, scene, fault = item
        wrong, _, entries, text = self.run(scene, fault)
        failed = sum(failed for _, failed in entries.values())
        for function, address in entries:
            other = self.site_of(function, address)
            if other:
                other.again += 1
        if self.arguments.verbose:
            said = [line for line in text.splitlines() if ": exit " in line]
            print(f"{site.name}: {fault} in {scene}: {failed} failed; {said[0] if said else text}", flush=True)
        if wrong:
            print(f"=== {site.name}: {fault} in {scene}\n{wrong}", flush=True)
        return site, scene, fault, failed, wrong

    def fail_all(self, items):
        for site, scene, fault, failed, wrong in self.each(self.attempt, items):
            self.runs += 1
            site.failed += failed
            if wrong:
                site.wrong += 1
                self.failures.append((site, scene, fault))

    # What has come of it.

    def report(self):
        good = True
        for kind in ("allocation", "system call"):
            sites = [site for site in self.sites if site.is_allocation == (kind == "allocation") and self.can_fail(site)]
            failed = [site for site in sites if site.failed]
            # Of a line that was inlined into several places one counts for all: how often it is, is the compiler's choice.
            done = {(site.function, site.line) for site in failed}
            missed = [site for site in sites if not site.failed and (site.function, site.line) not in done]
            excused = [site for site in missed if self.excuse(site)]
            print(f"sites of the kind {kind}: {len(sites)}; failed at least once, or their line elsewhere: "
                  f"{len(sites) - len(missed)}; "
                  f"not reached: {len(missed)}, of these with a reason: {len(excused)}; "
                  f"failed of those that can be reached: "
                  f"{100 * (len(sites) - len(missed)) / max(1, len(sites) - len(excused)):.0f} %")
            for site in missed:
                print(f"  not reached: {site.name}: {self.excuse(site) or 'NO REASON KNOWN'}")
            good &= len(missed) == len(excused) or (kind != "allocation" and not self.arguments.reasons)
        print(f"runs: {self.runs}; with a failure in what must hold: {len(self.failures)}")
        for site, scene, fault in self.failures:
            print(f"  GS_FAULT={fault} fault_scenes {scene}: {site.name}")
        return good and not self.failures

    @staticmethod
    def can_fail(site):
        """A futex's waiter may be sent on for no reason, but a wake does not fail: its number is -1."""
        return site.function != "syscall" or not site.seen or bool(site.errors())

    @staticmethod
    def excuse(site):
        for name, reason in EXCUSED.items():
            if site.name.startswith(name):
                return reason
        if site.again and not site.calls:
            return "only after another call has failed"
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("scenes", help="the program fault_scenes")
    parser.add_argument("--quick", action="store_true", help="one way to fail, at the first call")
    parser.add_argument("--scenes-each", type=int, default=0, help="in so many scenes per site (0: in all)")
    parser.add_argument("--surveys", type=int, default=4, help="at most, until all are reached that must be")
    parser.add_argument("--allocations", action="store_true", help="only sites of that kind")
    parser.add_argument("--system-calls", action="store_true", help="only sites of that kind")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth site")
    parser.add_argument("--part", type=int, default=int(time.time() / 86400), help="of these parts, this one (another one each day)")
    parser.add_argument("--reasons", action="store_true", help="also system calls must fail, or have a reason why not")
    parser.add_argument("--only", default="", help="sites whose name has this in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    campaign = Campaign(arguments)
    part = arguments.part % arguments.every
    print(f"part {part} of {arguments.every}")
    campaign.sites = [site for site in campaign.sites
                      if not (arguments.system_calls if site.is_allocation else arguments.allocations)][part::arguments.every]
    scenes = subprocess.run([arguments.scenes, "--list"], capture_output=True, text=True, check=True).stdout.split()
    begun = time.monotonic()
    for _ in range(arguments.surveys):  # what depends on timing may not come each time
        campaign.survey(scenes)
        if all(site.calls or campaign.excuse(site) for site in campaign.sites if site.is_allocation or arguments.reasons):
            break
    campaign.sites = [site for site in campaign.sites if arguments.only in site.name]
    campaign.fail_all([item for site in campaign.sites for item in campaign.choose(site)])
    for _ in range(3):  # likewise
        campaign.fail_all([item for site in campaign.sites if not site.failed for item in campaign.choose(site)])
    good = campaign.report()
    print(f"took {time.monotonic() - begun:.0f} s")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
