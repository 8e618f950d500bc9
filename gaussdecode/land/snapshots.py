"""Keep the files of a snapshot until its entry is committed, and the ledger of tables.

Below ``snapshots/``, which no reader of the landing looks into::

    ledger.json                     per table what became of it; snapshot/choice.py
    fingerprints.json               by source, states of tables in its catalogue; model/fingerprint.py
    columns.json                    by source, columns that DDL in the stream told; collect/ddl_states.py
    requests/<n>.json               what an operator asked for; removed when it is taken up
    <table>/state.json              which table, since which entry, how it was cut
    <table>/chunk-<n>-<sha>.arrow   rows of a finished chunk, and the SHA-256 of the file

Of a landing of several sources each has tables of its own, in the ledger as ``<source>/<schema.name>``,
and below ``sources/<source>/<table>/``; a request names its source.

A file under its name is whole and durable: it is written under another one, synced and
renamed. So after any end of the process the chunks that are there need not be read again.
JSON is sealed (`model.seal`), chunks carry their hash in their name: nothing of it is used
that is not what was written. What is not ours is left alone.
Given bytes and JSON; knows no server.
"""

import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

from gaussdecode.errors import AccessError, DiskError, LandingError, unreadable
from gaussdecode.host.access import rights
from gaussdecode.land.disk import Disk
from gaussdecode.land.failpoints import ActStep, SnapshotStep
from gaussdecode.land.names import unfinished_number
from gaussdecode.land.sink import Sink
from gaussdecode.model.seal import canonical_json, check_version, read_sealed, sealed

ROOT: Final = "snapshots"
LEDGER: Final = "ledger.json"
FINGERPRINTS: Final = "fingerprints.json"
COLUMNS: Final = "columns.json"
UNKNOWN_BEFORE: Final = "*unknown-before"
"""Among the sources of the fingerprints: it is not known what the tables were when rows of them landed."""
WHY_STOPPED: Final = "why_stopped"  # in a record of the ledger
REQUESTS: Final = "requests"
SOURCES: Final = "sources"  # no table has this name: theirs have a dot
STATE: Final = "state.json"
_LEDGER: Final = f"{ROOT}/{LEDGER}"
_FINGERPRINTS: Final = f"{ROOT}/{FINGERPRINTS}"
_COLUMNS: Final = f"{ROOT}/{COLUMNS}"
_REQUESTS: Final = f"{ROOT}/{REQUESTS}"
REQUEST: Final = re.compile(r"[0-9a-f]{16}\.json")
CHUNK: Final = re.compile(r"chunk-([0-9]{8})-([0-9a-f]{64})\.arrow")

_PRECIOUS: Final = (_LEDGER, _FINGERPRINTS)
_ADVICE: Final = (
    "remove it, and ask for the snapshot again",
    "restore it from a copy of this landing",
)

Json = dict[str, Any]  # Any: JSON


class Requests(NamedTuple):
    """What operators have asked for.

    Attributes:
        found: path and content of each.
        faults: faults by path, why a request cannot be used, with owner and mode of its file.
    """

    found: list[tuple[str, Json]]
    faults: dict[str, str]


class DamagedChunkError(LandingError):
    """A piece of a table is not what was written; reading the table again repairs it."""


