"""Many threads, streams and contexts in each of two programs that take turns."""
import harness


KNOWN_BYTES = 112 * harness.MIB  # of 128: many small allocations, of which the daemon grants 16 MiB in advance


def run_all(test):
    with test.daemon() as daemon:
        job = ("threads", (), test.env(daemon))
        test.case("threads_streams_contexts",
                  lambda: harness.run_together(test, daemon, [job] * 2, KNOWN_BYTES),
                  lambda: harness.run_alone(test, "threads", env=test.env()))


harness.main(run_all)
