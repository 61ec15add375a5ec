"""The Triton kernel of framework_checks.py; Triton wants its names at the top of a module."""
import triton
import triton.language as tl


@triton.jit
def scale_add(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """out = 3 x + y"""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, x * 3 + y, mask=mask)
