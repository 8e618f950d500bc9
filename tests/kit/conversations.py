"""Everything that is said to a server: the one list of what a lost connection may break off.

Each conversation is what the daemon or a command does on connections of its own, from the first to the
last answer that it needs. `tests/source/test_lost_connections.py` breaks each off at every piece of every
answer, and sees that no function of the package which opens a connection is missing here.
"""

import contextlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from gaussdecode.cli import main
from gaussdecode.collect.entry_barrier import EntryBarrier, Seen
from gaussdecode.daemon import lost_slot
from gaussdecode.daemon.csn_marks import Marking
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, SourceError
from gaussdecode.ipc.control import Control
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.compare.source_comments import comments_of_config, comments_of_dsn
from gaussdecode.operations.compare.source_sums import PgSums, SourceSums
from gaussdecode.operations.compare.source_sums_gaussdb import GaussSums
from gaussdecode.protocol.gaussdb.notices import LostChanges
from gaussdecode.serve.catalog import Catalog as SourceCatalog
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._status import StatusClock
from gaussdecode.source.address import source_address
from gaussdecode.source.export import Exporter, PublishedTable, TableReader, cut
from gaussdecode.source.exporters import exporter_of
from gaussdecode.source.gaussdb.probe import GaussProbe
from gaussdecode.source.gaussdb.source import GaussSource
from gaussdecode.source.interface import Source
from gaussdecode.source.lookup import area_of, lookup_of
from gaussdecode.source.postgresql.catalog import Catalog
from gaussdecode.source.postgresql.export import held_view
from gaussdecode.source.postgresql.fingerprints import Looker
from gaussdecode.source.postgresql.members import read_members
from gaussdecode.source.postgresql.probe import PostgresProbe
from gaussdecode.source.postgresql.publication import add_table
from gaussdecode.source.postgresql.source import PostgresSource
from gaussdecode.source.settings import ReaderSettings

VIEW_SECONDS: Final = 5.0
TABLE: Final = ("public", "t")
"""With rows, and a column ``id`` that is its key."""

SERVE_ROLE: Final = "catalogue"
"""A role that may only log in."""

Conversation = Callable[[Path], object]
"""Given the file of a configuration; raises `SourceError` where it was broken off."""


def _streamed(make: Callable[[ReaderSettings, Any], Source]) -> Conversation:
    """The reader's: what is the server, may the stream start, and its start."""

    def talk(path: Path) -> None:
        config = load(path)
        source = make(ReaderSettings.of(config, None, str(path.parent)), lambda *_, **__: None)
        control, ring = Control.create(), Ring.create(1 << 16, 8)
        facts = source.facts
        clock = StatusClock(facts["start_lsn"], 0, source.sender_timeout_ms * 1000, 60_000_000)
        source.receiver(control, Dispatcher([ring]), clock)
        try:
            source.start()
        finally:
            ring.close()
            control.close()
        source.end()

    return talk


def _catalogue(path: Path) -> None:
    config = load(path)
    with _reader(config) as reader:
        relation = reader.shape(_table(reader)).relation
    lookup = lookup_of(config)
    with contextlib.closing(lookup):
        lookup.look_up(relation)


def _reader(config: Config) -> TableReader:
    return exporter_of(config).open_reader(VIEW_SECONDS, lambda: False)


def _table(reader: TableReader) -> PublishedTable:
    return next(table for table in reader.published() if (table.schema, table.name) == TABLE)


def _snapshot(path: Path) -> None:
    """A view, and all that is asked of a table in it."""
    config = load(path)
    exporter: Exporter = exporter_of(config)
    with exporter.open_view(VIEW_SECONDS, lambda: False) as view, _reader(config) as reader:
        reader.nudge()
        reader.begin(view)
        shape = reader.shape(_table(reader))
        reader.check_readable(shape)
        reader.hash_of("x")
        (chunk, *_) = cut(shape.leaves, 64)
        reader.measure_chunk(shape, chunk, None, has_checksum=False)
        assert b"".join(reader.copy_chunk(shape, chunk, None))
        reader.copy_keys(shape, [0], ["{1}"], None)
        reader.check_files(shape, [0])
        reader.end()


def _sums(path: Path) -> None:
    """The source's side of ``spark verify``."""
    config = load(path)
    if config.source.publication:
        address = source_address(config)
        with held_view(address, config.slot, VIEW_SECONDS) as (_, name):
            _look_at_table(PgSums(address, name))
        return
    with exporter_of(config).open_view(VIEW_SECONDS, lambda: False) as view:
        _look_at_table(GaussSums(config, view))


def _look_at_table(sums: SourceSums) -> None:
    with sums, sums.table(*TABLE) as table:
        assert table is not None


def _comments(path: Path) -> None:
    config = load(path)
    comments_of_config(config, [".".join(TABLE)])
    if config.source.publication:
        comments_of_dsn(config.source.dsn, [".".join(TABLE)], is_insecure_allowed=True)


