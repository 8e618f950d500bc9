"""Give freed memory that allocators keep back to the kernel.

After catching up that is more than all other memory of a daemon. The daemon may then be idle for days,
beside fifty others. pyarrow's allocator keeps memory by thread: each encoding thread gives back its own.
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
