"""Many clients of one small server: one that never reads, one at the beginning, one at the end, and all others.

`GAUSSDECODE_CLIENTS` and `GAUSSDECODE_ROWS` make it larger.
"""

import asyncio
import os
import struct
from pathlib import Path
from typing import Final

from kit import rechained
from kit.served import Process, Served, unpack_landing

from gaussdecode.model.lsn import Lsn

CLIENTS: Final = int(os.environ.get("GAUSSDECODE_CLIENTS", "30"))
ROWS: Final = int(os.environ.get("GAUSSDECODE_ROWS", "4000"))
_MOST_BYTES: Final = 400 << 20  # libraries and the landing's blocks; each client adds its buffer
_CLIENT_BYTES: Final = 2 << 20
_PATIENCE: Final = 300.0


class _Client:
    """One that streams, without a library: it counts rows and keeps what it confirms."""

    def __init__(self, port: int, slot: str) -> None:
        self._port = port
        self._slot = slot
        self.rows = 0
        self.ends: list[int] = []

    async def begin(self) -> None:
        """Log in and start."""
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=1 << 16
        )
        body = struct.pack(">I", 3 << 16) + b"user\0me\0database\0kept\0replication\0database\0\0"
        options = "(\"sender-timeout\" '0')"  # it says nothing before its end
        query = f'START_REPLICATION SLOT "{self._slot}" LOGICAL {Lsn(0)} {options}'.encode() + b"\0"
        self.writer.write(struct.pack(">I", len(body) + 4) + body)
        self.writer.write(b"Q" + struct.pack(">I", len(query) + 4) + query)

    async def until(self, lsn: int) -> None:
        """Read until the transaction that ends there has come."""
        held = b""
        while not self.ends or self.ends[-1] < lsn:
            data = held + await self.reader.read(1 << 16)
            assert len(data) > len(held), "the server ended the stream"
            at = 0
            while at + 5 <= len(data):
                size = int.from_bytes(data[at + 1 : at + 5], "big")
                if at + 1 + size > len(data):
                    break
                if data[at : at + 1] == b"E":
                    raise AssertionError(data[at : at + size])
                if data[at + 5 : at + 6] == b"w" and data[at : at + 1] == b"d":
                    if data[at + 30 : at + 35] == b"table":
                        self.rows += 1
                    elif data[at + 30 : at + 36] == b"COMMIT":
                        self.ends.append(int.from_bytes(data[at + 6 : at + 14], "big"))
                at += 1 + size
            held = data[at:]

    def confirm(self) -> None:
        """Confirm everything."""
        end = struct.pack(">Q", self.ends[-1])
        self.writer.write(b"d" + struct.pack(">I", 38) + b"r" + end * 3 + bytes(8) + b"\0")


def _peak(process: int) -> int:
    """Most memory that a process has had, in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise AssertionError


def test_many_clients(tmp_path: Path) -> None:
    """Each gets all rows, a stopped one stops nobody, and memory has a bound: also that of what is imported."""
    root = unpack_landing(tmp_path)
    before = rechained.read(root)
    (position,) = before[-1].positions.values()
    middle = rechained.fill(root, [ROWS // 2, *[50] * (ROWS // 200)])
    names = [f"c{number}" for number in range(CLIENTS)]
    with Served(root) as served:
        for name in names[:-1]:
            served.add_slot(name)
        served.add_slot(names[-1], middle)
    server = Process(root)
    try:
        idle = _peak(server.process.pid)
        clients = [_Client(server.port, name) for name in names]
        stopped, late, *others, at_end = clients

        async def work() -> int:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(client.begin() for client in (stopped, *others, at_end)))
                await asyncio.gather(*(client.until(middle) for client in others))
                end = rechained.fill(root, [50] * (ROWS // 200))
                await asyncio.gather(*(client.until(end) for client in (*others, at_end)))
                await late.begin()
                await late.until(end)
                for client in (*others, at_end, late):
                    client.confirm()
                await stopped.until(end)  # it goes on where it stood
                for client in clients:
                    client.writer.close()
                return end

        end = asyncio.run(work())
        peak = _peak(server.process.pid)
        assert "/pandas/" not in Path(f"/proc/{server.process.pid}/maps").read_text()
    finally:
        server.kill()
    assert {tuple(client.ends) for client in (stopped, late, *others)} == {tuple(others[0].ends)}
    assert {client.rows for client in (stopped, late, *others)} == {others[0].rows}
    assert others[0].rows >= ROWS
    assert others[0].ends[-1] == end
    assert at_end.rows == 50 * (ROWS // 200)
    assert min(at_end.ends) > middle > position.lsn
    print(f"{CLIENTS} clients: {idle >> 20} MiB before, {peak >> 20} MiB at most")
    assert peak < _MOST_BYTES + CLIENTS * _CLIENT_BYTES
