"""Unified memory that was never touched counts for nothing, as long as NVML tells what is on the card: two programs that
allocate more than the capacity run together until the capacity is in use. Then they take turns."""
import time

import harness

CAPACITY, BYTES, LITTLE = 6 * harness.GIB, 4 * harness.GIB, 256 * harness.MIB
ROUNDS = 300


def gpu_of(daemon):
    return daemon.status()["gpus"][0]


def await_that(test, daemon, holds, what):
    """Seconds until `holds` of the GPU's status."""
    begun_s = time.monotonic()
    while not holds(gpu_of(daemon)):
        test.budget.clip(1)
        harness.check(time.monotonic() < begun_s + harness.PROGRAM_S, f"never seen: {what}")
        time.sleep(0.02)
    return time.monotonic() - begun_s


def start(test, daemon):
    return test.start("toucher", str(BYTES), env=test.env(daemon, extra={"GPUSHARE_MEMORY": "managed"}))


def touch(program, count):
    program.say(str(count))
    program.expect("touched")


def little_is_touched(test):
    with test.daemon(mode="auto", tq_s=0.1, capacity=f"{CAPACITY >> 20}M") as daemon:
        with start(test, daemon) as one:
            one.expect("allocated")
            touch(one, LITTLE)
            first_s = await_that(test, daemon, lambda gpu: gpu.get("occupied_bytes"), "what is on the card")
            with start(test, daemon) as other:
                other.expect("allocated")
                touch(other, LITTLE)
                harness.check(gpu_of(daemon)["together"], "they do not run together")
                for _ in range(ROUNDS):
                    touch(one, LITTLE)
                    touch(other, LITTLE)
                gpu = gpu_of(daemon)
                harness.check(gpu["together"] and gpu["handovers"] == 0, f"{gpu['handovers']} hand-overs")
                beside = gpu["occupied_bytes"]
                touch(one, BYTES)
                touch(other, BYTES)
                turns_s = await_that(test, daemon, lambda gpu: gpu["serialized"], "turns")
                for _ in range(4):
                    touch(one, BYTES)
                    touch(other, BYTES)
                harness.check(gpu_of(daemon)["handovers"] > 0, "no hand-over between them")
                for program in (one, other):
                    program.process.stdin.close()
                    program.finish()
    print(f"  first figure after {first_s:.2f} s; {beside >> 20} MiB of {CAPACITY >> 20} in use by both; "
          f"turns {turns_s:.2f} s after all was touched", flush=True)


harness.main(lambda test: test.case("little_is_touched", lambda: little_is_touched(test)))
