#!/usr/bin/env python3
"""Small deterministic pieces of work, one per framework and way of using it; each ends in a hash of its results.

Wherever the framework may choose between algorithms, the numbers are small integers, so that every algorithm gives
the same bits. bench/frameworks.py compares the hashes with and without libunified.
"""
import argparse
import hashlib
import os

import gpubench

CHECKS = {}


def check(managed_gib=2, env=None, slow=False):
    """Register a check: the memory that it may ask for, what it needs in the environment, whether to start it early."""
    def register(function):
        CHECKS[function.__name__] = {"run": function, "managed_gib": managed_gib, "env": env or {}, "slow": slow}
        return function
    return register


def torch_alloc_conf(text):
    return {"PYTORCH_CUDA_ALLOC_CONF": text, "PYTORCH_ALLOC_CONF": text}


def digest(*values):
    """Of numpy arrays, tensors, numbers."""
    found = hashlib.sha256()
    for value in values:
        if hasattr(value, "detach"):
            value = value.detach().cpu().contiguous().numpy()
        found.update(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode())
    return found.hexdigest()[:16]


def torch_ready():
    import torch
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.manual_seed(7)
    gpubench.limit_torch(torch, 2)
    return torch


def torch_network(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2),
                         nn.ReLU(), nn.Flatten(), nn.Linear(32 * 15 * 15, 64), nn.GELU(), nn.Linear(64, 10)).cuda()


