"""Store rows that were read for a target and are not in it yet, range by range.

::

    <target>/load/layout.json                  of the landing, so that this reads as one
    <target>/load/schemas/<table>/<id>.json    of the rows
    <target>/load/cuts/<table>.json            how a table was cut, see `Cut`
    <target>/load/data/<table>/<token>-<range>-<lsn>-<rows>.parquet

A file has its name when it is whole and durable, so what is there need not be read again. Its name
says in which view it was read: a job that nobody waits for any more may still finish a range, and
what it writes is as right as any. On a store it is written on the machine's own disk first, and put
when it is whole. Knows no database and no Spark.
"""

import dataclasses
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.errors import DiskError
from gaussdecode.land.names import COMMITS, DATA, LAYOUT, SCHEMAS
from gaussdecode.spark.log.place import ObjectPath, Place, files_below, names_in, remove_tree
from gaussdecode.spark.target.durable import make_directory, sync_directory
from gaussdecode.spark.target.store import LOAD, read_json

_CUTS: Final = "cuts"
_RANGE: Final = re.compile(r"([0-9a-f]+)-(\d{8})-([0-9a-f]{16})-(\d+)\.parquet")
_COMPRESSION: Final = "zstd"
_LEVEL: Final = 1
Json = dict[str, Any]  # decoded JSON


class Standing(NamedTuple):
    """Position of a view in the log of the landing.

    Attributes:
        n: an entry, up to which all that landed is in the view.
        epoch: epoch of the position of that entry.
        csn: CSN of a view of GaussDB, see `held`.
    """

    n: int
    epoch: int
    csn: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """How a table was cut into ranges; another token for each time that it is read from the start.

    Attributes:
        token: token in the names of its files.
        title: ``schema.name``.
        fingerprint: fingerprint of its columns and files; the same as long as ranges fit together.
        schema_id: schema id of its rows.
        pages: pages of each leaf, as it was then.
        chunk_pages: pages of a range.
        count: number of ranges.
        views: views by position, where they stand in the log.
    """

    token: str
    title: str
    fingerprint: str
    schema_id: str
    pages: tuple[int, ...]
    chunk_pages: int
    count: int
    views: dict[int, Standing]

    @classmethod
    def from_record(cls, record: Json) -> Self:
        """Read what `to_record` gave."""
        views = {int(lsn): Standing(*place) for lsn, place in record["views"].items()}
        return cls(**{**record, "pages": tuple(record["pages"]), "views": views})

    def to_record(self) -> Json:
        """Make it fit for JSON."""
        return dataclasses.asdict(self)


class Range(NamedTuple):
    """One that was read.

    Attributes:
        lsn: LSN of its view.
        rows: rows in it.
        bytes: bytes of its file.
        path: path of it.
    """

    lsn: int
    rows: int
    bytes: int
    path: Place


