"""Import the slow parts of pyarrow when they are first used.

A daemon starts without them, and loads them while the server begins the stream. Most commands never do.

    pc      pyarrow.compute
    pq      pyarrow.parquet
"""

import importlib
from typing import Any, Final

_MODULES: Final = {"pc": "pyarrow.compute", "pq": "pyarrow.parquet"}

pc: Any  # Any: pyarrow has no types
pq: Any


def __getattr__(name: str) -> Any:  # Any: as above
    """Import one; from then on it is an attribute like any other."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = importlib.import_module(_MODULES[name])
    return module


def load() -> None:
    """Import all now."""
    for name in _MODULES:
        __getattr__(name)