def torch_training(torch, model, momentum):
    """A training's step, which returns its loss, and its optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    images, labels = torch.randn(32, 3, 32, 32).cuda(), torch.randint(10, (32,)).cuda()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss
    return step, optimizer


def torch_digest(model, loss):
    """Of the weights and the last loss."""
    return digest(loss, *model.parameters())


def torch_train(torch, model):
    step, _ = torch_training(torch, model, momentum=0.9)
    for _ in range(20):
        loss = step()
    return torch_digest(model, loss)


@check()
def torch_eager():
    torch = torch_ready()
    return torch_train(torch, torch_network(torch))


@check(env=torch_alloc_conf("expandable_segments:True"))
def torch_expandable_segments():
    torch = torch_ready()
    return torch_train(torch, torch_network(torch))


@check(env=torch_alloc_conf("backend:cudaMallocAsync"))
def torch_malloc_async():
    torch = torch_ready()
    if torch.cuda.get_allocator_backend() != "cudaMallocAsync":
        raise SystemExit("PyTorch did not take backend:cudaMallocAsync")
    return torch_train(torch, torch_network(torch))


def graphed_training(torch, replays=30):
    model = torch_network(torch)
    step, optimizer = torch_training(torch, model, momentum=0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(replays):
        graph.replay()
    return torch_digest(model, loss)


@check()
def torch_cuda_graph():
    return graphed_training(torch_ready())


@check(env=torch_alloc_conf("backend:cudaMallocAsync"))
def torch_cuda_graph_async():
    return graphed_training(torch_ready())


@check(slow=True)
def torch_compile():
    torch = torch_ready()
    model = torch_network(torch)
    return torch_train(torch, torch.compile(model))


@check(slow=True)
def torch_compile_graphs():
    """CUDA graphs made by torch.compile itself."""
    torch = torch_ready()

    @torch.compile(mode="reduce-overhead")
    def function(x, w):
        return torch.relu(x @ w + 1).sum(dim=1)

    x = torch.randint(-4, 5, (256, 512)).float().cuda()
    w = torch.randint(-4, 5, (512, 128)).float().cuda()
    return digest(*[function(x + i, w).clone() for i in range(6)])


@check()
def torch_dataloader():
    """Workers that fork from a process with a CUDA context, pinned memory, copies on a second stream."""
    torch = torch_ready()
    total = torch.zeros(64, 64, device="cuda")
    data = torch.arange(256 * 64 * 64, dtype=torch.float32).reshape(256, 64, 64) % 17
    loader = torch.utils.data.DataLoader(data, batch_size=16, num_workers=4, pin_memory=True)
    for batch in loader:
        total += batch.to("cuda", non_blocking=True).sum(dim=0)
    return digest(total)


@check()
def torch_threads():
    """Several threads, each with its own stream."""
    import threading
    torch = torch_ready()
    results = [None] * 4

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            value = torch.full((512, 512), float(index + 1), device="cuda")
            for _ in range(50):
                value = (value @ torch.eye(512, device="cuda")) + 1
            results[index] = value.cpu()

    torch.cuda.init()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return digest(*results)


@check()
def triton():
    torch = torch_ready()
    from triton_kernels import scale_add
    count = 1_000_003
    x = (torch.arange(count, device="cuda") % 1009).float()
    y = (torch.arange(count, device="cuda") % 997).float()
    out = torch.empty_like(x)
    scale_add[((count + 1023) // 1024,)](x, y, out, count, BLOCK=1024)
    if not torch.equal(out, x * 3 + y):
        raise SystemExit("Triton's result is wrong")
    return digest(out)


def jax_work():
    import jax
    import jax.numpy as jnp
    import numpy as np

    @jax.jit
    def step(w, x):
        value, slope = jax.value_and_grad(lambda v: jnp.sum(jnp.maximum(x @ v, 0.0)))(w)
        return w + jnp.sign(slope), value

    if jax.devices()[0].platform not in ("gpu", "cuda"):
        raise SystemExit("JAX finds no GPU")
    rng = np.random.default_rng(7)
    w = jnp.asarray(rng.integers(-3, 4, (256, 64)).astype(np.float32))
    x = jnp.asarray(rng.integers(-3, 4, (128, 256)).astype(np.float32))
    values = []
    for _ in range(10):
        w, value = step(w, x)
        values.append(value)
    return digest(*map(np.asarray, [*values, w, jnp.sort(jnp.cumsum(x, axis=1), axis=0)]))


@check(env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".02"}, managed_gib=4)
def jax():
    return jax_work()


@check(env={"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".05"}, managed_gib=9)
def jax_preallocated():
    """As JAX does by default (takes its share of the card at the start), with a smaller share."""
    return jax_work()


def cupy_work(cupy):
    import numpy
    square = cupy.RawKernel(r"""
        extern "C" __global__ void square(const float *x, float *y, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = x[i] * x[i];
        }""", "square")
    x = cupy.arange(100_003, dtype=cupy.float32) % 101
    y = cupy.empty_like(x)
    square((100_003 // 256 + 1,), (256,), (x, y, numpy.int32(x.size)))
    a = (cupy.arange(256 * 256, dtype=cupy.float32) % 7).reshape(256, 256)
    values = [cupy.asnumpy(value) for value in (y, a @ a.T, cupy.cumsum(a, axis=0), cupy.sort(x)[::-1],
                                                (a.astype(cupy.int64) ** 2).sum())]
    with cupy.cuda.Stream(non_blocking=True):
        values.append(cupy.asnumpy(cupy.where(a > 3, a, -a)))
    return digest(*values)


@check()
def cupy():
    import cupy as cp
    cp.get_default_memory_pool().set_limit(size=2 << 30)
    return cupy_work(cp)


@check()
def cupy_async_pool():
    import cupy as cp
    cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    return cupy_work(cp)


@check()
def cupy_graph():
    """CuPy's own capture of a stream."""
    import cupy as cp
    x = cp.zeros(100_000, dtype=cp.int64)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        x *= 3  # kernels are compiled before the capture
        x += 1
        stream.begin_capture()
        x *= 3
        x += 1
        graph = stream.end_capture()
        for _ in range(10):
            graph.launch(stream)
        stream.synchronize()
    return digest(cp.asnumpy(x))


