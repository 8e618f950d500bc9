"""Format the progress of snapshots from ``/status``."""

from collections.abc import Mapping
from typing import Any, Final

from gaussdecode.settings.types import format_duration

_ENDED: Final = frozenset({"done", "failed", "ignored"})
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")

Record = Mapping[str, Any]  # Any: JSON


def describe(tables: Mapping[str, Record]) -> str:
    """One line: the table that is being read, and the number of waiting ones; empty for none."""
    left = {title: of for title, of in tables.items() if of.get("state") not in _ENDED}
    if not left:
        return ""
    title, record = min(left.items(), key=lambda item: item[1].get("state") == "waiting")
    others = f"; {len(left) - 1} more" if len(left) > 1 else ""
    return f"{title}: {describe_table(record)}{others}"


def describe_table(record: Record) -> str:
    """Progress of one table."""
    parts = [str(record.get("state"))]
    chunks, rows, estimate = (int(record.get(name) or 0) for name in ("chunks", "rows", "estimate"))
    if chunks:
        parts.append(f"{record.get('chunks_done')} of {chunks} pieces")
    if rows:
        parts.append(f"{rows:,} of about {max(rows, estimate):,} rows")
        parts.append(_size(int(record.get("bytes") or 0)))
    left = record.get("seconds_left")
    if isinstance(left, int | float):
        parts.append(f"{format_duration(max(1, round(left)))} left")
    if record.get("reason"):
        parts.append(str(record["reason"]))
    return ", ".join(parts)


def _size(count: float) -> str:
    """Format a number of bytes with three digits."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {_UNITS[-1]}"
