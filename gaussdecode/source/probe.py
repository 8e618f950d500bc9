"""Describe our slot while another connection streams from it; each product has a probe."""

import dataclasses
from collections.abc import Mapping
from typing import Final, Protocol

from gaussdecode.errors import GaussDecodeError

_WORSE: Final = 1.5  # arbitrary


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """One reading of the slot; a value that the server does not report is None.

    Attributes:
        wal_end: end of the server's WAL.
        retained_bytes: WAL between the slot's restart position and the end; None when the
            slot is gone or lost.
        confirmed_lsn: confirmed position on the server.
        wal_status: ``reserved``, ``extended``, ``unreserved``, ``lost``; None without a slot.
        safe_bytes: WAL that may still be written before the slot can be lost; None without
            a limit.
        is_active: somebody streams.
        wait_event_type: wait event type of the server's sending process.
        wait_event: event that this process waits for; None while it computes.
        sender_state: ``catchup`` or ``streaming``.
        sent_lsn: how far it has sent.
        spilled_bytes: written to the server's disk while decoding, since its statistics began.
        spilled_transactions: transactions that the server spilled to disk.
        decoded_bytes: sent to the plug-in, likewise.
        read_queues: read queues of the server's own parallel decoding, items that wait for each decoder;
            empty where it does not decode in parallel or does not tell.
        decode_queues: the same for the queues of its sender.
        catalog_xmin_age: transactions since the oldest whose catalogue rows the slot keeps; None
            without a slot, and on GaussDB, whose transaction numbers have 64 bits.
        frozen_age: transactions since the oldest that any database of the server has not frozen.
        transaction_seconds: age of the oldest transaction that has written; None for none, and
            where the role may not see it.
        prepared_seconds: age of the oldest prepared one.
        is_standby: the server recovers; None where it was not asked.
        source: name of the source that was looked at, where there are several.
        wal_ends: there, the end of the WAL of each that answered.
    """

    wal_end: int
    retained_bytes: int | None = None
    confirmed_lsn: int | None = None
    wal_status: str | None = None
    safe_bytes: int | None = None
    is_active: bool | None = None
    wait_event_type: str | None = None
    wait_event: str | None = None
    sender_state: str | None = None
    sent_lsn: int | None = None
    spilled_bytes: int | None = None
    spilled_transactions: int | None = None
    decoded_bytes: int | None = None
    read_queues: tuple[int, ...] = ()
    decode_queues: tuple[int, ...] = ()
    catalog_xmin_age: int | None = None
    frozen_age: int | None = None
    transaction_seconds: float | None = None
    prepared_seconds: float | None = None
    is_standby: bool | None = None
    source: str | None = None
    wal_ends: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def held_by(self) -> str | None:
        """The reason why the server keeps WAL of the slot; None where it is not known.

        ``landing``: what is not yet confirmed is most of it. Else ``prepared`` or ``transaction``,
        the older one, or ``checkpoint``: the server's next record of running transactions lets go.
        """
        if self.retained_bytes is None or self.confirmed_lsn is None:
            return None
        if 2 * (self.wal_end - self.confirmed_lsn) > self.retained_bytes:
            return "landing"
        ages = {"prepared": self.prepared_seconds, "transaction": self.transaction_seconds}
        known = {name: age for name, age in ages.items() if age is not None}
        return max(known, key=known.__getitem__) if known else "checkpoint"

    @property
    def reread_bytes(self) -> int | None:
        """What a new stream has the server read of its log before what is not confirmed; None not known."""
        if self.retained_bytes is None or self.confirmed_lsn is None:
            return None
        return max(0, self.retained_bytes - (self.wal_end - self.confirmed_lsn))

    @property
    def is_lost(self) -> bool:
        """The slot is gone, or WAL that it needs is."""
        return self.wal_status in {None, "lost"}


class WorstProbe:
    """Looks at the slots of several sources, and shows the one that is nearest to being lost.

    A slot that is lost comes before all; then the least allowance, then the most WAL held. Another
    one is shown only when it is worse by half: what is extrapolated is of one slot.

    Args:
        probes: probes by source.
    """

    def __init__(self, probes: Mapping[str, "SlotProbe"]) -> None:
        self._probes = probes
        self._shown = ""

    def look(self) -> SlotView:
        """See `SlotProbe`; what can be asked is shown, for it holds WAL while another is away."""
        views = {}
        failure: GaussDecodeError | None = None
        for name, probe in self._probes.items():
            try:
                views[name] = dataclasses.replace(probe.look(), source=name)
            except GaussDecodeError as error:
                error.name_source(name)
                failure = failure or error
        if failure is not None and not views:
            raise failure
        worst = max(views, key=lambda name: _badness(views[name]))
        shown = views.get(self._shown)
        if shown is None or _badness(views[worst]) > _WORSE * _badness(shown):
            self._shown = worst
        ends = {name: view.wal_end for name, view in views.items()}
        return dataclasses.replace(views[self._shown], wal_ends=ends)

    def close(self) -> None:
        """See `SlotProbe`."""
        for probe in self._probes.values():
            probe.close()


def _badness(view: SlotView) -> float:
    """How near a slot is to being lost; only the order counts."""
    if view.is_lost:
        return float("inf")
    held = float(view.retained_bytes or 0)
    return held if view.safe_bytes is None else held + 2.0**64 / (view.safe_bytes + 1)


class SlotProbe(Protocol):
    """Looks at a slot."""

    def look(self) -> SlotView:
        """Ask once.

        Raises:
            GaussDecodeError: the server cannot be asked now.
        """

    def close(self) -> None:
        """Give the connection back."""
