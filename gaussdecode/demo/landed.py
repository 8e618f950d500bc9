"""Read landed tables from the commit log."""

import dataclasses
import json
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class LandedTable:
    """One table as the commit log describes it.

    Attributes:
        directory: directory of its files, below ``data/``.
        schema: true schema name.
        name: true table name.
        key: landed names of the columns that identify a row, or None.
        columns: true name by landed name, as of the last schema.
        files: paths of its Parquet files.
        rows: number of landed rows.
        ops: landed rows by operation.
        bytes: size of the files.
        snapshot_lsn: position at which existing rows landed, or None.
    """

    directory: str
    schema: str
    name: str
    key: tuple[str, ...] | None
    columns: dict[str, str]
    files: tuple[str, ...]
    rows: int
    ops: dict[str, int]
    bytes: int
    snapshot_lsn: int | None = None

    @property
    def title(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"


def read_tables(root: Path) -> list[LandedTable]:
    """Read the commit log of a landing; return its tables by name."""
    found: dict[str, list[dict[str, Any]]] = {}  # Any: JSON
    snapshots: dict[str, int] = {}
    for path in sorted((root / "commits").glob("[0-9]*.json")):
        entry = json.loads(path.read_text())
        for file in entry["files"]:
            found.setdefault(file["table"], []).append(file)
        said = entry["extra"].get("snapshot", {})
        snapshots.update(dict.fromkeys(said.get("tables", ()), said.get("lsn")))
    tables = [
        _table(root, directory, files, snapshots.get(directory))
        for directory, files in found.items()
        if not directory.startswith("gd_")
    ]
    return sorted(tables, key=lambda table: table.title)


def _table(
    root: Path,
    directory: str,
    files: list[dict[str, Any]],  # Any: JSON
    snapshot_lsn: int | None,
) -> LandedTable:
    path = root / "schemas" / directory / f"{files[-1]['schema_id']}.json"
    record = json.loads(path.read_text())
    landed = {column["name"]: column["landed"] for column in record["columns"]}
    ops: dict[str, int] = {}
    for file in files:
        for op, count in file["ops"].items():
            ops[op] = ops.get(op, 0) + count
    return LandedTable(
        directory=directory,
        schema=record["schema"],
        name=record["name"],
        key=None if record["key"] is None else tuple(landed[name] for name in record["key"]),
        columns={name: true for true, name in landed.items()},
        files=tuple(str(root / file["path"]) for file in files),
        rows=sum(file["rows"] for file in files),
        ops=ops,
        bytes=sum(file["bytes"] for file in files),
        snapshot_lsn=snapshot_lsn,
    )
