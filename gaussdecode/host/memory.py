"""Memory that allocators keep after it was freed, given back to the kernel.

After catching up that is more than all else that a daemon holds, and it may then have nothing to do
for days, beside fifty others. pyarrow's allocator keeps it by thread: each that encodes gives back its own.
"""

import ctypes
from typing import Final

import pyarrow as pa

REST_SECONDS: Final = 5.0  # without work, after which it is given back; arbitrary
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's


def give_back() -> None:
    """Have the allocators return what this thread, or nobody, needs."""
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
