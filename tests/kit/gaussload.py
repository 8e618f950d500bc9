"""Load for benchmarks: the product's standard scenario, prepared once and sent again and again.

One cycle of transactions (INSERT, style b, sending-batch 1, messages of a little over 1 MiB)
is rendered as the server renders it. Each time it is sent its positions, CSNs and xids are
moved on in place, so that the stream is a correct one of any length and costs the sender
little more than the send itself.

As a program it runs a server until its standard input ends::

    PYTHONPATH=tests python -m kit.gaussload --columns 20 --row-bytes 500 --bytes 4000000000

and prints one JSON line: ports, slot, user, and what will be sent.
"""

import argparse
import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from kit.gaussdecoder import Decoder, WhiteList
from kit.gaussprofile import V6_0_0, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store, Table
from kit.gausstypes import Printer
from kit.gausswire import ParallelStream, Wanted, copy_data
from kit.postgres import Postgres, make_certificates
from kit.uneven import uneven

MAX_TRANSACTION_ROWS: Final = 4095  # more would be spilled to disk by the server
_CYCLE_BYTES: Final = 24 << 20
_GAP_BYTES: Final = 4096  # more than the record of a new slot
_KINDS: Final = ("int4", "varchar(200)", "numeric(12,3)", "timestamp", "text", "int8")
_MADE: Final[Mapping[str, Callable[[Random], str]]] = {
    "integer": lambda rng: str(rng.randint(-(2**31), 2**31 - 1)),
    "bigint": lambda rng: str(rng.randint(0, 2**62)),
    "numeric": lambda rng: f"{rng.randint(-(10**11), 10**11) / 1000:.3f}",
    "timestamp without time zone": lambda rng: (
        f"2024-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {rng.randint(0, 23):02}:"
        f"{rng.randint(0, 59):02}:{rng.randint(0, 59):02}.{rng.randint(1, 999999):06}".rstrip("0")
    ),
}


def columns_of(count: int) -> dict[str, str]:
    """Columns of the standard scenario: a key, then numbers, texts and times in turn."""
    return {"id": "int8", **{f"c{i}": _KINDS[i % len(_KINDS)] for i in range(1, count)}}


