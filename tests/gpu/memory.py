"""Memory: pools keep the streams' order, contents survive evictions, and a program is told what it would be told
without us."""
import harness

CAPACITY = 4 * harness.GIB
# Memory that can leave the card is not fit for these, and says so; identifiers differ from run to run anyway.
MAY_DIFFER = {"LEGACY_IPC_CAPABLE", "GPU_DIRECT_RDMA", "HW_DECOMPRESS", "BUFFER_ID", "MEMORY_BLOCK_ID"}
INFO_BYTES = 256 * harness.MIB  # what attributes.c allocates
SLACK_BYTES = 2 * harness.MIB


def env(test, daemon, memory):
    return test.env(daemon, extra={"GPUSHARE_MEMORY": memory})


def pools(test, memory):
    with test.daemon() as daemon:
        harness.run_together(test, daemon, [("pools", (), env(test, daemon, memory))] * 2)


def released(test, memory, kind):
    """What a pool gives back after it has been on the host is not lost. (The driver alone loses it: released.c.)"""
    with test.daemon() as daemon:
        said = harness.run_alone(test, "released", 2000, kind, env=env(test, daemon, memory))
    harness.check("moved" in said or harness.is_simulated(), f"nothing was moved to the host: {said}")


def evictions(test, memory):
    """Two jobs on a card that is too small for both: at each turn memory leaves and comes back, every word is right."""
    mib, capacity, rounds = (48, "64M", 60) if harness.is_simulated() else (1280, "2G", 300)
    arguments = ("--bytes", f"{mib}M", "--rounds", rounds, "--wait")
    with test.daemon(tq_s=0.1, capacity=capacity) as daemon:
        harness.run_together(test, daemon, [("job", arguments, env(test, daemon, memory))] * 2, mib * harness.MIB)
        moved = harness.moved_of(daemon.status())
    harness.check(moved > 0, "nothing was moved: the memory was not converted")


def answers(test, environment):
    """What attributes.c was told: {question: answer}."""
    lines = harness.run_alone(test, "attributes", env=environment)
    return {" ".join(line.split()[:2]): " ".join(line.split()[2:]) for line in lines}


def attributes(test, memory):
    with test.daemon() as daemon:
        stock, ours = answers(test, test.env()), answers(test, env(test, daemon, memory))
    harness.check(len(stock) > 40 and stock.keys() == ours.keys(), "the two runs answer different questions")
    differ = [f"{question}: {stock[question]} is now {ours[question]}" for question in stock
              if stock[question] != ours[question] and question.split()[1] not in MAY_DIFFER
              and not question.startswith("meminfo")]
    harness.check(not differ, "; ".join(differ))


def memory_info(told, when):
    free, total = map(int, told[f"meminfo {when}"].split())
    return free, total


def meminfo(test, memory):
    """The card is the capacity; what one allocates is what is no longer free, to the byte as far as pages go."""
    with test.daemon() as daemon:
        told = answers(test, env(test, daemon, memory))
    total = memory_info(told, "device")[1]
    free = {when: memory_info(told, when)[0] for when in ("before", "with", "after")}
    totals = {memory_info(told, when)[1] for when in free}
    harness.check(totals == {total} and total == CAPACITY, f"the card has {total} or {totals} bytes, not {CAPACITY}")
    harness.check(free["before"] <= total, f"{free['before']} bytes are free of {total}")
    taken = free["before"] - free["with"]
    harness.check(abs(taken - INFO_BYTES) <= SLACK_BYTES, f"{INFO_BYTES} bytes take {taken}")
    harness.check(abs(free["after"] - free["before"]) <= SLACK_BYTES, f"not all is free again: {free}")


def run_backend(test, memory, prefix):
    test.case(f"{prefix}pools", lambda: pools(test, memory), lambda: harness.run_alone(test, "pools", env=test.env()))
    for kind in ("plain", "managed"):
        test.case(f"{prefix}released-{kind}", lambda kind=kind: released(test, memory, kind))
    test.case(f"{prefix}evictions", lambda: evictions(test, memory))
    test.case(f"{prefix}attributes", lambda: attributes(test, memory))
    test.case(f"{prefix}meminfo", lambda: meminfo(test, memory))


def run_all(test):
    run_backend(test, "managed", "")
    run_backend(test, "swap", "swap-")


harness.main(run_all)
