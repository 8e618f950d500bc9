"""Files of virtual slots: whole or old after any fault, and one that is damaged harms no other."""

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from kit.served import Process, Replication, Served, unpack_landing

from gaussdecode.errors import ConfigError, DiskError
from gaussdecode.model.seal import canonical_json, read_sealed, sealed
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.reader import LandingReader, ReadPosition
from gaussdecode.serve.slots import Slot, Slots


def _slot(name: str) -> Slot:
    return Slot(name, "test_decoding", "me", "shop", "landing", 1, 1, 100)


def _file(root: Path, name: str) -> Path:
    return root / "serve" / "slots" / f"{name}.json"


def _other(path: Path, **fields: object) -> None:
    """Write the file anew with other content and a right seal."""
    path.write_bytes(sealed(canonical_json({**read_sealed(path.read_bytes()), **fields})))


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(bytes(range(256))),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "altered": lambda path: path.write_bytes(path.read_bytes().replace(b'"lsn":100', b'"lsn":900')),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "list": lambda path: path.write_bytes(b"[1]"),
    "version": lambda path: _other(path, version=2),
    "field": lambda path: _other(path, color="red"),
    "landing": lambda path: _other(path, landing_id="another"),
    "name": lambda path: _other(path, name="another"),
    "directory": _directory,
}


@pytest.mark.parametrize("how", sorted(DAMAGE))
def test_damaged_file_of_one_slot(tmp_path: Path, how: str) -> None:
    """Its client gets an error that names the file; the others go on; the slot can be dropped and made anew."""
    slots = Slots(tmp_path, "landing", 3)
    for name in ("good", "bad"):
        slots.create(_slot(name))
    slots.close()
    path = _file(tmp_path, "bad")
    DAMAGE[how](path)
    slots = Slots(tmp_path, "landing", 3)
    assert slots.acquire("good", "me", 1).lsn == 100
    with pytest.raises(ServeError, match=str(path)) as caught:
        slots.acquire("bad", "me", 1)
    assert caught.value.sqlstate == "XX001"
    if how == "version":
        assert "version 2" in caught.value.message
    with pytest.raises(ServeError, match="already exists"):
        slots.create(_slot("bad"))
    if how == "directory":
        with pytest.raises(DiskError, match=str(path)):
            slots.drop("bad")
        path.rmdir()
    slots.drop("bad")
    slots.create(_slot("bad"))
    assert slots.acquire("bad", "me", 1).lsn == 100
    slots.close()


def test_server_with_a_damaged_slot(tmp_path: Path) -> None:
    """It starts, says so in its log, and serves the others."""
    root = unpack_landing(tmp_path)
    with Served(root) as served:
        served.add_slot("good")
        served.add_slot("bad")
    _file(root, "bad").write_bytes(b"")
    with Served(root) as served, served.connect() as session:
        peek = "SELECT count(*) FROM pg_logical_slot_peek_changes(%s, NULL, NULL)"
        session.execute(peek, ["good"])
        with pytest.raises(psycopg.errors.DataCorrupted, match=r"bad\.json"):
            session.execute(peek, ["bad"])
        session.execute("SELECT pg_drop_replication_slot('bad')")
        assert len(session.execute("SELECT * FROM pg_replication_slots").fetchall()) == 1


