"""The linking modes: the same work by programs that reach the driver in different ways, two at a time."""
import harness

BYTES = 64 * harness.MIB  # of each job
ROUNDS = 60 if harness.is_simulated() else 2000  # kernels of one job: several quanta


def run_mode(test, daemon, mode, libraries):
    name, program, preload, *extra = mode
    job = (program, (BYTES, ROUNDS), test.env(daemon, libraries, preload, *extra))
    test.case(name, lambda: harness.run_together(test, daemon, [job] * 2, BYTES),
              lambda: harness.run_alone(test, program, BYTES, ROUNDS, env=test.env(None, libraries, (), *extra)))


def run_modes(test, modes, libraries=()):
    """modes: (case, program, libraries to preload[, more of the environment]); libraries: folders to find more in. All use
    one daemon."""
    with test.daemon() as daemon:
        for mode in modes:
            run_mode(test, daemon, mode, libraries)
