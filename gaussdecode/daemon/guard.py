"""Watch the slot and the free disk space, predict when either runs out, and act on it.

A thread with its own connection reads the slot and the free space every `interval`. Its own connection,
because the stream's may be busy or gone exactly then. A straight line through the newest readings predicts
the end. The step is a pure function of the prediction, `GuardConfig` and the step before:

==== ======= ============================================================================
step name    what happens
==== ======= ============================================================================
0    calm    nothing
1    warn    a line in the log, a warning on the status page, the metric rises
2    pause   optional work stops: small files are not merged
3    drop    only where the operator asked for it: what has come is landed, the slot is
             dropped, a gap is written to the commit log, the daemon ends and stays down
==== ======= ============================================================================

A step is left only when the end is half as far again as it was to enter it, so that the
guard does not waver. A look that fails changes nothing: the server may be away for a
reason that the stream reports better. Each change of step is one line in the log.

The guard never drops a slot by a predicted time alone: the server does that itself, with
``max_slot_wal_keep_size``.
"""

import dataclasses
import enum
import threading
import time
from collections import deque
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Final

from gaussdecode.errors import GaussDecodeError, error_text
from gaussdecode.logs import Event, get_logger
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, GuardConfig
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.probe import SlotProbe, SlotView, WorstProbe

_LOOKS: Final = 40  # ten minutes at the default interval
_FEWEST: Final = 4  # looks before a line is drawn: a burst of a second is no trend; arbitrary
_LEAVE: Final = 1.5
_PROBES: Final = {
    SourceKind.POSTGRESQL: "gaussdecode.source.postgresql.probe:PostgresProbe",
    SourceKind.GAUSSDB: "gaussdecode.source.gaussdb.probe:GaussProbe",
}
"""Only the one that is used is imported: a start is no slower for the other."""
_log = get_logger("daemon")


def probe_of(config: Config) -> SlotProbe | None:
    """The probe of the slot; a recording has none."""
    if config.source.kind is SourceKind.CAPTURE:
        return None
    make: Callable[[SourceAddress, str], SlotProbe] = resolve_name(_PROBES[config.source.kind])
    probes = {name: make(source_address(of), of.slot) for name, of in config.members.items()}
    return WorstProbe(probes) if config.is_several else probes[config.slot]


class Step(enum.IntEnum):
    """The guard's steps; see above."""

    CALM = 0
    WARN = 1
    PAUSE = 2
    DROP = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """One look at everything.

    Attributes:
        at: monotonic seconds.
        free_bytes: bytes on the file system of the landing.
        slot: None where there is no server, or it did not answer.
        kept_bytes: part of the free space that the landing keeps free.
    """

    at: float
    free_bytes: float
    slot: SlotView | None
    kept_bytes: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Outlook:
    """The prediction from the newest readings.

    Attributes:
        look: the newest.
        invalidation_seconds: until the slot can be lost; None when it is not coming nearer.
        full_seconds: until the landing can take no more of the disk; likewise.
        retained_rate: bytes per second by which the retained WAL grows.
        spilled_rate: bytes per second that the server spills while decoding.
        is_lost: the slot was there and is lost.
    """

    look: Look
    invalidation_seconds: float | None = None
    full_seconds: float | None = None
    retained_rate: float = 0.0
    spilled_rate: float = 0.0
    is_lost: bool = False

    @property
    def nearest(self) -> float | None:
        """Seconds to the nearer of the two ends; None when neither comes."""
        ends = [end for end in (self.invalidation_seconds, self.full_seconds) if end is not None]
        return min(ends, default=None)


def slope(points: list[tuple[float, float]]) -> float:
    """Least-squares slope of values over time; 0 for fewer than two points in time."""
    if len(points) < 2:
        return 0.0
    mean_at = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    if not spread:
        return 0.0
    return sum((at - mean_at) * (value - mean) for at, value in points) / spread


def seconds_to_zero(points: list[tuple[float, float]]) -> float | None:
    """When a shrinking quantity reaches 0, from its newest value; None while it does not shrink."""
    if not points:
        return None
    newest = points[-1][1]
    if newest <= 0:
        return 0.0
    rate = slope(points) if len(points) >= _FEWEST else 0.0
    return newest / -rate if rate < 0 else None


