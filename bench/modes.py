"""The modes of bench/pairs.py and bench/guests.py: what they take, and what becomes of one that can't be had."""
import gpubench
import mps
import sharing

START_S = 14  # about what jobs take until they are ready


def is_ours(mode):
    return mode.startswith("ours")


def word(mode):
    return mode.replace("-", "_")


def tell_plan(bench, plans):
    """plans: name -> {mode: seconds}."""
    for name, parts_s in plans.items():
        gpubench.note(f"{name}: " + ", ".join(f"{mode} {seconds:.0f} s" for mode, seconds in parts_s.items()))
    total_s = sum(sum(parts_s.values()) for parts_s in plans.values())
    gpubench.note(f"in all about {total_s:.0f} s, of {bench.budget.left():.0f}")


def leave_out_mps(bench, modes, error):
    """It does not start here: nor will it the next time. Those of the modes that are left."""
    for mode in modes:
        if "mps" in mode:
            bench.figures.add(f"{bench.name}_{word(mode)}_verdict", "skipped")
    gpubench.note(f"without MPS: {error}")
    return [mode for mode in modes if "mps" not in mode]


def measure_all(bench, plans, measure):
    """measure(name, mode) of all that are planned, where there is time for it."""
    tell_plan(bench, plans)
    modes = list(bench.args.modes)
    for name, mode in [(name, mode) for name, parts_s in plans.items() for mode in parts_s]:
        if mode not in modes:
            continue
        gpubench.note(f"{name}, {mode}, {bench.budget.left():.0f} s left")
        with sharing.noted(bench, f"{name}, {mode}"):
            if bench.budget.left() < plans[name][mode]:
                raise gpubench.BenchError("no time left for it")
            try:
                measure(name, mode)
            except mps.NotThere as error:
                modes = leave_out_mps(bench, modes, error)
