"""Chooses the tests of `make test-unit`: they use no server, no Java, no browser and no network.

The choice follows the markers, and the code of a test and of its fixtures. A test that starts such
a program in another way fails under `--unit`: it needs a marker.
"""

import inspect
import os
import re
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

_MARKERS: Final = ("integration", "spark", "crash", "machine", "slow")
_HEAVY: Final = frozenset(
    {
        "kit.chromium.Chromium",
        "kit.install.find_tool",
        "kit.lakes.small_spark",
        "kit.machine.Machine",
        "kit.postgres.Postgres",
        "kit.prometheus.Prometheus",
        "kit.s3.S3",
        "gaussdecode.demo.java.provide_java",
        "promtool",
        "systemctl",
        "systemd-analyze",
    }
)
"""Classes and functions that start a server, Java or a browser; programs that `make setup` does not install."""
_PROGRAMS: Final = re.compile(
    r"postgres|initdb|pg_\w+|psql|java|chromium|unshare|prom\w+|systemd(-analyze)?"
)
_LOCAL: Final = ("127.", "::1", "localhost")


def is_unit(item: pytest.Item) -> bool:
    """Tell whether a test belongs to `make test-unit`."""
    if any(map(item.get_closest_marker, _MARKERS)):
        return False
    if not isinstance(item, pytest.Function):
        return True
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [item.function, *(each[-1].func for each in fixtures)]
    return not any(is_heavy(function) for function in functions)


def is_heavy(function: Callable[..., object]) -> bool:
    """Tell whether a function uses a server, Java, a browser or a program that may be missing."""
    return not _HEAVY.isdisjoint(_used(function))


_known: dict[CodeType, set[str]] = {}


def _used(function: Callable[..., object]) -> set[str]:
    """Tell what a function names, and what the functions of its module do that it names.

    Returns:
        Texts, and classes and functions of other modules by their full names.
    """
    plain = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(plain, FunctionType):
        return set()
    if plain.__code__ in _known:
        return _known[plain.__code__]
    found = _known[plain.__code__] = set()  # ends the search where functions call each other
    names, texts = _named(plain.__code__)
    found |= texts
    for name in names:
        value = plain.__globals__.get(name)
        if isinstance(value, FunctionType) and value.__module__ == plain.__module__:
            found |= _used(value)
        elif isinstance(value, FunctionType | type):
            found.add(f"{value.__module__}.{value.__qualname__}")
    return found


def _named(code: CodeType) -> tuple[set[str], set[str]]:
    """Give the names and the texts in code."""
    names, texts = set(code.co_names), set()
    constants = list(code.co_consts)
    while constants:
        constant = constants.pop()
        if isinstance(constant, CodeType):
            inner = _named(constant)
            names |= inner[0]
            texts |= inner[1]
        elif isinstance(constant, tuple):
            constants += constant
        elif isinstance(constant, str):
            texts.add(constant)
    return names, texts


def refuse(event: str, given: tuple[Any, ...]) -> None:
    """Fail the test that starts a server or connects to another machine; an audit hook.

    Args:
        event: of Python.
        given: its arguments, as Python documents them.
    """
    if event == "subprocess.Popen":
        program = os.path.basename(os.fsdecode(given[0] or given[1][0]))
        if _PROGRAMS.fullmatch(program):
            pytest.fail(f"a unit test started {program}: mark it, for example as integration")
    elif event == "socket.connect" and isinstance(given[1], tuple):
        host = str(given[1][0])
        if not host.startswith(_LOCAL):
            pytest.fail(f"a unit test connected to {host}: mark it, for example as integration")
