"""Graph captures go on while the GPU changes hands: none is lost, and the graphs compute what they should."""
import harness

ROUNDS = 64


def run_mode(test, daemon, mode):
    job = ("capture", (mode, ROUNDS), test.env(daemon))
    test.case(mode, lambda: harness.run_together(test, daemon, [job] * 2),
              lambda: harness.run_alone(test, "capture", mode, ROUNDS, env=test.env()))


def run_all(test):
    with test.daemon() as daemon:
        for mode in ("global", "thread_local", "relaxed"):
            run_mode(test, daemon, mode)


harness.main(run_all)