def _watch(path: Path) -> None:
    """What is looked at before an entry, when everything is new."""
    config = load(path)
    names = config.source.publication
    with Catalog(config) as catalog:
        seen = catalog.ask(
            lambda session: Looker(session, names).look(None, {}, {}, {}, is_whole=True), 5
        )
        assert seen.tables
        catalog.ask(lambda session: read_members(session, names, {}), 0.5)


def _guard(make: type[PostgresProbe | GaussProbe]) -> Conversation:
    def talk(path: Path) -> None:
        config = load(path)
        with contextlib.closing(make(source_address(config), config.slot)) as probe:
            probe.look()

    return talk


def _loss(path: Path) -> None:
    lost_slot._ask(load(path), is_dropping=False)


def _marks(path: Path) -> None:
    config = load(path)
    errors: list[BaseException] = []
    barrier = EntryBarrier(("s",), lambda _: None, 1)
    barrier.look("s", Seen(0, 1, 1))
    marking = Marking(barrier, {"s": config}, errors.append)
    marking.start()
    with contextlib.closing(marking):
        while not errors and not marking._nudged:
            time.sleep(0.005)
    if errors:
        raise errors[0]


def _command(*arguments: str, after: Sequence[str] = ()) -> Conversation:
    """A command, which must be done or say that the source is not available; what is left is undone."""

    def talk(path: Path) -> None:
        told = io.TextIOWrapper(io.BytesIO())
        out = path.parent / "out.capture"
        out.unlink(missing_ok=True)
        given = [str(path), *(str(out) if one == "OUT" else one for one in after)]
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
            status = main([*arguments, *given])
        told.seek(0)
        if status == EX_UNAVAILABLE:
            raise SourceError(told.read())
        assert status == EX_OK, f"status {status}: {told.read()}"

    return talk


def _advance(path: Path) -> None:
    """To where the slot stands."""
    with contextlib.redirect_stdout(io.StringIO()) as told:
        if main(["slot", "list", "--json", str(path)]) == EX_UNAVAILABLE:
            raise SourceError("slot list")
    slots = [json.loads(line) for line in told.getvalue().splitlines()]
    (lsn,) = (one["confirmed_flush"] for one in slots if one["slot_name"] == load(path).slot)
    _command("slot", "advance", "--upto-lsn", lsn)(path)


_COMMANDS: Final[Mapping[str, Conversation]] = {
    "check": _command("check", "--json"),
    "slot list": _command("slot", "list"),
    "slot create": _command("slot", "create", "--no-landing"),
    "slot advance": _advance,
    "slot adopt": _command("slot", "adopt"),
    "slot drop": _command("slot", "drop"),
    "peek": _command("peek"),
    "get": _command("get"),
    "capture": _command("capture", after=["OUT"]),
}
_BOTH: Final[Mapping[str, Conversation]] = {
    "catalogue": _catalogue,
    "snapshot": _snapshot,
    "sums": _sums,
    "comments": _comments,
    "loss": _loss,
    **_COMMANDS,
}


def _publish(path: Path) -> None:
    """What `ctl add` asks of the publications: the table is in one already."""
    config = load(path)
    assert "already" in add_table(source_address(config), config.source.publication, *TABLE)


def _serve(path: Path) -> None:
    """What `serve` asks at its start, as a role that may only log in."""
    with ThreadPoolExecutor(1) as pool:
        catalog = SourceCatalog(f"{load(path).source.dsn} user={SERVE_ROLE}", pool)
        try:
            assert catalog.version()
        finally:
            catalog.close()


def _ddl(path: Path) -> None:
    """Make the event triggers and take them away; half of it is undone by the server."""
    for action in ("install", "remove"):
        _command("ddl", action)(path)


POSTGRESQL: Final[Mapping[str, Conversation]] = {
    "stream": _streamed(PostgresSource),
    "watch": _watch,
    "guard": _guard(PostgresProbe),
    "publish": _publish,
    "ddl": _ddl,
    "serve": _serve,
    **_BOTH,
}


def _area(path: Path) -> None:
    """What is asked of a transaction with DDL; a failure is told there, and raises nothing."""
    area = area_of(load(path))
    assert area is not None
    with contextlib.closing(area):
        found = area.lost(LostChanges(1, Lsn(1), Lsn(3), Lsn(2)))
    assert found is None
    if "not read to its end" not in area.failure:
        raise SourceError(area.failure)


GAUSSDB: Final[Mapping[str, Conversation]] = {
    "area": _area,
    "stream": _streamed(GaussSource),
    "marks": _marks,
    "guard": _guard(GaussProbe),
    **_BOTH,
}

UNBOUNDED: Final = frozenset({"capture", "slot advance", "slot create"})
"""What may be waited for as long as it takes: the server reads its log. A capture ends after a minute."""
