"""The alert rules as they are installed, and in a hurry.

A real alert waits for minutes and looks back for hours. `hurried` shortens what is written
in the rules themselves (how long, how far back, and bounds in bytes and seconds that no
test machine reaches); names, metrics and shape of each expression stay as they are.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]  # Any: YAML
RULES: Final = Path(__file__).parents[2] / "config" / "prometheus" / "gaussdecode.rules.yml"
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RANGE: Final = re.compile(r"(\[|offset )(\d+[smhd])\b")


def installed() -> list[Json]:
    """All rules of the file."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def seconds(text: str) -> float:
    """Read a duration such as ``15m``."""
    return float(text[:-1]) * _UNITS[text[-1]]


def hurried(
    patience: Callable[[float], float],
    look_back: Callable[[float], float] = lambda wanted: wanted,
    bounds: Mapping[str, Mapping[str, str]] | None = None,
) -> Json:
    """Make a rule file's content.

    Args:
        patience: gives the new length of each ``for:``, in seconds.
        look_back: likewise of each range and offset in an expression.
        bounds: by alert, what is written in place of what in its expression.
    """
    rules = []
    for rule in installed():
        changed = _shortened(rule, patience, look_back)
        for old, new in (bounds or {}).get(rule["alert"], {}).items():
            expression = changed["expr"]
            assert old in expression, f"{rule['alert']}: no {old} in {expression}"
            changed["expr"] = expression.replace(old, new)
        rules.append(changed)
    return _file(rules)


def paced(factor: float, longest: float) -> Json:
    """Make a rule file's content in which long rules are quicker.

    Args:
        factor: for patience and ranges of rules that are more patient than `longest`.
        longest: seconds; rules of up to so much stay as they are.
    """

    def pace(wanted: float) -> float:
        return factor * wanted

    return _file(
        [
            _shortened(rule, pace, pace) if seconds(rule.get("for", "0s")) > longest else rule
            for rule in installed()
        ]
    )


def _shortened(
    rule: Json, patience: Callable[[float], float], look_back: Callable[[float], float]
) -> Json:
    def shorter(match: re.Match[str]) -> str:
        return f"{match[1]}{round(look_back(seconds(match[2])) * 1000)}ms"

    wait = patience(seconds(rule.get("for", "0s")))
    return {
        **rule,
        "expr": _RANGE.sub(shorter, rule["expr"]),
        "for": f"{round(wait * 1000)}ms",
    }


def _file(rules: list[Json]) -> Json:
    return {"groups": [{"name": "gaussdecode", "rules": rules}]}
