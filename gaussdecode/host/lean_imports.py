"""Keep pandas out of processes that land changes, or serve them."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_PANDAS: Final = "pandas"


class _Without:
    """An import finder, asked first, that hides pandas."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name == _PANDAS:
            raise ModuleNotFoundError(f"{name} is not wanted here", name=name)
        return None


def forgo_pandas() -> None:
    """Make pyarrow treat pandas as not installed.

    If pandas is installed (as for Spark), pyarrow imports it at its first conversion, in the middle of
    the stream: a stall of a second and 50 MB, for nothing that is used here.
    """
    sys.meta_path.insert(0, _Without())
