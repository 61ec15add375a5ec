"""Memory shared between processes by CUDA IPC: by turns, while the rest of their memory leaves the card; and tensors that
PyTorch sends to another process. Handles of memory that can leave are the library's, also on a real driver."""
import harness

PRIVATE = 512 * harness.MIB
SIZES = (64 * 1024, 2 * harness.MIB, 34_000_000, 256 * harness.MIB)
ROOM = (PRIVATE + SIZES[-1]) * 5 // 4 >> 21 << 21
SWAP = {"GPUSHARE_MEMORY": "swap"}
MANAGED = {"GPUSHARE_MEMORY": "managed"}
LARGE = 32 * harness.MIB  # src/memory/swap/lending.h: processes that open so much make way


def ask(program, order):
    """What comes after "done"."""
    program.say(order)
    line = program.lines.get(timeout=program.test.budget.clip(harness.PROGRAM_S))
    harness.check(line and line.startswith("done"), f"{program.label}: {order[:40]}: {line}")
    return line[5:]


def await_ready(*programs):
    for program in programs:
        program.expect("ready")


def end(*programs):
    for program in programs:
        program.process.stdin.close()
        program.finish()


def pinned_of(daemon, program):
    return harness.jobs_of(daemon.status())[program.pid]["pinned_bytes"]


def by_turns(test, daemon, size):
    env = test.env(daemon, extra=SWAP)
    with test.start("sharer", env=env) as maker, test.start("sharer", env=env) as user, \
            test.start("sharer", env=env) as third:
        await_ready(maker, user, third)
        ask(maker, f"alloc 1 {PRIVATE}")
        ask(user, f"alloc 1 {PRIVATE}")
        ask(maker, f"alloc 0 {size}")
        handle = ask(maker, "share 0")
        harness.check(ask(maker, "share 0") == handle, "another handle")
        before = harness.moved_of(daemon.status())
        ask(third, f"open 0 {handle}")  # the driver exports the memory once more
        for i in range(3):
            ask(user, f"open 0 {handle}")
            ask(user, f"verify 0 {3 * i}")
            ask(user, "add 0 1")
            ask(maker, "verify 1 0")
            ask(maker, "add 0 2")
            ask(user, "verify 1 0")
            for program in (maker, user, third):
                ask(program, f"verify 0 {3 * i + 3}")
            ask(user, "close 0")
        harness.check(harness.moved_of(daemon.status()) > before, "nothing has left the card")
        counts = third if size >= LARGE else maker
        counted = pinned_of(daemon, maker)
        ask(maker, "free 0")
        while pinned_of(daemon, counts) < (size if size >= LARGE else counted):
            test.budget.clip(1)
        ask(third, "verify 0 9")
        harness.check(pinned_of(daemon, maker) == counted, "it is open, and does not count")
        ask(third, "close 0")
        while pinned_of(daemon, counts) > (0 if size >= LARGE else counted - size):
            test.budget.clip(1)
        end(maker, user, third)


def leaves(test, daemon, size):
    """What two processes have open leaves for a third one that needs nearly all of the card."""
    env = test.env(daemon, extra=SWAP)
    with test.start("sharer", env=env) as maker, test.start("sharer", env=env) as user, \
            test.start("sharer", env=env) as other:
        await_ready(maker, user, other)
        ask(maker, f"alloc 0 {size}")
        handle = ask(maker, "share 0")
        ask(user, f"open 0 {handle}")
        harness.check(pinned_of(daemon, maker) < LARGE, "it is pinned")
        ask(other, f"alloc 1 {ROOM - size // 4}")
        for i in range(20):
            ask(user, "add 0 1")
            ask(other, "add 1 1")
            ask(user, f"verify 0 {3 * i + 1}")
            ask(maker, "add 0 2")
            ask(other, f"verify 1 {i + 1}")
            ask(maker, f"verify 0 {3 * i + 3}")
        jobs = harness.jobs_of(daemon.status())
        harness.check(jobs[maker.pid]["moved_bytes"] >= 10 * size, "its contents have not left the card")
        harness.check(jobs[user.pid]["left_spared_bytes"] > 0, "it has not made way")
        ask(user, "close 0")
        end(maker, user, other)


def await_pinned(test, daemon, program, expected):
    while pinned_of(daemon, program) != expected:
        test.budget.clip(1)


