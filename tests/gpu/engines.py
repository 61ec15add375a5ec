"""Real engines, as their users start them: two programs of one engine, whose memory does not fit together, work by turns;
both compute right, and what the one that is away has on the card is what can't leave. Of engines that are not there,
the patterns in which they allocate: allocators.c."""
import os

import harness

ROUNDS = 4
SCALE = 16 if harness.is_simulated() else 1
CAPACITY, BYTES = 4 * harness.GIB // SCALE, 3 * harness.GIB // 2 // SCALE
ROOM = 256 * harness.MIB // SCALE  # beside the memory of one, once both have started: nearly all of the other must leave
LEAVES = 0.98  # of an engine's memory, at least

ENGINES = {
    "jax": ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    "jax_as_it_comes": ("jax", {}),
    "jax_cuda_async": ("jax", {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    "jax_platform": ("jax", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
    "torch": ("torch", {}),
    "torch_expandable": ("torch", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "torch_async": ("torch", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "torch_sent": ("torch", {"ENGINE_TORCH_SENT": "1"}),
    "cupy": ("cupy", {}),
    "cupy_async": ("cupy", {"ENGINE_CUPY_ASYNC": "1"}),
    "numba": ("numba", {}),
}
PATTERNS = ("arena", "pool", "sleep", "pages", "growing")


def used_by(daemon, program):
    return harness.jobs_of(daemon.status())[program.pid]["used_bytes"]


def await_let_go(test, daemon, program):
    """What another process has had open stays for a moment after it has closed it."""
    while harness.jobs_of(daemon.status())[program.pid]["pinned_bytes"] > (1 - LEAVES) * used_by(daemon, program):
        test.budget.clip(1)


def by_turns(test, daemon, program, engine, settings=None):
    env = test.env(daemon, extra=settings)
    daemon.ctl("set-capacity", f"{CAPACITY >> 20}M")
    with test.start(program, engine, BYTES, env=env) as one, \
            test.start(program, engine, BYTES, env=env) as other:
        one.expect("ready")
        other.expect("ready")
        used = max(used_by(daemon, one), used_by(daemon, other))
        if settings and "ENGINE_TORCH_SENT" in settings:
            await_let_go(test, daemon, one)
            await_let_go(test, daemon, other)
        daemon.ctl("set-capacity", f"{used + ROOM >> 20}M")
        stayed = used
        for _ in range(ROUNDS):
            for active, away in ((one, other), (other, one)):
                active.say("round")
                active.expect("done")
                job = harness.jobs_of(daemon.status())[away.pid]
                stayed = min(stayed, job["resident_bytes"])
        for job in (one, other):
            job.process.stdin.close()
            job.finish()
        left = 1 - max(0, stayed - ROOM) / used
        print(f"  {engine} {settings or ''}: {left:.4f} of {used >> 20} MiB leaves the card", flush=True)
        harness.check(left >= LEAVES, f"only {left:.3f} of it leaves the card")


def cases(test):
    # Not auto: there jobs whose memory pages may run together for a second, until it is seen to be touched.
    with test.daemon(mode="on", tq_s=0.1, capacity=f"{CAPACITY >> 20}M") as daemon:
        for name, (engine, settings) in ENGINES.items():
            if name == "torch_sent" and os.environ.get("GS_TEST_MEMORY") == "managed":
                continue  # unified memory can't be shared
            test.case(name, lambda: by_turns(test, daemon, "engine_job.py", engine, settings))
        for name in PATTERNS:
            test.case(name, lambda: by_turns(test, daemon, "allocators", name))


harness.main(cases, 170)
