"""Which majors of PostgreSQL a test runs with: two of the five by its name, or all.

GAUSSDECODE_MAJORS=all has each test run with every major.
"""

import os
import zlib
from collections.abc import Mapping
from typing import Final

import pytest

from kit.install import MAJORS

_IS_EVERY_MAJOR: Final = os.environ.get("GAUSSDECODE_MAJORS") == "all"


def is_every_major() -> bool:
    """Tell whether each test is to run with every major."""
    return _IS_EVERY_MAJOR


def majors_of(name: str) -> tuple[int, ...]:
    """Choose two for a test by its name, never two neighbours but the oldest and the newest."""
    first = zlib.crc32(name.encode()) % len(MAJORS)
    return tuple(sorted((MAJORS[first], MAJORS[(first + 2) % len(MAJORS)])))


def major_in_turn(item: pytest.Item) -> int | None:
    """Tell the major of a test that takes turns; None where there is none, or the test chose it."""
    calls = getattr(item, "callspec", None)
    major: int | None = None if calls is None else calls.params.get("postgres")
    marks = item.iter_markers("parametrize")
    return None if any("postgres" in str(mark.args[0]) for mark in marks) else major


def has_its_turn(item: pytest.Item) -> bool:
    """Tell whether a test runs with its major."""
    major = major_in_turn(item)
    return _IS_EVERY_MAJOR or major is None or major in majors_of(function_name(item))


def function_name(item: pytest.Item) -> str:
    """Give the name that a test has without its parameters."""
    return str(getattr(item, "originalname", item.name))


def majors_by_test(items: list[pytest.Item]) -> Mapping[str, set[int]]:
    """Give the majors of each test that takes turns."""
    found: dict[str, set[int]] = {}
    for item in items:
        major = major_in_turn(item)
        if major is not None:
            found.setdefault(f"{item.path}::{function_name(item)}", set()).add(major)
    return found