def test_ends_between_write_and_rename(tmp_path: Path) -> None:
    """A process that is killed there leaves the former position."""
    slots = Slots(tmp_path, "landing", 3)
    slots.create(_slot("copy"))
    slots.close()
    child = os.fork()
    if child == 0:
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        slots = Slots(tmp_path, "landing", 3)
        slots.get("copy").confirm(5, 1, 500)
        slots.save()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert _file(tmp_path, ".copy").exists()
    slots = Slots(tmp_path, "landing", 3)
    assert not slots.damaged
    slot = slots.get("copy")
    assert (slot.n, slot.lsn) == (1, 100)
    slot.confirm(6, 1, 600)
    slots.close()
    assert read_sealed(_file(tmp_path, "copy").read_bytes())["lsn"] == 600


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file stays, other slots are written, and the next try writes what failed."""
    slots = Slots(tmp_path, "landing", 3)
    for name in ("a", "b"):
        slots.create(_slot(name))
        slots.get(name).confirm(2, 1, 200)
    failing = [0]

    def fsync(_: int) -> None:
        failing[0] += 1
        if failing[0] == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DiskError, match=r"a\.json: No space"):
        slots.save()
    kept = [read_sealed(_file(tmp_path, name).read_bytes())["lsn"] for name in ("a", "b")]
    assert kept == [100, 200]
    failing[0] = 0
    with pytest.raises(DiskError):
        slots.create(_slot("c"))
    assert len(slots) == 2
    slots.save()
    assert read_sealed(_file(tmp_path, "a").read_bytes())["lsn"] == 200
    slots.close()


def test_while_another_thread_writes(tmp_path: Path) -> None:
    """What is confirmed meanwhile is written next; a slot that is dropped meanwhile does not come back."""
    slots = Slots(tmp_path, "landing", 3)
    for name in ("copy", "gone"):
        slots.create(_slot(name))
        slots.get(name).confirm(2, 1, 200)
    changed = slots.changed()
    slots.get("copy").confirm(3, 1, 300)
    slots.drop("gone")
    slots.write(changed)
    assert not _file(tmp_path, "gone").exists()
    assert read_sealed(_file(tmp_path, "copy").read_bytes())["lsn"] == 200
    slots.save()
    assert read_sealed(_file(tmp_path, "copy").read_bytes())["lsn"] == 300
    slots.close()


def test_a_late_release_takes_the_slot_from_nobody(tmp_path: Path) -> None:
    """The end of a former session does not give another one's slot away."""
    slots = Slots(tmp_path, "landing", 3)
    slots.create(_slot("copy"))
    slot = slots.acquire("copy", "me", 1)
    slots.release(slot, 1)
    slots.acquire("copy", "me", 2)
    slots.release(slot, 1)
    assert slot.process == 2
    with pytest.raises(ServeError, match="active for PID 2"):
        slots.acquire("copy", "me", 3)
    slots.close()


def test_a_landing_that_moves(tmp_path: Path) -> None:
    """Its slots go with it; the new place has a server of its own."""
    root = unpack_landing(tmp_path)
    with Served(root) as served:
        slot = served.add_slot("copy")
        slot.confirm(5, 1, 26504424)
    moved = tmp_path / "elsewhere" / "landing"
    shutil.copytree(root, moved)
    with Served(root), Served(moved) as served:
        assert served.server.slots.get("copy").lsn == 26504424
        client = Replication(served, "copy")
        assert min(lsn for lsn, _ in client.until(served.end_lsn())) > 26504424
        client.close()
        with pytest.raises(ConfigError, match="another gaussdecode serve has this landing"):
            Slots(moved, "landing", 3)


@pytest.mark.parametrize("kills", [int(os.environ.get("GAUSSDECODE_KILLS", "3"))])
def test_kills(tmp_path: Path, kills: int) -> None:
    """After each kill: nothing after the durable position is missing, nothing before it comes again."""
    root = unpack_landing(tmp_path)
    reader = LandingReader(root)
    whole = [
        int(end) for entry in reader.entries(0) for block in reader.blocks(entry, ReadPosition(0, 0, 0))
        for end in block.transactions.end_lsn
    ]  # fmt: skip
    with Served(root) as served:
        served.add_slot("copy")
    chance = random.Random(5)
    asked = 0
    for number in range(kills):
        durable = int(read_sealed(_file(root, "copy").read_bytes())["lsn"])
        start = max(durable, asked)
        expected = [end for end in whole if end > start]
        server = Process(root)
        client = Replication(server, "copy", asked)
        got: list[int] = []
        stop = chance.randrange(len(expected) + 1)
        if number == kills - 1:
            stop = len(expected)
        while len(got) < stop:
            message = client.next()
            assert message is not None
            if message[1].startswith(b"COMMIT"):
                got.append(message[0])
                if chance.random() < 0.3:
                    client.confirm(message[0])
        assert got == expected[:stop]
        if chance.random() < 0.5:  # its slot is written at the end, at the latest
            client.session.close()
        server.kill()
        client.session.close()
        asked = chance.choice([0, got[-1] if got else asked])
