#!/usr/bin/env python3
"""How many models of a sweep train at once, and at which speed all together: HFTA's question.

  pointnet, dcgan, resnet18   trainings on random data that use a part of the card each (bench/workloads.py)
  salus_kept, salus_freed     Salus' example: 1 GiB for good and 7 GiB in each iteration, so that two need 16 GiB at their
                              peaks; PyTorch keeps the 7 GiB, or gives them back at an iteration's end

  stock    time slicing: a process for each model
  mps      NVIDIA's MPS
  ours     libunified and its daemon: side by side while all fits
  turns    that, but by turns of --tq even if all fits

`serial`, the models one after the other, has the speed of one stock process alone. As many processes as there are models
at most start once for each of stock, MPS and libunified. Models that are not counted wait, with all of their memory. The
memory of N models is N times what one of all takes of the card, its context among it.

Figures, and the table sweep.txt in --out. Managed memory: at most 40 GiB at once.
"""
import collections
import contextlib
import subprocess

import company
import gpubench
import sharing
import speeds

Model = collections.namedtuple("Model", "workload samples gib")  # samples of an iteration; what it may have
MODELS = {"pointnet": Model("sweep_pointnet", 32, 2.5), "dcgan": Model("sweep_dcgan", 64, 2.5),
          "resnet18": Model("sweep_resnet18", 64, 2.5), "salus_kept": Model("salus_kept", 1, 9.5),
          "salus_freed": Model("salus_freed", 1, 9.5)}
CROWDS = (("stock",), ("mps",), ("ours", "turns"))  # modes of the same processes
MODES = tuple(mode for modes in CROWDS for mode in modes)
START_S, BUILD_S, ANSWER_S = 25, 10, 0.3  # about what starting, building, and an order and its answer take
BUILD_LIMIT_S = 120


def parse_arguments():
    parser = sharing.parser(__doc__)
    sharing.option(parser, "--models", "pointnet,dcgan,resnet18")
    sharing.option(parser, "--modes", ",".join(MODES))
    parser.add_argument("--counts", default=(1, 2, 4, 8, 16), type=lambda text: tuple(map(int, text.split(","))),
                        help="of models at once (default: 1,2,4,8,16)")
    parser.add_argument("--capacity", metavar="SIZE", help="of ours and of turns, instead of the whole card")
    sharing.option(parser, "--tq", 0.5, "of turns, in seconds")
    sharing.option(parser, "--measure-seconds", 2.0, "of each")
    sharing.option(parser, "--lead", 0.5, "before that")
    args = parser.parse_args()
    args.models, args.modes = sharing.words_of(parser, args.models, MODELS), sharing.words_of(parser, args.modes, MODES)
    if args.quick:
        args.measure_seconds = min(args.measure_seconds, 1)
    return args


class Crowd(company.Company):
    """Processes that wait, and build one model after the other."""

    def __init__(self, bench, stack, mode, count, gib):
        sides = {f"standard_{index + 1}": company.Side(None) for index in range(count)}
        super().__init__(bench, stack, "sweep", mode, sides, bench.args.capacity, bench.args.tq, False, gib)

    def order_all(self, order, timeout_s):
        """All at once; their answers. All have answered before one's failure counts."""
        for job in self.jobs.values():
            job.go(order)
        answers = [job.expect("ready", timeout_s) for job in self.jobs.values()]
        for job, answer in zip(self.jobs.values(), answers):
            if "error" in answer:
                raise job.trouble(answer["error"])
        return answers


