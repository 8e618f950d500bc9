"""What ``pg_logical_get_area_changes`` of the simulated server reads, as the source of a real one has it.

Every change between two positions, record by record, whoever's it is, by the files that tables have
now; with what the server drops after DDL, and with the commit records. Ten WAL files at most, and nothing
where the WAL before `Behaviour.area_from` is gone. What has not committed yet is not in the store, and
so not here.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kit.gaussdecoder import Decoder, WhiteList
from kit.gaussmessage import lsn_text
from kit.gausswire import json_row

if TYPE_CHECKING:
    from kit.gaussserver import GaussServer

MOST_BYTES: Final = 10 * (16 << 20)
Line = tuple[str, int, str]
"""Location, transaction, text."""


def area(server: "GaussServer", first: int, upto: int) -> list[Line]:
    """The lines of a stretch, in the order of the WAL."""
    if first < server.behaviour.area_from:
        return []
    upto = min(upto, first + MOST_BYTES)
    lines = (of for of in _lines(server, first, upto) if first <= of[0] < upto)
    return [line for _, line in sorted(lines, key=lambda of: of[0])]


def _lines(server: "GaussServer", first: int, upto: int) -> Iterator[tuple[int, Line]]:
    """Those of all transactions that have some in the stretch, and where they stand."""
    store = server.store
    decoder = Decoder(server.printer(is_utc=True), WhiteList(), is_parallel=False)
    with store.changed:
        committed = [of for of in store.committed if of.first_lsn < upto and of.commit_lsn >= first]
    for of in committed:
        for change in of.changes:
            if change.op != "T" and not of.is_elsewhere and store.is_in_file(change):
                text = json_row(decoder.row(change)).decode(server.codec)
                yield change.lsn, (lsn_text(change.lsn), 0, text)
        for xid in (*of.subxids, of.xid):
            text = f"COMMIT {xid} CSN {of.csn}"
            yield of.commit_lsn, (lsn_text(of.end_lsn), xid, text)
