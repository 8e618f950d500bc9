"""A landing begins with its slot, by an explicit act; the daemon never begins one."""

import json
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.daemon import Daemon
from kit.landing import read_entries
from kit.postgres import Database

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration


class _Unbegun(Daemon):
    """A daemon of which nobody has begun the landing."""

    def begin(self) -> None:
        """Leave that to the test."""


@pytest.fixture
def daemon(database_15: Database, tmp_path: Path) -> _Unbegun:
    """Not started; its database has a table and no slot."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    return _Unbegun(database_15, tmp_path)


def _refusal(daemon: Daemon) -> str:
    assert daemon.start().wait() == EX_CONFIG
    return daemon.log_tail(3)


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "empty"])
def test_daemon_makes_no_landing(daemon: _Unbegun, *, is_there: bool) -> None:
    """An unmounted file system leaves a directory, or none; a used slot must not begin there."""
    slot = daemon.database
    slot.create_slot()
    before = slot.slot_positions()
    if is_there:
        daemon.root.mkdir()
    text = _refusal(daemon)
    assert ("holds no landing" if is_there else "does not exist") in text
    assert "gaussdecode slot create" in text
    assert "gaussdecode slot adopt" in text
    assert daemon.root.exists() is is_there
    assert not is_there or not any(daemon.root.iterdir())
    assert slot.slot_positions() == before


def test_unmounted_root_is_not_begun_anew(daemon: _Unbegun) -> None:
    """The landing is away and comes back: nothing of in between is missing."""
    assert main(["slot", "create", str(daemon.config_path)]) == EX_OK
    with daemon:
        daemon.database.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        assert daemon.stop() == 0
        away = daemon.root.rename(daemon.root.with_name("away"))
        daemon.root.mkdir()
        daemon.database.execute("INSERT INTO public.t VALUES (2)")
        assert "mounted" in _refusal(daemon)
        daemon.root.rmdir()
        away.rename(daemon.root)
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    rows = [file["rows"] for entry in daemon.entries() for file in entry["files"]
            if file["table"] == "public.t"]  # fmt: skip
    assert rows == [1, 1]


def test_create_begins_the_landing_where_the_slot_does(daemon: _Unbegun) -> None:
    """Root, layout and first entry, at the slot's consistent point; rows of then on land."""
    assert main(["slot", "create", str(daemon.config_path)]) == EX_OK
    (entry,) = read_entries(daemon.root)
    (position,) = entry["positions"].values()
    assert entry["kind"] == "genesis"
    assert position["lsn"] == daemon.database.slot_positions()[1]
    daemon.database.execute("INSERT INTO public.t VALUES (1)")
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0


def test_slot_that_was_read_before_the_first_start_is_a_gap(
    daemon: _Unbegun, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was confirmed since it was made never landed: refused, and accepted by command."""
    path = str(daemon.config_path)
    assert main(["slot", "create", path]) == EX_OK
    begin = daemon.durable_lsn()
    daemon.database.execute("INSERT INTO public.t VALUES (1)")
    target = daemon.database.wal_end()
    daemon.database.execute(
        f"SELECT pg_replication_slot_advance('{daemon.database.slot}', '{target}')"
    )
    assert "slot accept-gap" in _refusal(daemon)
    assert main(["slot", "accept-gap", path, "--from-lsn", str(Lsn(begin))]) == EX_OK
    capsys.readouterr()
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0


def test_adopted_slot_lands_from_where_it_stands(
    daemon: _Unbegun, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slot that others made is landed on the operator's word."""
    lsn = daemon.database.create_slot()
    assert main(["slot", "adopt", str(daemon.config_path)]) == EX_OK
    assert str(lsn) in capsys.readouterr().out
    assert daemon.durable_lsn() == lsn
    with daemon:
        daemon.catch_up()
        assert main(["slot", "adopt", str(daemon.config_path)]) == EX_CONFIG
        assert daemon.stop() == 0


def test_landing_without_an_entry_is_not_begun_by_the_daemon(daemon: _Unbegun) -> None:
    """An operator's act that was cut off is done again by the operator."""
    path = str(daemon.config_path)
    daemon.database.create_slot()
    assert main(["slot", "adopt", path]) == EX_OK
    for entry in (daemon.root / "commits").glob("*.json"):
        entry.unlink()
    assert "slot adopt" in _refusal(daemon)
    assert main(["slot", "adopt", path]) == EX_OK
    assert len(daemon.entries()) == 1


def test_slot_alone(database_15: Database, configure: Configure, run: Run, tmp_path: Path) -> None:
    """For peek and get no landing is made."""
    assert run("slot", "create", "--no-landing", configure(database_15)).status == EX_OK
    assert not (tmp_path / "landing").exists()


def test_beginning_moves_while_nothing_has_landed(
    database_15: Database, configure: Configure, run: Run, tmp_path: Path
) -> None:
    """A slot that is dropped and made again before the first start."""
    path = configure(database_15)
    assert run("slot", "create", path).status == EX_OK
    assert run("slot", "drop", path).status == EX_OK
    assert run("slot", "create", path).status == EX_OK
    entries = [json.loads(name.read_text()) for name in
               sorted((tmp_path / "landing" / "commits").glob("0*.json"))]  # fmt: skip
    assert [entry["kind"] for entry in entries] == ["genesis", "idle"]
    (position,) = entries[-1]["positions"].values()
    assert position["lsn"] == database_15.slot_positions()[1]


def test_beginning_can_be_repeated(daemon: _Unbegun) -> None:
    """As often as the command is cut off after the entry was written; not after the daemon's first."""
    daemon.database.create_slot()
    adopt = ["slot", "adopt", str(daemon.config_path)]
    for _ in range(4):
        assert main(adopt) == EX_OK
    begun = len(daemon.entries())
    with daemon:
        daemon.database.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        assert daemon.stop() == EX_OK
    assert len(daemon.entries()) > begun
    assert main(adopt) == EX_CONFIG