class Staging:
    """The directory ``<target>/load``.

    Args:
        root: that directory.
    """

    def __init__(self, root: Place) -> None:
        self.root = root

    @classmethod
    def begin(cls, target: Place, landing: Place) -> Self:
        """Create the directory, or continue with the files in it.

        What was read for another landing goes: its views stand at entries of that one.

        Args:
            target: directory or URL.
            landing: the same of the landing that the target is made from.
        """
        root, layout = target / LOAD, json.loads((landing / LAYOUT).read_bytes())
        if (root / LAYOUT).exists():
            held = read_json(root / LAYOUT)
            if held["landing_id"] != layout["landing_id"]:
                remove_tree(root)
        for name in (_CUTS, COMMITS, SCHEMAS, DATA):
            make_directory(root / name)
        _write_json(root / LAYOUT, layout)
        return cls(root)

    def end(self) -> None:
        """Remove all of it: every table is in the target."""
        remove_tree(self.root)

    # --- cuts --------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Directories of the tables that were begun."""
        names = names_in(self.root / _CUTS)
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def cut(self, table: str) -> Cut | None:
        """How a table was cut; None when it was not begun."""
        path = self.root / _CUTS / f"{table}.json"
        return Cut.from_record(read_json(path)) if path.exists() else None

    def keep(self, table: str, cut: Cut, schema: Json | None = None) -> None:
        """Write down how a table is cut, before any range of it is read."""
        make_directory(self.data(table))
        if schema is not None:
            make_directory(self.root / SCHEMAS / table)
            _write_json(self.root / SCHEMAS / table / f"{cut.schema_id}.json", schema)
        _write_json(self.root / _CUTS / f"{table}.json", cut.to_record())

    def forget(self, table: str) -> None:
        """Forget all that was read of a table."""
        (self.root / _CUTS / f"{table}.json").unlink(missing_ok=True)
        remove_tree(self.data(table))

    # --- ranges ------------------------------------------------------------------------------

    def data(self, table: str) -> Place:
        """Directory of a table's files."""
        return self.root / DATA / table

    def ranges(self, table: str, token: str) -> dict[int, Range]:
        """The ranges that are there, by number; of several the one of the newest view."""
        found: dict[int, Range] = {}
        directory = self.data(table)
        for file in files_below(directory):
            match = _RANGE.fullmatch(file.path)
            if match is not None and match[1] == token:
                one = Range(int(match[3], 16), int(match[4]), file.bytes, directory / file.path)
                number = int(match[2])
                if number not in found or found[number].lsn < one.lsn:
                    found[number] = one
        return found

    def write_range(
        self, table: str, token: str, number: int, lsn: int, schema: pa.Schema, rows: Iterable[pa.Table]
    ) -> int:  # fmt: skip
        """Write the rows of a range; gives their number."""

        def name(count: int) -> str:
            return f"{token}-{number:08d}-{lsn:016x}-{count}.parquet"

        return write_rows(self.data(table), name, schema, rows)


def write_rows(
    directory: Place, name: Callable[[int], str], schema: pa.Schema, rows: Iterable[pa.Table]
) -> int:
    """Write rows into a file that has its name when it is whole and durable; gives their number.

    Args:
        directory: directory to write to.
        name: name of the file, by the number of its rows; another file of that name holds the same.
        schema: schema of the rows.
        rows: rows of them.

    Raises:
        DiskError: it cannot be written.
        MirrorError: the store failed.
    """
    if not isinstance(directory, ObjectPath):
        hidden = directory / f".{secrets.token_hex(8)}"
        count = _write_hidden(hidden, schema, rows)
        _give_name(hidden, directory / name(count))
        return count
    with tempfile.TemporaryDirectory(prefix="gaussdecode-load-") as scratch:
        held = Path(scratch, "rows.parquet")
        count = _write_hidden(held, schema, rows)
        path = directory / name(count)
        path.store.put_new(path.path, held)
    return count


def _write_hidden(hidden: Path, schema: pa.Schema, rows: Iterable[pa.Table]) -> int:
    """Write rows into a durable file; gives their number, and leaves no file after an error."""
    count = 0
    try:
        with hidden.open("xb") as file:
            with pq.ParquetWriter(
                file, schema, compression=_COMPRESSION, compression_level=_LEVEL
            ) as writer:
                for piece in rows:
                    writer.write_table(piece)
                    count += piece.num_rows
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise DiskError(f"{hidden} cannot be written: {error.strerror}") from error
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    return count


def _write_json(path: Place, record: Json) -> None:
    """Replace a file, whole and durable."""
    content = json.dumps(record, sort_keys=True).encode()
    if isinstance(path, ObjectPath):
        path.store.replace(path.path, content)
        return
    hidden = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with hidden.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DiskError(f"{path} cannot be written: {error.strerror}") from error
    _give_name(hidden, path)


def _give_name(hidden: Path, path: Path) -> None:
    try:
        hidden.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise DiskError(f"{path} cannot be written: {error.strerror}") from error
