"""A program of an engine's user: buffers whose contents it knows, changed by the GPU round by round, and checked.

usage: engine_job.py ENGINE BYTES. Says "ready" with its memory allocated; for each line "round" it adds 1 to every
element and says "done"; at the end of its input it checks all of it and says "ok". 77: the engine is not installed.
"""
import os
import sys

PARTS = 16


def jax_buffers(count):
    import jax
    import jax.numpy as jnp

    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    buffers = [jnp.full((count,), float(i), jnp.float32) for i in range(PARTS)]
    if jax.devices()[0].platform not in ("gpu", "cuda"):
        raise ImportError("no CUDA in this jax")

    def step():
        for i, buffer in enumerate(buffers):
            buffers[i] = add(buffer)
        jax.block_until_ready(buffers)

    def bounds():
        return [(float(buffer.min()), float(buffer.max())) for buffer in buffers]

    return step, bounds


def look_at(tensors, answers):
    for tensor in iter(tensors.get, None):
        answers.put(tensor.min().item())
        del tensor


def send(buffers):
    """All of it to another process, which looks at it, as a trainer gives its weights to a server."""
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    process = context.Process(target=look_at, args=(tensors, answers))
    process.start()
    for i, buffer in enumerate(buffers):
        tensors.put(buffer)
        assert answers.get(timeout=60) == i
    tensors.put(None)
    process.join(60)
    assert process.exitcode == 0, process.exitcode


def torch_buffers(count):
    import torch

    buffers = [torch.full((count,), float(i), device="cuda") for i in range(PARTS)]
    if os.environ.get("ENGINE_TORCH_SENT"):
        send(buffers)

    def step():
        for buffer in buffers:
            buffer.add_(1)
        torch.cuda.synchronize()

    def bounds():
        return [(buffer.min().item(), buffer.max().item()) for buffer in buffers]

    return step, bounds


def cupy_buffers(count):
    import cupy

    if os.environ.get("ENGINE_CUPY_ASYNC"):
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    buffers = [cupy.full((count,), float(i), cupy.float32) for i in range(PARTS)]

    def step():
        for buffer in buffers:
            buffer += 1
        cupy.cuda.Device().synchronize()

    def bounds():
        return [(float(buffer.min()), float(buffer.max())) for buffer in buffers]

    return step, bounds


def numba_buffers(count):
    try:
        from numba import cuda
        import numpy

        @cuda.jit
        def add(x):
            i = cuda.grid(1)
            if i < x.size:
                x[i] += 1
        buffers = [cuda.to_device(numpy.full(count, float(i), numpy.float32)) for i in range(PARTS)]
        add[1, 32](buffers[0][:0])  # compiles it
    except AttributeError as error:  # a numpy that is too new for it
        raise ImportError(str(error)) from None

    def step():
        for buffer in buffers:
            add[(count + 255) // 256, 256](buffer)
        cuda.synchronize()

    def bounds():
        copies = [buffer.copy_to_host() for buffer in buffers]
        return [(copy.min(), copy.max()) for copy in copies]

    return step, bounds


ENGINES = {"jax": jax_buffers, "torch": torch_buffers, "cupy": cupy_buffers, "numba": numba_buffers}


def main():
    try:
        step, bounds = ENGINES[sys.argv[1]](int(sys.argv[2]) // PARTS // 4)
    except ImportError as missing:
        print(missing, flush=True)
        sys.exit(77)
    step()
    rounds = 1
    print("ready", flush=True)
    for _ in sys.stdin:
        step()
        rounds += 1
        print("done", flush=True)
    for i, (least, most) in enumerate(bounds()):
        if not least == most == i + rounds:
            print(f"buffer {i} has {least} to {most}, not {i + rounds}", flush=True)
            sys.exit(1)
    print("ok", flush=True)


if __name__ == "__main__":
    main()
