"""Many threads, streams and contexts in each of two programs that take turns."""
import harness


def run_all(test):
    with test.daemon() as daemon:
        test.case("threads_streams_contexts",
                  lambda: harness.run_together(test, daemon, [("threads", (), test.env(daemon))] * 2,
                                               128 * harness.MIB),
                  lambda: harness.run_alone(test, "threads", env=test.env()))


harness.main(run_all)
