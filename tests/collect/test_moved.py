"""What is moved from stage to stage is what a copy would have been."""

import threading
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from kit import wire

from gaussdecode._wire import BatchDecoder
from gaussdecode.collect._assembler import PUMP_END, Assembler
from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect.arrow import DDL, MESSAGES, TRANSACTIONS, system_rows, table_rows
from gaussdecode.collect.spool import Spool
from gaussdecode.collect.tables import Landed, Tables
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.types import ColumnType, Kind
from gaussdecode.source._dispatch import Dispatcher

MIB: Final = 1 << 20
LIST: Final = ColumnType(Kind.LIST, element=Kind.STRING)
RELATION: Final = wire.relation([Kind.INT32, Kind.STRING, Kind.BINARY, LIST, Kind.STRING], (0, 1))
HUGE: Final = "".join(map(str, range(10**6)))[: 5 * MIB]
OLD: Final = HUGE[::-1]
UNCHANGED: Final = wire.UNCHANGED
ROWS: Final[dict[str, bytes]] = {
    "text": wire.insert(["1", HUGE, None, None, OLD]),
    "letters": wire.insert(["1", "ä" * (3 * MIB), None, None, None]),
    "no text": wire.insert(["1", HUGE.encode() + b"\xff", None, None, None]),
    "bytes": wire.insert(["1", "a", "\\x" + "0a" * (3 * MIB), None, None]),
    "list": wire.insert(["1", "a", None, "{" + HUGE + ",NULL,b}", None]),
    "wide list": wire.insert(["1", "a", None, "{{" + HUGE + "}}", None]),
    "full": wire.update(
        ["1", "a", None, None, UNCHANGED], old=["1", HUGE, None, None, OLD]
    ),
    "full and new": wire.update(["1", OLD, None, None, HUGE], old=["1", HUGE, None, None, OLD]),
    "same key": wire.update(["1", HUGE, None, None, "b"], key=["1", HUGE, None, None, None]),
    "other key": wire.update(["2", OLD, None, None, "b"], key=["1", HUGE, None, None, None]),
    "delete": wire.delete(["1", HUGE, None, None, None]),
    "message": wire.logical(content=HUGE.encode()),
}  # fmt: skip


class Owner:
    """Plays the collector for one table."""

    def __init__(self, directory: Path, memory_limit: int) -> None:
        self.tables = Tables(self, lambda _, name: name, list, lambda _: None)
        self.held = [self._new(self.tables.system(name)) for name in (TRANSACTIONS, MESSAGES, DDL)]
        self.assembler = Assembler(
            self,  # type: ignore[arg-type]  # what it does not have is not called
            self,  # type: ignore[arg-type]  # likewise
            self.held[0], self.held[1], self.held[2], Spool(directory, lambda _, attempt: attempt()),
            resume_lsn=0, memory_limit=memory_limit, row_limit=1000, byte_limit=1 << 30,
            budget=1 << 30,
        )  # fmt: skip

    def schema_id_for(self, table: str, _: dict[str, Any]) -> tuple[str, bool]:  # Any: JSON
        """One schema per table."""
        return table, True

    def _new(self, landed: Landed) -> Accumulator[Landed]:
        return Accumulator(landed, *landed.kinds())

    def register(self, _: int, __: bytes) -> Accumulator[Landed]:
        """The only table."""
        self.held.append(self._new(self.tables.find(RELATION)))
        return self.held[-1]

    def change_over(self, accumulator: Accumulator[Landed]) -> None:
        """It has no other schema."""
        accumulator.is_current = True

    def rows(self) -> list[pa.Table]:
        """Everything that was released."""
        found = []
        for held in self.held:
            landed, taken = held.table, held.take()
            if landed.relation is None:
                rows = system_rows(landed.directory, taken, 7, with_xid=True, with_time=True)
            else:
                rows = table_rows(
                    taken, landed.schema, landed.columns, landed.names, 7,
                    with_xid=True, with_time=True,
                )  # fmt: skip
            rows.validate(full=True)
            found.append(rows)
        return found


def copied(messages: list[bytes], owner: Owner) -> list[pa.Table]:
    """What lands when every stage has its input for itself."""
    raw = wire.raw_batch(messages, [RELATION])
    owner.assembler.absorb_bytes(BatchDecoder().decode_bytes(raw))
    return owner.rows()


def moved(messages: list[bytes], owner: Owner, batch_bytes: int) -> list[pa.Table]:
    """What lands when it comes through a ring, each stage giving back what it passed on."""
    ring = Ring.create(MIB, 128)
    dispatcher = Dispatcher([ring], batch_bytes, BatchDecoder())

    def store() -> None:
        while not dispatcher.try_flush():
            time.sleep(0.001)

    def send() -> None:
        dispatcher.add_relation(wire.raw_relation(RELATION))
        for message in messages:
            dispatcher.add_message(message)
            if batch_bytes < len(message):
                dispatcher.close_batch()
            store()
        dispatcher.begin_end()
        store()

    sender = threading.Thread(target=send)
    sender.start()
    while owner.assembler.pump([ring], 1.0) != PUMP_END:
        pass
    sender.join()
    ring.close()
    return owner.rows()


@pytest.mark.parametrize(
    ("batch_bytes", "memory_limit"),
    [(64 * MIB, 64 * MIB), (MIB, 64 * MIB), (MIB, 0)],
    ids=["released at once", "kept until the commit", "spooled"],
)
@pytest.mark.parametrize("name", ROWS)
def test_moved_rows_are_whole(
    name: str, batch_bytes: int, memory_limit: int, tmp_path: Path
) -> None:
    """However a transaction with a huge row is cut up, and wherever it waits."""
    small = wire.insert(["3", "small", None, None, "z"])
    messages = [wire.begin(), small, ROWS[name], small, wire.commit()]
    wanted = copied(messages, Owner(tmp_path, 64 * MIB))
    assert moved(messages, Owner(tmp_path, memory_limit), batch_bytes) == wanted
    assert sum(rows.num_rows for rows in wanted) == 4
