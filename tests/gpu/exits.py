"""Programs that end, or are ended, at random moments while the GPU changes hands; two jobs beside them go on and compute
the right thing. GS_TEST_SEED repeats a run's choices."""
import contextlib
import os
import random
import subprocess

import harness

QUANTUM_S = 0.005  # many hand-overs, so that the ends fall into them
ROUNDS, VICTIMS_AT_ONCE = 7, 4
WORK_NS_MAX = 150_000_000
START_S_MAX = 1.0
GONE_S = 10
# The ways of exits.c with their exit codes; and those of this program.
OWN_ENDS = {"exit": 0, "fork": 0, "_exit": 0, "kill": -9}
KILLS = ("killed_while_working", "killed_while_starting")


def own_end(test, way, env, chance):
    with test.start("exits", way, chance.randrange(1, WORK_NS_MAX), env=env) as victim:
        victim.expect("ready")
        yield
        victim.go()
        yield
        code = victim.end()
        harness.check(code == OWN_ENDS[way], f"{victim.label} ({way}): exit {code}: {harness.tail(victim.log)}")


def wait_at_most(victim, seconds):
    """Let it run for a while, which is the point, not a way to wait for something."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        victim.process.wait(timeout=seconds)


def killed(test, way, env, chance):
    with test.start("exits", "exit", WORK_NS_MAX * 100, env=env) as victim:
        if way == "killed_while_working":
            victim.expect("ready")
        yield
        victim.go()
        yield
        wait_at_most(victim, chance.uniform(0, START_S_MAX if way == "killed_while_starting" else WORK_NS_MAX / 1e9))
        victim.kill()
        code = victim.end()
        harness.check(code == -9, f"{victim.label} ({way}) had ended before: exit {code}: {harness.tail(victim.log)}")


def together(victims):
    """Take a step of each in turn: start, go, end."""
    with contextlib.ExitStack() as stack:
        for victim in victims:
            stack.enter_context(contextlib.closing(victim))
        for _ in range(3):
            for victim in victims:
                next(victim, None)


def await_gone(test, daemon, survivors):
    """The daemon knows nobody but the survivors."""
    alive = {survivor.pid for survivor in survivors}
    limit = harness.Budget(test.budget.clip(GONE_S))
    while harness.jobs_of(daemon.status()).keys() != alive:
        harness.check(limit.left() > 0, f"the daemon still knows {daemon.status()['gpus'][0]['jobs']}")


def check_stock(test, chance):
    for way, code in OWN_ENDS.items():
        with test.start("exits", way, chance.randrange(1, WORK_NS_MAX), env=test.env()) as victim:
            victim.expect("ready")
            victim.go()
            ended = victim.end()
            harness.check(ended == code, f"{way}: exit {ended}")


def exits(test, chance):
    arguments = ("--bytes", "64M", "--rounds", "0", "--spin", "1ms", "--wait")
    with test.daemon(tq_s=QUANTUM_S) as daemon, contextlib.ExitStack() as stack:
        env = test.env(daemon)
        survivors = [stack.enter_context(test.start("job", *arguments, env=env)) for _ in range(2)]
        for survivor in survivors:
            survivor.expect("ready")
            survivor.go()
        for _ in range(ROUNDS):
            ways = [chance.choice([*OWN_ENDS, *KILLS]) for _ in range(VICTIMS_AT_ONCE)]
            together([(killed if way in KILLS else own_end)(test, way, env, chance) for way in ways])
            await_gone(test, daemon, survivors)
        for survivor in survivors:
            survivor.say("stop")
        for survivor in survivors:
            survivor.finish()
        harness.check(harness.handovers_of(daemon.status()) > ROUNDS, "too few hand-overs for this test to mean much")


def run_all(test):
    seed = int(os.environ.get("GS_TEST_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}", flush=True)
    test.case("exits", lambda: exits(test, random.Random(seed)), lambda: check_stock(test, random.Random(seed)))


harness.main(run_all)