def let_go(test, daemon, size):
    """What nobody has open any more leaves the card for a job that needs that, and is opened again from there."""
    env = test.env(daemon, extra=SWAP)
    opener = test.env(daemon, extra=MANAGED)  # does not make way
    with test.start("sharer", env=env) as maker, test.start("sharer", env=opener) as user, \
            test.start("sharer", env=env) as third:
        await_ready(maker, user, third)
        ask(maker, f"alloc 0 {size}")
        before = pinned_of(daemon, maker)
        handle = ask(maker, "share 0")
        for i in range(2):
            ask(user, f"open 0 {handle}")
            ask(user, f"verify 0 {2 * i}")
            ask(user, "add 0 1")
            harness.check(pinned_of(daemon, maker) == before + size, "it is open, and does not count")
            ask(user, "close 0")
            await_pinned(test, daemon, maker, before)
            ask(third, f"alloc 1 {ROOM - size // 2}")
            moved = harness.moved_of(daemon.status())
            ask(maker, "add 0 1")
            ask(third, "verify 1 0")
            ask(maker, f"verify 0 {2 * i + 2}")
            harness.check(harness.moved_of(daemon.status()) >= moved + size // 2, "it has not left the card")
            ask(third, "add 1 1")
            ask(third, "free 1")
        end(maker, user, third)


def from_another_gpu(test, daemon, size):
    """The memory of one GPU, opened by a program that computes on the other one, while a third takes turns with the maker."""
    if len(daemon.status()["gpus"]) < 2:
        raise harness.Skip("one GPU")
    env, others = test.env(daemon, extra=SWAP), test.env(daemon, extra={**SWAP, "CUDA_VISIBLE_DEVICES": "1,0"})
    with test.start("sharer", env=env) as maker, test.start("sharer", env=others) as user, \
            test.start("sharer", env=env) as third:
        await_ready(maker, user, third)
        ask(maker, f"alloc 0 {size}")
        ask(maker, f"alloc 1 {PRIVATE}")
        ask(third, f"alloc 1 {PRIVATE}")
        before = pinned_of(daemon, maker)
        handle = ask(maker, "share 0")
        for i in range(3):
            ask(user, f"open 0 {handle}")
            ask(user, f"verify 0 {2 * i}")
            ask(third, "add 1 1")
            ask(user, "add 0 1")
            harness.check(pinned_of(daemon, maker) == before + size, "it is open, and does not count")
            ask(maker, f"verify 0 {2 * i + 1}")
            ask(maker, "add 0 1")
            ask(third, f"verify 1 {i + 1}")
            ask(user, f"verify 0 {2 * i + 2}")
            ask(user, "close 0")
            await_pinned(test, daemon, maker, before)
        end(maker, user, third)


def exports(test, daemon, memory, *how):
    """Memory of cuMemCreate is exported while kernels of another thread use it, or a long kernel runs."""
    with test.start("exporter", *how, env=test.env(daemon, extra={"GPUSHARE_MEMORY": memory})) as program:
        program.finish()


def tensors(test, daemon):
    with test.start("ipc_torch.py", env=test.env(daemon, extra=SWAP)) as program:
        program.expect("nothing is shared")
        before = pinned_of(daemon, program)
        program.say("go on")
        program.expect("all has come back")
        await_pinned(test, daemon, program, before)
        program.say("go on")
        program.finish()


def cases(test):
    with test.daemon(capacity=f"{ROOM >> 20}M") as daemon:
        for size in SIZES:
            test.case(f"by_turns_{size}", lambda: by_turns(test, daemon, size))
        test.case("leaves", lambda: leaves(test, daemon, SIZES[-1]))
        test.case("let_go", lambda: let_go(test, daemon, SIZES[-1]))
        test.case("from_another_gpu", lambda: from_another_gpu(test, daemon, SIZES[-1]))
    with test.daemon(capacity="2G") as daemon:
        test.case("tensors_of_pytorch", lambda: tensors(test, daemon))
        for memory in ("swap", "managed"):
            test.case(f"exports_{memory}", lambda memory=memory: exports(test, daemon, memory))
            test.case(f"exports_at_once_{memory}", lambda memory=memory: exports(test, daemon, memory, "running"))


harness.main(cases)