def memory_used_gib():
    """Of the card, by whomever; None if nobody tells."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        told = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=20, check=True)
        return float(told.stdout.split()[0]) / 1024
    return None


class Table:
    """samples/s of all together, and GiB of each, by model and mode."""

    def __init__(self):
        self.rates, self.gib = {}, {}

    def text(self, counts):
        lines = [f"{'model':12} {'mode':6} " + " ".join(f"{f'N={count}':>17}" for count in counts),
                 f"{'':19} " + " ".join(f"{'over serial, GiB':>17}" for _ in counts)]
        for (model, mode), rates in self.rates.items():
            serial, gib = self.rates.get((model, "stock"), {}).get(1), self.gib.get((model, mode))
            cells = [(f"{rates[count] / serial:.3f}" if serial and count in rates else "-") +
                     (f"{count * gib:8.1f}" if gib else f"{'-':>8}") for count in counts]
            lines.append(f"{model:12} {mode:6} " + " ".join(f"{cell:>17}" for cell in cells))
        return "\n".join(lines) + "\n"


def measure_counts(bench, crowd, name, mode, counts, table):
    args, figures = bench.args, bench.figures
    rates = table.rates.setdefault((name, mode), {})
    for count in counts:
        gpubench.note(f"{name}, {mode}, {count} at once, {bench.budget.left():.0f} s left")
        pieces = crowd.run(list(crowd.sides)[:count], args.lead, args.measure_seconds)
        rates[count] = MODELS[name].samples * sum(speeds.of([piece]).throughput() for piece in pieces.values())
        figures.add(f"sweep_{name}_{mode}_{count}", rates[count], "samples/s")
        if serial := table.rates.get((name, "stock"), {}).get(1):
            figures.add(f"sweep_{name}_{mode}_{count}_over_serial", round(rates[count] / serial, 4))


def measure_model(bench, crowd, name, modes, counts, table, idle_gib):
    crowd.order_all({"do": "build", "workload": MODELS[name].workload}, BUILD_LIMIT_S)
    used_gib = memory_used_gib()
    for mode in modes:
        if used_gib is not None and idle_gib is not None:
            table.gib[name, mode] = (used_gib - idle_gib) / len(crowd.sides)
            bench.figures.add(f"sweep_{name}_{mode}_memory_each", table.gib[name, mode], "GiB")
        if crowd.daemon:
            crowd.daemon.ctl("on" if mode == "turns" else "auto")
        measure_counts(bench, crowd, name, mode, counts, table)
    if not all(told["memory_right"] for told in crowd.order_all({"do": "check"}, company.ANSWER_S)):
        bench.wrong.append(f"{name}, {crowd.mode}: memory does not hold what was written to it")
    if crowd.daemon:
        crowd.daemon.ctl("auto")
    crowd.order_all({"do": "drop"}, company.ANSWER_S)


def plan_s(args, modes, counts):
    """About how long the modes of one crowd take."""
    each_s = args.lead + args.measure_seconds + ANSWER_S
    return START_S + len(args.models) * (BUILD_S + len(modes) * len(counts) * each_s)


def run_crowd(bench, modes, counts, table):
    args, idle_gib = bench.args, memory_used_gib()
    if bench.budget.left() < plan_s(args, modes, counts):
        raise gpubench.BenchError("no time left for it")
    with contextlib.ExitStack() as stack:
        kind = modes[0] if modes[0] in ("stock", "mps") else "ours"
        crowd = Crowd(bench, stack, kind, max(counts), max(MODELS[name].gib for name in args.models))
        crowd.start()
        for name in args.models:
            with sharing.noted(bench, f"{name}, {kind}"):
                measure_model(bench, crowd, name, modes, counts, table, idle_gib)
        for job in crowd.jobs.values():
            job.go()
        for job in crowd.jobs.values():
            job.wait_end(company.ANSWER_S)


def run(bench):
    """Stock first: what all are compared with."""
    table, args = Table(), bench.args
    crowds = [[mode for mode in modes if mode in (*args.modes, "stock")] for modes in CROWDS]
    plans = {modes[0]: (modes, args.counts if modes[0] in args.modes else (1,)) for modes in crowds if modes}
    company.tell_plan(bench, {"sweep": {name: plan_s(args, *plan) for name, plan in plans.items()}})
    for name, plan in plans.items():
        with sharing.noted(bench, name):
            try:
                run_crowd(bench, *plan, table)
            except company.mps.NotThere as error:
                company.leave_out_mps(bench, error)
    text = table.text(args.counts)
    (bench.out / "sweep.txt").write_text(text)
    if not args.json:
        print("\n" + text, flush=True)


if __name__ == "__main__":
    sharing.main("sweep", parse_arguments, run)