class SnapshotStore:
    """The files below ``snapshots/``.

    One per process and landing: several threads write chunks and the ledger through it.

    Args:
        disk: disk of the landing.
        source: source whose tables they are, where there are several; see `of`.
    """

    def __init__(self, disk: Disk, source: str | None = None) -> None:
        self._disk = disk
        self._lock = threading.Lock()  # of the ledger
        self._source = source
        self._home = ROOT if source is None else f"{ROOT}/{SOURCES}/{source}"
        self._begins = "" if source is None else f"{source}/"

    def of(self, source: str | None) -> Self:
        """The same files, as far as they are of one of several sources; None for the only one."""
        if source is None:
            return self
        store = type(self)(self._disk, source)
        store._lock = self._lock  # noqa: SLF001 - it is one ledger
        return store

    def prepare(self) -> None:
        """Make the directories, and remove what an earlier process left unfinished."""
        for directory in (ROOT, _REQUESTS):
            self._disk.ensure_directory(directory)
        self._disk.sync_directories(ROOT)
        sources = f"{ROOT}/{SOURCES}"
        directories = [ROOT, _REQUESTS, *self._below(ROOT)]
        directories += [table for home in self._below(sources) for table in self._below(home)]
        for directory in directories:
            for item in self._disk.items(directory):
                if item.is_file and unfinished_number(item.name) is not None:
                    self._disk.remove(f"{directory}/{item.name}")

    def _below(self, directory: str) -> list[str]:
        items = self._disk.items(directory)
        return [f"{directory}/{item.name}" for item in items if item.is_directory]

    def reach(self, step: SnapshotStep | ActStep) -> None:
        """Say that a step is done; a test may end the process here."""
        self._disk.files.reach(step)

    # ---- the ledger ------------------------------------------------------------------

    def ledger(self) -> Json:
        """What is known of each table, by ``schema.name``."""
        begins = self._begins
        return {
            key.removeprefix(begins): record
            for key, record in (self._read(_LEDGER) or {}).items()
            if key.startswith(begins)
        }

    def note(self, records: Mapping[str, Json]) -> None:
        """Remember what became of tables; all of it is durable when this returns.

        Why a table stopped stays with it, whatever is tried, until a record says otherwise.
        """
        with self._lock:
            ledger = self._read(_LEDGER) or {}
            for title, record in records.items():
                place = f"{self._begins}{title}"
                kept = {WHY_STOPPED: ledger.get(place, {}).get(WHY_STOPPED)}
                now = {**kept, **record}
                ledger[place] = {key: of for key, of in now.items() if of or key != WHY_STOPPED}
            self._write(_LEDGER, ledger)

    def fingerprints(self) -> Json:
        """States of the tables in the catalogue, by source; empty before the first was noted."""
        return self._read(_FINGERPRINTS) or {}

    def note_fingerprints(self, source: str, record: Json) -> None:
        """Remember the states of a source's tables; durable when this returns."""
        with self._lock:
            self._write(_FINGERPRINTS, {**self.fingerprints(), source: record})

    def columns(self) -> Json:
        """What DDL told of the columns of tables, by source; empty before the first was noted."""
        return self._read(_COLUMNS) or {}

    def note_columns(self, source: str, record: Json) -> None:
        """Remember it of a source; durable when this returns."""
        with self._lock:
            self._write(_COLUMNS, {**self.columns(), source: record})

    # ---- requests --------------------------------------------------------------------

    def ask(self, request: Json) -> str:
        """Ask the daemon for a snapshot, from another process; gives the request's path."""
        for directory in (ROOT, _REQUESTS):
            self._disk.ensure_directory(directory)
        path = f"{_REQUESTS}/{secrets.token_hex(8)}.json"
        self._write(path, request)
        return path

    def is_asked(self, path: str) -> bool:
        """Whether a request is not answered yet."""
        return self._disk.size(path) is not None

    def requests(self) -> Requests:
        """Every request, and those that cannot be used: others wrote them, nothing depends on them.

        Of several sources those that name this one; what names none is nobody's, and cannot be used.
        """
        found: list[tuple[str, Json]] = []
        faults: dict[str, str] = {}
        for item in self._disk.items(_REQUESTS):
            if not REQUEST.fullmatch(item.name):
                continue
            path = f"{_REQUESTS}/{item.name}"
            try:
                request = self._read(path) if item.is_file else {}
                if request is None:  # answered meanwhile
                    continue
                if not _is_request(request):
                    raise LandingError(f"{path}: its request is unknown; {_ADVICE[False]}")
                if self._source is not None and "source" not in request:
                    raise LandingError(f"{path}: names no source; {_ADVICE[False]}")
            except DiskError:
                raise
            except AccessError as error:
                faults[path] = str(error)
            except LandingError as error:
                faults[path] = f"{error} ({rights(self._disk.files.root / path)})"
            else:
                if self._source in (None, request.get("source")):
                    found.append((path, request))
        return Requests(found, faults)

    def answered(self, path: str) -> None:
        """Forget a request."""
        self._disk.remove(path)

    # ---- tables that are being read --------------------------------------------------

    def load(self, table: str) -> Json | None:
        """What `save` wrote; None when the table is not being read."""
        return self._read(f"{self._home}/{table}/{STATE}")

    def save(self, table: str, state: Json) -> None:
        """Write down how a table is read."""
        self._disk.ensure_directory(f"{self._home}/{table}")
        self._write(f"{self._home}/{table}/{STATE}", state)

    def tables(self) -> list[str]:
        """Directories of the tables that are being read."""
        home = self._home
        items = [item.name for item in self._disk.items(home) if item.is_directory]
        return [name for name in items if self._disk.size(f"{home}/{name}/{STATE}") is not None]

    def drop(self, table: str) -> None:
        """Forget a table and its chunks; the state last, so that this can be done again."""
        directory = f"{self._home}/{table}"
        if not self._disk.files.has_directory(directory):
            return
        names = [item.name for item in self._disk.items(directory) if item.is_file]
        for name in sorted(filter(_is_ours, names), key=lambda name: name == STATE):
            self._disk.remove(f"{directory}/{name}")
        self._disk.remove_directory(directory)

    def chunks(self, table: str) -> dict[int, str]:
        """Path of every chunk that is finished, by its number."""
        directory = f"{self._home}/{table}"
        names = (CHUNK.fullmatch(item.name) for item in self._disk.items(directory) if item.is_file)
        return {int(match[1]): f"{directory}/{match[0]}" for match in names if match is not None}

    def write_chunk(
        self, table: str, number: int, schema: pa.Schema, rows: Iterable[pa.Table]
    ) -> int:
        """Write a chunk and make it durable; gives its size."""
        directory = f"{self._home}/{table}"
        hidden = self._disk.unfinished(directory, 0, "parquet")
        sink = Sink(self._disk, hidden)
        try:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_file(sink, schema, options=options) as writer:
                for part in rows:
                    writer.write_table(part)
            checksum = sink.finish()
        except BaseException:
            sink.abandon()
            self._disk.remove(hidden)
            raise
        digest = checksum.removeprefix("sha256:")
        self._disk.replace(hidden, f"{directory}/chunk-{number:08d}-{digest}.arrow")
        self._disk.sync_directories(directory)
        self.reach(SnapshotStep.SNAPSHOT_CHUNK_READ)
        return sink.size

    def read_chunk(self, path: str) -> Iterator[pa.Table]:
        """Read the rows of a chunk, some at a time.

        Raises:
            DamagedChunkError: it is not what was written.
        """
        if not is_whole(self._disk, path):
            raise DamagedChunkError(f"{path} was altered: its hash does not match")
        with self._disk.files.open(path) as file:
            reader = pa.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(index)])

    # ---- files -----------------------------------------------------------------------

    def _read(self, path: str) -> Json | None:
        raw = self._disk.read(path)
        if raw is None:
            return None
        try:
            record = read_sealed(raw)
            check_version(record, 1)
        except ValueError as error:
            raise unreadable(path, error, _ADVICE[path in _PRECIOUS]) from error
        return record

    def _write(self, path: str, record: Json) -> None:
        directory = path.rpartition("/")[0]
        hidden = self._disk.unfinished(directory, 0, "json")
        self._disk.write_file(hidden, sealed(canonical_json(record)))
        self._disk.replace(hidden, path)
        self._disk.sync_directories(directory)


def is_whole(disk: Disk, path: str) -> bool:
    """Whether a file below ``snapshots/`` is what was written: a chunk, or sealed JSON."""
    match = CHUNK.fullmatch(path.rpartition("/")[2])
    if match is not None:
        return disk.checksum(path) == f"sha256:{match[2]}"
    raw = disk.read(path)
    try:
        return raw is None or bool(read_sealed(raw))  # none: it has gone meanwhile
    except ValueError:
        return False


def _is_request(request: Json) -> bool:
    """Whether it asks for all tables, or for one, or for some of its rows."""
    if request.get("all") is True:
        return True
    where = request.get("where")
    return isinstance(request.get("table"), str) and (where is None or isinstance(where, str))


def _is_ours(name: str) -> bool:
    """Whether a name in the directory of a table is one that some version gave."""
    is_chunk = name.startswith("chunk-") and name.endswith(".arrow")
    return name == STATE or is_chunk or unfinished_number(name) is not None
