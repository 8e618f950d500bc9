"""What the pages say about the default of an option is what the table of settings says."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from gaussdecode.settings.load import SECTIONS
from gaussdecode.settings.rules import BY_NAME
from gaussdecode.settings.types import Setting

ROOT = Path(__file__).parents[2]
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
_OPTION = r"`((?:[a-z]+\.)+[a-z-]+)`(?:\*\*)?"
_CLAIMS = (
    re.compile(rf"{_OPTION}(?: \w+)?? \((?:default:?) ([^),;]+)"),
    re.compile(rf"{_OPTION}(?: \w+)?? \((?:by default )([^),;]+)"),
    re.compile(rf"{_OPTION} \(([^()]+?) by default\)"),
    re.compile(rf"{_OPTION} (?:is|has) ([^.,;`]+?) by default"),
    re.compile(rf"{_OPTION}[^.]*\. The default is `([^`]+)`"),
)
_COMPUTED = {"landing.min-free-bytes": {"a hundredth"}}
"""Defaults that are computed, in the words of the pages."""


def _defaults() -> dict[str, set[str]]:
    """All spellings of the default of each option, by its dotted name."""
    found = dict(_COMPUTED)
    for section, cls in SECTIONS.items():
        for field in dataclasses.fields(cls):
            setting: Setting = field.metadata["setting"]
            key = f"{section}.{field.name.replace('_', '-')}"
            if field.default is dataclasses.MISSING:
                continue
            shown = setting.type.show(field.default)
            is_none = field.default in (None, (), "")
            found.setdefault(key, {shown, *(("not set", "none", "off") if is_none else ())})
    for name, option in BY_NAME.items():
        values = (option.default, option.default_parallel, *option.own_defaults.values())
        found[f"decoding.{name}"] = {option.type.show(value) for value in values}
    return found


def claims(text: str) -> list[tuple[str, str]]:
    """Options with the default that a text states."""
    flat = " ".join(text.split())
    pairs: list[Any] = [claim for pattern in _CLAIMS for claim in pattern.findall(flat)]
    return [(option, said.strip("` ")) for option, said in pairs]


def is_right(option: str, said: str, defaults: dict[str, set[str]]) -> bool:
    """Whether a text names the default, with or without a space before the unit."""
    return said in defaults[option] or said.replace(" ", "") in defaults[option]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_stated_default_is_the_real_one(page: Path) -> None:
    """By the name of the option, in every page."""
    defaults = _defaults()
    for option, said in claims(page.read_text(encoding="utf-8")):
        if option in defaults:
            assert is_right(option, said, defaults), (option, said, defaults[option])


def test_the_claims_are_found() -> None:
    """In each of the forms that the pages use; a wrong one is noticed."""
    defaults = _defaults()
    for text, right in (
        ("`landing.max-commit-interval` (30 s by default)", True),
        ("`landing.max-commit-interval` (default 60s)", False),
        ("`landing.spool-bytes` (not set by default)", True),
        ("**`landing.spool-bytes`** bounds them. The default is `none`: no bound.", True),
        ("`source.streaming` (default: `on`)", False),
        ("`source.streaming` is off by default", True),
        ("`decoding.decode-style` (default `b`)", True),
    ):
        ((option, said),) = claims(text)
        assert is_right(option, said, defaults) is right, text
