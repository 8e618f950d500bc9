"""Running a command on a real database, in this process."""

from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    """How a command ended and what it said."""

    status: int
    out: str
    err: str


Run = Callable[..., Result]
"""Takes the arguments of the command line."""

Configure = Callable[..., str]
"""Takes a database and more lines; gives the path of a configuration."""
