"""Stop and go by src/preempt: whether this driver does it, how long it takes, and that no byte is the worse for it."""
import harness

STOPS = 1000  # how many it takes until work is lost where stopped channels are stopped again
KNOWN = {"verdict": ["verdict"], "standstill": ["standstill"], "latency": ["latency", 500],
         "contents": ["contents", STOPS], "shares": ["shares", STOPS], "contexts": ["contexts"], "fork": ["fork"], "exit": ["exit"],
         "slices": ["slices"]}


def run_one(test, name):
    with test.start("preempt", *map(str, KNOWN[name]), env=test.env()) as program:
        lines = program.finish()
    for line in lines:
        print(f"  {line}", flush=True)
    if name == "verdict":
        harness.check(lines and lines[0].startswith("verdict yes"), f"this driver: {lines}")


def run_all(test):
    for name in KNOWN:
        test.case(name, lambda name=name: run_one(test, name))


harness.main(run_all)
