"""A crash or a power cut at every file operation of the landing, and inside its recovery.

One run is recorded; the disk just before each of its operations is then turned into what
each kind of loss leaves (`Loss`). From every distinct disk a new process recovers, and
recovery is recorded and cut off in the same way. At the end everything must have
landed exactly once, verify must be clean, and nothing that was confirmed may be missing.
"""

import dataclasses
import os

import pytest
from kit.landrun import Landing, check_invariants, landed_rows, transaction_lsn
from kit.simdisk import Image, Loss, Moment, SimFiles

from gaussdecode.land.failpoints import Operation

pytestmark = pytest.mark.crash

TRANSACTIONS = 5
DEPTH = int(os.environ.get("GAUSSDECODE_CRASH_DEPTH", "1"))
"""How deep crashes are nested in the recovery from a crash; 2 takes several minutes."""


@dataclasses.dataclass(frozen=True)
class Wreck:
    """A disk as the next process finds it, and what its source believes is safe."""

    image: Image
    confirmed: int
    story: str
    depth: int


def wrecks(moments: list[Moment], story: str, depth: int, *, confirmed: int = 0) -> list[Wreck]:
    """Turn each moment into everything that may be left of it."""
    return [
        Wreck(
            moment.image.after(loss),
            max(moment.note, confirmed),
            f"{story}; before {moment.operation} {moment.path} ({number}): {loss.value}",
            depth,
        )
        for number, moment in enumerate(moments)
        for loss in Loss
    ]


def record_run(*, with_retention: bool) -> list[Moment]:
    """Land everything on an empty disk and keep every moment."""
    files = SimFiles(record=True)
    landing = Landing(
        files,
        transactions=TRANSACTIONS,
        with_retention=with_retention,
        with_prepared=with_retention,
    )
    landing.on_confirm = lambda lsn: setattr(files, "note", lsn)
    landing.run()
    assert not landing.errors
    check_invariants(files, TRANSACTIONS, with_retention=with_retention)
    return files.moments


def recover(wreck: Wreck, judged: set[int], *, with_retention: bool) -> list[Wreck]:
    """Recover a wreck, land the rest, judge; give the wrecks of crashes inside recovery."""
    files = SimFiles(wreck.image.copy(), record=wreck.depth < DEPTH)
    Landing(files, f"again{wreck.depth}", with_retention=with_retention).open().close()
    check_confirmed(files, wreck.confirmed, with_retention=with_retention)
    key = files.image.visible_key() if wreck.depth else files.image.key()
    if key not in judged:
        judged.add(key)
        go_on(files.image, with_retention=with_retention)
    return wrecks(files.moments, wreck.story, wreck.depth + 1, confirmed=wreck.confirmed)


def go_on(image: Image, *, with_retention: bool) -> None:
    """Land the rest on a recovered disk, cutting the power after every confirmation."""
    files = SimFiles(image.copy())
    landing = Landing(
        files, "last", TRANSACTIONS, with_retention=with_retention, with_prepared=with_retention
    )
    cuts: list[tuple[int, Image]] = []
    landing.on_confirm = lambda lsn: cuts.append((lsn, files.image.after(Loss.LOST)))
    landing.run()
    assert not landing.errors, landing.errors
    check_invariants(files, TRANSACTIONS, with_retention=with_retention)
    for lsn, cut in cuts:
        dark = SimFiles(cut)
        Landing(dark, "dark", with_retention=with_retention).open().close()
        check_confirmed(dark, lsn, with_retention=with_retention)


def check_confirmed(files: SimFiles, confirmed: int, *, with_retention: bool) -> None:
    """Fail if a confirmed transaction is not in the log; retention may have taken the oldest."""
    landed = {lsn for lsn, _, _ in landed_rows(files)}
    wanted = {
        transaction_lsn(number)
        for number in range(1, TRANSACTIONS + 1)
        if number != 3 and transaction_lsn(number) <= confirmed
    }
    missing = wanted - landed
    assert not missing or (with_retention and max(missing) < min(landed, default=1 << 62))


@pytest.mark.parametrize("with_retention", [False, True], ids=["plain", "retention"])
def test_every_crash_recovers(*, with_retention: bool) -> None:
    """Whatever operation is the last one, and whatever the disk loses, nothing else is lost."""
    pending = wrecks(record_run(with_retention=with_retention), "first run", 0)
    seen: set[tuple[int, int]] = set()
    judged: set[int] = set()
    while pending:
        wreck = pending.pop()
        key = (wreck.image.key(), wreck.confirmed)
        if key in seen:
            continue
        seen.add(key)
        try:
            inside = recover(wreck, judged, with_retention=with_retention)
        except BaseException as error:
            error.add_note(wreck.story)
            raise
        pending += inside
    assert len(seen) > 300


def test_the_run_has_every_operation() -> None:
    """The recorded runs leave out no kind of operation but the one only recovery needs."""
    moments = record_run(with_retention=True)
    kinds = {moment.operation for moment in moments}
    assert kinds == set(Operation) - {Operation.READ, Operation.REPLACE}
