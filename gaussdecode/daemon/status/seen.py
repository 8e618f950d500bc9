"""Hold the figures of a daemon that its states are judged by, all of one moment."""

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaussdecode.daemon.status.history import Sample
from gaussdecode.daemon.status.limit import Limit
from gaussdecode.daemon.status.stopped import Stopped
from gaussdecode.metrics.metric import Labels

HOUR: Final = 3600.0
WINDOW_SECONDS: Final = 900.0
PREFIX: Final = "gaussdecode_"
WATCHED: Final = (
    "land_gap_entries_total",
    "land_suspect_entries_total",
    "decode_misfit_values_total",
    "collect_unread_ddl_total",
    "daemon_restarts_total",
    "source_streaming_fallbacks_total",
    "land_durable_lsn",
)
"""Metrics whose last change is remembered."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The data of a daemon at one moment.

    Attributes:
        values: all metrics.
        ages: seconds since each of `WATCHED` changed; one that never has is missing.
        state: state of the daemon.
        reason: why it is not streaming.
        guard_reason: why the server could not be asked, or None.
        spool_reason: the transaction that is larger than the spool may be, in words; None without one.
        faults: why requests for snapshots cannot be used.
        stopped: processes that do not run.
        limit: the stage that limits.
        rates: per second, over `WINDOW_SECONDS` or what there is of them.
        retained_rate: bytes per second by which the WAL grows that the server keeps.
        decoder_count: ``parallel-decode-num``.
        usual_lag_seconds: up to here a lag is usual.
        warn_before: seconds; the guard's own bound.
        config: path of the configuration.
        root: directory of the landing.
        now: seconds since 1970.
        pause: who paused the landing and since when, in words; None without a pause.
        serve_reason: why clients of the landing are not served; None where it is not known or not so.
    """

    values: Mapping[str, Mapping[Labels, float]]
    ages: Mapping[str, float]
    state: str
    reason: str | None
    guard_reason: str | None
    spool_reason: str | None
    faults: tuple[str, ...]
    stopped: tuple[Stopped, ...]
    limit: Limit
    rates: Sample | None
    retained_rate: float
    decoder_count: int
    usual_lag_seconds: float
    warn_before: float | None
    config: Path
    root: Path
    now: float
    pause: str | None = None
    serve_reason: str | None = None

    def total(self, name: str) -> float:
        """Sum over all labels; 0 for what is not shown."""
        return sum(self.values.get(PREFIX + name, {}).values())

    def get(self, name: str) -> float | None:
        """The only series, or None."""
        return self.values.get(PREFIX + name, {}).get(())

    def is_recent(self, name: str, seconds: float = HOUR) -> bool:
        """Whether one of `WATCHED` has changed in so many seconds."""
        return self.ages.get(name, float("inf")) <= seconds

    def command(self, *words: str) -> str:
        """A command of ours to paste."""
        return pasted("gaussdecode", *words)

    @property
    def unit(self) -> str:
        """As systemd knows the daemon."""
        return f"gaussdecode@{self.config.stem}"

    @property
    def log(self) -> str:
        """The command that shows the log of the unit."""
        return pasted("journalctl", "-u", self.unit, "-p", "warning", "-n", "50")


def pasted(*words: str) -> str:
    """A command for a shell, in the marks that set commands apart from the sentence around them."""
    return f"`{shlex.join(words)}`"