def outlook(looks: list[Look]) -> Outlook:
    """Extrapolate.

    Args:
        looks: oldest first, at least one.
    """
    views = [(look.at, look.slot) for look in looks if look.slot is not None]
    safe = [(at, float(v.safe_bytes)) for at, v in views if v.safe_bytes is not None]
    retained = [(at, float(v.retained_bytes)) for at, v in views if v.retained_bytes is not None]
    spilled = [(at, float(v.spilled_bytes)) for at, v in views if v.spilled_bytes is not None]
    newest = views[-1][1] if views else None
    return Outlook(
        looks[-1],
        seconds_to_zero(safe) if newest is not None and _can_end(newest) else None,
        seconds_to_zero([(look.at, look.free_bytes - look.kept_bytes) for look in looks]),
        slope(retained),
        max(0.0, slope(spilled)),
        newest is not None and newest.is_lost,
    )


def _can_end(view: SlotView) -> bool:
    """Whether the slot's allowance shrinks because of us, or is a third gone.

    A slot that keeps up holds WAL back until the server's next snapshot of running
    transactions lets it go: between two of them the allowance always seems to shrink.
    """
    if view.safe_bytes is None or view.retained_bytes is None:
        return False
    unconfirmed = view.wal_end - (view.confirmed_lsn or 0)
    return 2 * unconfirmed > view.retained_bytes or view.safe_bytes < 2 * view.retained_bytes


def next_step(view: Outlook, settings: GuardConfig, now: Step) -> Step:
    """Choose the next step."""
    retained = None if view.look.slot is None else view.look.slot.retained_bytes
    above = settings.drop_slot_above
    if now is Step.DROP or (above is not None and retained is not None and retained > above):
        return Step.DROP
    for step, before in ((Step.PAUSE, settings.pause_before), (Step.WARN, settings.warn_before)):
        limit = None if before is None else before * (_LEAVE if now >= step else 1.0)
        if limit is not None and view.nearest is not None and view.nearest < limit:
            return step
    return Step.CALM


class Guard:
    """Looks, extrapolates, climbs the ladder.

    Args:
        settings: when to do what.
        probe: probe of the slot; None where there is no server.
        measure: free bytes of the landing's file system, and those of them that are left free.
        on_look: called after each look, in the guard's thread.

    Attributes:
        outlook: newest, or None before the first look.
        step: step of the ladder.
        failures: looks at the server that failed, and `reason` of the last one, or None
            when the last one succeeded.
        login_refusal: why the server lets nobody in, while that is waited for: it is not asked
            then. Set by the supervisor.
    """

    def __init__(
        self,
        settings: GuardConfig,
        probe: SlotProbe | None,
        measure: Callable[[], tuple[float, float]],
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._probe = probe
        self._measure = measure
        self._on_look = on_look
        self._looks: deque[Look] = deque(maxlen=_LOOKS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard", daemon=True)
        self.outlook: Outlook | None = None
        self.step = Step.CALM
        self.failures = 0
        self.reason: str | None = None
        self.login_refusal: str | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop; does not wait for a server that does not answer."""
        self._stop.set()

    @property
    def wants_drop(self) -> bool:
        """The operator's bound is passed: the slot is to be dropped."""
        return self.step is Step.DROP

    @property
    def is_paused(self) -> bool:
        """Optional work is to wait."""
        return self.step >= Step.PAUSE

    def _run(self) -> None:
        try:
            while True:
                self.look(time.monotonic())
                self._on_look()
                if self._stop.wait(self._settings.interval):
                    return
        finally:
            if self._probe is not None:
                self._probe.close()

    def look(self, now: float) -> None:
        """Look once, at this monotonic time."""
        slot = None
        if self._probe is not None and self.login_refusal is not None:
            self.reason = self.login_refusal  # another attempt may lock the account
        elif self._probe is not None:
            try:
                slot = self._probe.look()
                self.reason = None
            except GaussDecodeError as error:
                self.failures += 1
                if self.reason is None:
                    _log.warning(Event.GUARD_BLIND, reason=error_text(error))
                self.reason = error_text(error)
        free, kept = self._measure()
        self._looks.append(Look(now, free, slot, kept))
        view = outlook(list(self._looks))
        self.outlook = view
        step = next_step(view, self._settings, self.step)
        if step is not self.step:
            self._record(step, view)
            self.step = step

    def _record(self, step: Step, view: Outlook) -> None:
        """One line per change of step, with the figures that led to it."""
        slot = view.look.slot
        log = _log.warning if step > self.step else _log.info
        log(
            Event.GUARD_STEP,
            step=step.name.lower(),
            before=self.step.name.lower(),
            invalidation_seconds=_rounded(view.invalidation_seconds),
            full_seconds=_rounded(view.full_seconds),
            retained_bytes=None if slot is None else slot.retained_bytes,
            safe_bytes=None if slot is None else slot.safe_bytes,
            free_bytes=view.look.free_bytes,
        )


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