def row_of(rng: Random, table: Table, number: int, row_bytes: int) -> dict[str, str | None]:
    """A row of about so many bytes, of uneven values."""
    values: dict[str, str | None] = {"id": str(number)}
    texts = []
    for column in table.columns[1:]:
        if column.type_name in _MADE:
            values[column.name] = uneven(rng, _MADE[column.type_name], is_text=False)
        else:
            texts.append(column.name)
    held = sum(len(value or "") for value in values.values())
    each = min(max((row_bytes - held) // len(texts), 1), 200)
    for name in texts:
        made = uneven(rng, lambda rng: f"{rng.getrandbits(800):0200x}"[:each], is_text=True)
        values[name] = None if made is None else made[:200]
    return values


class Load:
    """A stream of insert transactions into one table.

    Args:
        columns: of the table, the key included; 10 to 100 in the standard scenario.
        row_bytes: of a row's values; 100 to 1000 in the standard scenario.
        transaction_rows: rows of a transaction.
        total_bytes: the stream ends after the cycle that reaches so many; 0 for never.
        seed: of the values.
        profile: version of the server.
        cycle_bytes: at least so many are prepared.

    Attributes:
        store: holds the table, for the catalogue.
        cycle_rows: rows of one cycle.
        cycle_transactions: of one cycle.
        cycle_size: bytes of one cycle on the wire.
        sent_cycles: how many went out.
        wal_end: end of what was sent so far.
    """

    def __init__(
        self,
        columns: int = 20,
        row_bytes: int = 500,
        transaction_rows: int = 1000,
        total_bytes: int = 0,
        seed: int = 1,
        profile: Profile = V6_0_0,
        cycle_bytes: int = _CYCLE_BYTES,
    ) -> None:
        assert 1 <= transaction_rows <= MAX_TRANSACTION_ROWS
        self.store = Store()
        self.table = self.store.create_table("public", "load", columns_of(columns), key=["id"])
        self._total = total_bytes
        self._cycle_bytes = cycle_bytes
        self._rng = Random(seed)
        self._base = self.store.wal_end
        self._data = self._render(profile, row_bytes, transaction_rows)
        self.cycle_size = len(self._data)
        # What was rendered lies before every slot; the first cycle that is sent lies behind.
        self._span = self.store.wal_end - self._base + _GAP_BYTES
        self._find_fields()
        self.sent_cycles = 0

    @property
    def wal_end(self) -> int:
        """End of what was sent so far."""
        return (
            self._base
            + self._span * (self.sent_cycles + 1)
            - (_GAP_BYTES if self.sent_cycles else 0)
        )

    @property
    def cycles(self) -> int:
        """How many cycles will be sent; 0 for without end."""
        return -(-self._total // self.cycle_size) if self._total else 0

    def _render(self, profile: Profile, row_bytes: int, transaction_rows: int) -> bytearray:
        """Render one cycle as the server does."""
        stream = ParallelStream("b", 1, Wanted(skip_empty=True), profile)
        decoder = Decoder(Printer(profile), WhiteList(), is_parallel=True)
        out = bytearray()
        self.cycle_rows = self.cycle_transactions = 0
        while len(out) < self._cycle_bytes:
            transaction = self.store.begin()
            for _ in range(transaction_rows):
                self.cycle_rows += 1
                transaction.insert(
                    self.table, row_of(self._rng, self.table, self.cycle_rows, row_bytes)
                )
            self.cycle_transactions += 1
            for body in stream.transaction(decoder.transaction(transaction.commit())):
                out += copy_data(body)
        last = stream.buffer.flush()
        if last is not None:
            out += copy_data(last)
        self.store.committed.clear()
        return out

    def _find_fields(self) -> None:
        """Find what must be moved on: positions, CSNs, xids."""
        lsns: list[int] = []
        numbers: list[int] = []
        data, at = self._data, 0
        while at < len(data):
            (size,) = struct.unpack_from(">I", data, at + 1)
            end, at = at + size + 1, at + 5
            lsns += [at + 1, at + 9]
            at += 25
            while at < end:
                (length,) = struct.unpack_from(">I", data, at)
                if length == 0:
                    at += 4
                    break
                lsns.append(at + 4)
                kind = data[at + 12]
                if kind == ord("B"):
                    numbers.append(at + 13)
                    lsns.append(at + 21)
                    if length > 25:
                        numbers.append(at + 30)
                elif kind == ord("C"):
                    numbers.append(at + 14)
                at += 4 + length + 1
        self._lsns = self._fields(lsns)
        self._numbers = self._fields(numbers)

    def _fields(self, offsets: list[int]) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]":
        where = np.array(offsets, np.int64)[:, None] + np.arange(8)
        values = np.frombuffer(self._data, np.uint8)[where].copy().view(">u8").astype(np.uint64)
        return where, values

    def _move_on(self, cycle: int) -> None:
        data = np.frombuffer(self._data, np.uint8)
        for (where, values), step in (
            (self._lsns, self._span),
            (self._numbers, self.cycle_transactions),
        ):
            data[where] = (values + np.uint64(cycle * step)).astype(">u8").view(np.uint8)

    def buffers(self) -> Iterator[memoryview]:
        """Give one cycle after the other; each must be sent before the next is asked for.

        A connection that is lost takes what was not received with it: for benchmarks only.
        """
        while not self.cycles or self.sent_cycles < self.cycles:
            self.sent_cycles += 1
            self._move_on(self.sent_cycles)
            yield memoryview(self._data)


def serve(
    load: Load, catalogue: Catalogue, profile: Profile = V6_0_0, certificates: Path | None = None
) -> GaussServer:
    """Start a server that sends the load to whoever streams from its slot ``load``."""
    behaviour = Behaviour(hba="trust", replication_hba="trust")
    server = GaussServer(
        load.store,
        profile,
        catalogue=catalogue,
        behaviour=behaviour,
        load=load,
        certificates=certificates,
    )
    server.create_slot("load")
    return server.start()


def main() -> None:
    """Run a server until standard input ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--row-bytes", type=int, default=500)
    parser.add_argument("--transaction-rows", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cycle-bytes", type=int, default=_CYCLE_BYTES)
    parser.add_argument("--tls", action="store_true", help="with a certificate for 127.0.0.1")
    given = parser.parse_args()
    load = Load(
        given.columns,
        given.row_bytes,
        given.transaction_rows,
        given.bytes,
        given.seed,
        cycle_bytes=given.cycle_bytes,
    )
    with Postgres(15) as postgres, tempfile.TemporaryDirectory() as name:
        catalogue = Catalogue(postgres)
        authority = make_certificates(Path(name)) if given.tls else None
        server = serve(load, catalogue, certificates=Path(name) if given.tls else None)
        try:
            facts = {
                "port": server.port, "ha_port": server.ha_port, "slot": "load", "user": "replica",
                "database": server.database, "cycles": load.cycles, "cycle_rows": load.cycle_rows,
                "cycle_bytes": load.cycle_size, "cycle_transactions": load.cycle_transactions,
                "columns": given.columns, "authority": authority and str(authority),
            }  # fmt: skip
            print(json.dumps(facts), flush=True)
            sys.stdin.read()
        finally:
            server.crash()
            catalogue.close()


if __name__ == "__main__":
    main()