@check()
def numba():
    import numpy

    if not hasattr(numpy, "row_stack"):  # numba-cuda of 2025 still asks for it, NumPy 2.5 has dropped it
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] * 2 + y[i]

    count = 200_003
    x = (numpy.arange(count) % 509).astype(numpy.float32)
    y = (numpy.arange(count) % 251).astype(numpy.float32)
    device_x, device_y, out = cuda.to_device(x), cuda.to_device(y), cuda.device_array(count, dtype=numpy.float32)
    add[(count + 255) // 256, 256](device_x, device_y, out)
    result = out.copy_to_host()
    if not (result == x * 2 + y).all():
        raise SystemExit("Numba's result is wrong")
    return digest(result)


ADD_ONE_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 base, .param .u32 words) {
  .reg .u64 %p<3>; .reg .u32 %r<6>; .reg .pred %q;
  ld.param.u64 %p0, [base]; ld.param.u32 %r0, [words];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %q, %r4, %r0; @%q bra done;
  mul.wide.u32 %p1, %r4, 4; add.u64 %p1, %p1, %p0;
  ld.global.u32 %r5, [%p1]; add.u32 %r5, %r5, 1; st.global.u32 [%p1], %r5;
done: ret; }
"""


@check()
def cuda_python():
    """The driver API through cuda.bindings."""
    import numpy
    from cuda.bindings import driver

    def ok(answer):
        if answer[0] != driver.CUresult.CUDA_SUCCESS:
            raise SystemExit(f"cuda.bindings: {answer[0]}")
        return answer[1] if len(answer) == 2 else answer[1:]

    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(context))
    module = ok(driver.cuModuleLoadData(ADD_ONE_PTX + b"\0"))
    function = ok(driver.cuModuleGetFunction(module, b"add_one"))
    stream = ok(driver.cuStreamCreate(1))
    data = numpy.arange(100_000, dtype=numpy.uint32)
    memory = ok(driver.cuMemAlloc(data.nbytes))
    ok(driver.cuMemcpyHtoDAsync(memory, data.ctypes.data, data.nbytes, stream))
    base, words = numpy.array([int(memory)], dtype=numpy.uint64), numpy.array([data.size], dtype=numpy.uint32)
    arguments = numpy.array([base.ctypes.data, words.ctypes.data], dtype=numpy.uint64)
    for _ in range(100):
        ok(driver.cuLaunchKernel(function, data.size // 256 + 1, 1, 1, 256, 1, 1, 0, stream, arguments.ctypes.data, 0))
    result = numpy.empty_like(data)
    ok(driver.cuMemcpyDtoHAsync(result.ctypes.data, memory, data.nbytes, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemFree(memory))
    if not (result == data + 100).all():
        raise SystemExit("cuda.bindings' result is wrong")
    return digest(result)


@check()
def ctypes_driver():
    """The driver API through ctypes: symbols looked up by a foreign caller."""
    import ctypes
    cuda = ctypes.CDLL("libcuda.so.1")
    size = 1 << 20

    def ok(name, *args):
        result = getattr(cuda, name)(*args)
        if result != 0:
            raise SystemExit(f"{name}: {result}")

    context, memory, text = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.create_string_buffer(size)
    ok("cuInit", 0)
    ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    ok("cuCtxSetCurrent", context)
    ok("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    ok("cuMemsetD8_v2", memory, ctypes.c_ubyte(90), ctypes.c_size_t(size))
    ok("cuMemcpyDtoH_v2", text, memory, ctypes.c_size_t(size))
    ok("cuMemFree_v2", memory)
    if text.raw != b"Z" * size:
        raise SystemExit("the bytes are wrong")
    return hashlib.sha256(text.raw).hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CHECKS)
    parser.add_argument("--times", type=int, default=1, help="the check, one after the other (default: %(default)s)")
    args = parser.parse_args()
    os.environ.update(CHECKS[args.name]["env"])
    texts = [CHECKS[args.name]["run"]() for _ in range(args.times)]
    gpubench.Stages().reach("result", {"hash": "-".join(texts), "preloaded": gpubench.is_preloaded()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
