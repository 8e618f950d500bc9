"""Advice: the things an operator should know now, and what to do about each.

Pure: given what the daemon shows of itself. The same conditions as the alert rules in
config/prometheus/, so that a page without Prometheus warns of the same things; each names
the alert whose section of docs/alerts.md says more.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from gaussdecode.daemon.status.limit import Limit, Stage
from gaussdecode.metrics import Labels

_HOUR: Final = 3600.0
_PREFIX: Final = "gaussdecode_"
_FULL: Final = 0.8  # of a queue's entries


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """One warning.

    Attributes:
        is_error: changes are lost or stand still.
        what: is wrong.
        action: what to do.
        section: of docs/alerts.md or docs/procedures.md.
    """

    is_error: bool
    what: str
    action: str
    section: str


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """What the metrics do not say.

    Attributes:
        state: of the daemon.
        reason: why it is not streaming.
        guard_reason: why the server could not be asked, or None.
        usual_lag_seconds: up to here a lag is usual.
        warn_before: seconds; the guard's own bound.
    """

    state: str
    reason: str | None
    guard_reason: str | None
    usual_lag_seconds: float
    warn_before: float | None


class _Reading:
    def __init__(self, values: Mapping[str, Mapping[Labels, float]]) -> None:
        self._values = values

    def total(self, name: str) -> float:
        """Sum over all labels; 0 for what is not shown."""
        return sum(self._values.get(_PREFIX + name, {}).values())

    def get(self, name: str) -> float | None:
        """The only series, or None."""
        return self._values.get(_PREFIX + name, {}).get(())


def span(seconds: float) -> str:
    """Spell a time span for a person: ``3 h 20 min``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min"
    return f"{hours // 24} days"


def find_advice(
    values: Mapping[str, Mapping[Labels, float]], limit: Limit, around: Surroundings
) -> list[Advice]:
    """Name everything that is wrong, the worst first."""
    reading = _Reading(values)
    found = [*_slot(reading, around), *_landing(reading, around), *_stream(reading, limit, around)]
    return sorted(found, key=lambda advice: not advice.is_error)


def _slot(reading: _Reading, around: Surroundings) -> Iterator[Advice]:
    if reading.get("source_slot_lost"):
        yield Advice(
            True,
            "The slot is lost: the server has removed changes that were not yet read.",
            "Run `gaussdecode gaps ROOT` for the positions; `gaussdecode slot accept-gap` goes on after them.",
            "GaussdecodeSlotLost",
        )
    end = reading.get("source_invalidation_seconds")
    if end is not None and end < (around.warn_before or _HOUR):
        yield Advice(
            True,
            f"The slot may be lost in {span(end)}: the server keeps no more WAL for it.",
            "Raise max_slot_wal_keep_size on the server now (reload is enough), then look at "
            "the limit above.",
            "GaussdecodeSlotNearInvalidation",
        )
    if around.guard_reason is not None and around.state == "streaming":
        yield Advice(
            False,
            f"The slot cannot be watched: {around.guard_reason}",
            "Let the role open one more connection (CONNECTION LIMIT, pg_hba.conf).",
            "GaussdecodeGuardBlind",
        )


def _landing(reading: _Reading, around: Surroundings) -> Iterator[Advice]:
    if reading.get("land_disk_full"):
        yield Advice(
            True,
            "The disk of the landing is full: nothing lands, and the slot holds back WAL.",
            "Make room; it goes on by itself.",
            "GaussdecodeDiskFull",
        )
    full = reading.get("land_full_seconds")
    if full is not None and full < (around.warn_before or _HOUR):
        yield Advice(
            False,
            f"The disk of the landing is full in {span(full)} if it goes on like this.",
            "Shorten landing.retention or grow the disk.",
            "GaussdecodeDiskFull",
        )
    if reading.total("land_gap_entries_total"):
        yield Advice(
            True,
            "A gap was recorded: changes are missing.",
            "Run `gaussdecode gaps ROOT` for the positions; readers stop there.",
            "GaussdecodeSlotLost",
        )
    if reading.total("land_suspect_entries_total"):
        yield Advice(
            False,
            "The server said that transactions may be incomplete.",
            "Run `gaussdecode gaps ROOT`, and compare these tables with the source, or have them "
            "read again: landing.on-suspect: snapshot.",
            "GaussdecodeSuspectTransactions",
        )
    stopped = reading.get("land_quarantined_tables")
    if stopped:
        yield Advice(
            True,
            f"{stopped:.0f} tables are in quarantine: nothing of them lands.",
            "Run `gaussdecode gaps ROOT` for the reasons, then take a snapshot of each.",
            "A table is in quarantine",
        )
    misfits = reading.total("decode_misfit_values_total")
    if misfits:
        yield Advice(
            False,
            f"{misfits:.0f} values did not fit their column and stand as text in gd_raw.",
            "Look at gd_raw in the newest files.",
            "GaussdecodeMisfitValues",
        )


def _stream(reading: _Reading, limit: Limit, around: Surroundings) -> Iterator[Advice]:
    if around.state not in {"streaming", "stopping"}:
        yield Advice(
            around.state in {"retrying", "refused"},
            f"Not streaming: {around.reason or around.state}.",
            "If it does not pass by itself, see the log; the slot holds back WAL meanwhile.",
            "GaussdecodeNotStreaming",
        )
    lag = reading.get("source_lag_seconds") or 0.0
    if lag > around.usual_lag_seconds:
        how = "" if limit.setting is None else f" What moves it: {limit.setting}."
        yield Advice(
            False,
            f"The landing is {span(lag)} behind.",
            f"{limit.sentence}{how}" if limit.stage is not Stage.NONE else "See the log.",
            "GaussdecodeLagSeconds",
        )
    restarts = reading.total("daemon_restarts_total")
    if restarts:
        yield Advice(
            False,
            f"The stream broke off {restarts:.0f} times since the start.",
            "See the log for the reasons.",
            "GaussdecodeReconnects",
        )
