"""A landing or a target that a newer program wrote to: every reader says so, and changes nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from kit.history import Column, Table
from kit.landrun import COLUMNS, Landing

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, ConfigError, GaussDecodeError
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.mirror.known import read_state, write_state
from gaussdecode.land.mirror.plan import MirrorState
from gaussdecode.land.names import hidden_entry_path
from gaussdecode.land.schemas import fingerprint
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.seal import canonical_json, sealed
from gaussdecode.spark.log.landing import Landing as SparkLanding
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.state_file import TableVersion
from gaussdecode.spark.target.store import Target
from gaussdecode.spark.target.table_log import PROPERTY

Json = dict[str, Any]  # Any: JSON
Change = Callable[[Json], object]
Read = Callable[[Path], object]
TABLE: Final = "public.a"


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A landing with checkpoints, and entries that only they have."""
    root = tmp_path_factory.mktemp("landed")
    Landing(Files(root), transactions=8).run()
    log = Landing(Files(root), transactions=8).open()
    store = SnapshotStore(log.disk)
    store.prepare()
    store.note_fingerprints("", {"tables": {}})
    write_state(log.disk, MirrorState("file:///m", 1, 1, 1))
    log.close()
    return root


@pytest.fixture
def root(landed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(landed, tmp_path / "landing")
    return tmp_path / "landing"


def rewrite(path: Path, change: Change) -> None:
    """Change a sealed file as another program could have written it."""
    line, newline, rest = path.read_bytes().partition(b"\n")
    record = json.loads(line)
    record.pop("hash", None)
    change(record)
    path.write_bytes(sealed(canonical_json(record)) + newline + rest)


def put(**fields: object) -> Change:
    """Set fields."""
    return lambda record: record.update(fields)


def in_each(name: str) -> Change:
    """Add a field to each object of a list or an object."""

    def change(record: Json) -> None:
        items = record[name]
        for item in items.values() if isinstance(items, dict) else items:
            item["wings"] = 2

    return change


def newest_entry(root: Path) -> Path:
    return max((root / "commits").glob("0*.json"))


def newest_checkpoint(root: Path) -> Path:
    return max((root / "commits" / "checkpoints").glob("*.jsonl"))


def layout(root: Path) -> Path:
    return root / "layout.json"


def disk_of(root: Path) -> Disk:
    return Disk(Files(root), SpaceWait(should_stop=lambda: True), "test")


def by_command(name: str) -> Read:
    """Run a command that reads a landing."""

    def read(root: Path) -> None:
        status = main([name, str(root)])
        assert status == EX_CONFIG
        raise ConfigError("newer")  # its words are in what it printed

    return read


def by_daemon(root: Path) -> None:
    Landing(Files(root), "second", transactions=9).open().close()


def by_spark(root: Path) -> None:
    landing = SparkLanding(root)
    list(landing.entries(landing.first_n, landing.last_n))


ALL: Final = {
    "verify": by_command("verify"),
    "gaps": by_command("gaps"),
    "run": by_daemon,
    "spark": by_spark,
}
LAYOUTS: Final = {
    "version": put(version=2),
    "capability": lambda record: record["capabilities"].append("wings"),
    "order": put(order="wings"),
}
ENTRIES: Final = {
    "version": put(version=2),
    "kind": put(kind="wings"),
    "field": put(wings=2),
    "field of a position": in_each("positions"),
    "field of a file": in_each("files"),
}
HEADERS: Final = {"version": put(version=4), "field": put(wings=2)}


def check(root: Path, reader: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused with a sentence, for which trying again is no help; nothing has changed."""
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(GaussDecodeError) as caught:
        ALL[reader](root)
    said = f"{caught.value}{capsys.readouterr().err}"
    assert caught.value.exit_status == EX_CONFIG
    assert "newer" in said or "use the program that made it" in said
    assert "restore" not in said
    assert "Traceback" not in said
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("reader", ALL)
@pytest.mark.parametrize("of", LAYOUTS)
def test_layout(root: Path, of: str, reader: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Another version, what is not known to be needed, another order."""
    rewrite(layout(root), LAYOUTS[of])
    check(root, reader, capsys)


@pytest.mark.parametrize("reader", ["verify", "gaps", "run"])
@pytest.mark.parametrize("change", [put(wings=2), in_each("sources")], ids=["layout", "source"])
def test_fields_of_the_layout(
    root: Path, change: Change, reader: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who has to agree with all of it refuses them."""
    rewrite(layout(root), change)
    check(root, reader, capsys)


@pytest.mark.parametrize("reader", ALL)
@pytest.mark.parametrize("of", ENTRIES)
def test_entry(root: Path, of: str, reader: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Another version, kind or field, also inside."""
    rewrite(newest_entry(root), ENTRIES[of])
    check(root, reader, capsys)


@pytest.mark.parametrize("reader", ["verify", "run"])
@pytest.mark.parametrize("of", HEADERS)
def test_checkpoint(root: Path, of: str, reader: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By who reads their headers."""
    rewrite(newest_checkpoint(root), HEADERS[of])
    check(root, reader, capsys)


def test_hidden_entry_is_not_removed(root: Path) -> None:
    """It may be decided: only a program that understands it can tell."""
    last = json.loads(newest_entry(root).read_bytes())
    hidden = root / hidden_entry_path(last["n"] + 1)
    shutil.copy(newest_entry(root), hidden)
    rewrite(hidden, put(n=last["n"] + 1, previous=last["hash"], kind="wings"))
    raw = hidden.read_bytes()
    with pytest.raises(ConfigError, match="newer gaussdecode"):
        by_daemon(root)
    assert hidden.read_bytes() == raw


@pytest.mark.parametrize("change", [put(version=2), put(wings=2)], ids=["version", "field"])
def test_what_is_known_of_the_mirror(root: Path, change: Change) -> None:
    """It decides which files are only there."""
    rewrite(root / "mirror.json", change)
    with pytest.raises(ConfigError, match="newer gaussdecode"):
        read_state(disk_of(root))


def test_what_is_known_of_tables(root: Path) -> None:
    """Below ``snapshots/``."""
    rewrite(root / "snapshots" / "fingerprints.json", put(version=2))
    with pytest.raises(ConfigError, match="newer gaussdecode"):
        SnapshotStore(disk_of(root)).fingerprints()


def test_schema(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under the name of its content."""
    of = {**COLUMNS, "version": 2}
    path = root / "schemas" / TABLE / f"{fingerprint(of)}.json"
    path.write_bytes(sealed(canonical_json(of)))
    with pytest.raises(ConfigError, match="newer gaussdecode"):
        SparkLanding(root).schema_record(TABLE, fingerprint(of))
    main(["verify", str(root)])
    assert "a newer gaussdecode wrote it, or one that is too old" in capsys.readouterr().err


@pytest.mark.parametrize("change", [put(version=2), put(wings=2)], ids=["version", "field"])
@pytest.mark.parametrize("of", ["target.json", "database"])
def test_target(root: Path, tmp_path: Path, of: str, change: Change) -> None:
    """What `spark apply` writes: the target, and versions of the database."""
    place = tmp_path / "target"
    target = Target.create(place, SparkLanding(root))
    target.commit_database(DatabaseVersion(1, 0, {TABLE: 0}, is_complete=True))

    def read() -> None:
        assert Target(place).database() is not None

    read()
    (path,) = [place / of] if of == "target.json" else place.rglob(f"{of}/*.json")
    record = json.loads(path.read_bytes())
    change(record)
    path.write_text(json.dumps(record))
    if of == "target.json" and "wings" in record:
        read()  # what is not looked at may be there
        return
    with pytest.raises(ConfigError, match="newer gaussdecode"):
        read()


@pytest.mark.parametrize("change", [put(format=2), put(wings=2)], ids=["version", "field"])
def test_table_of_a_target(root: Path, tmp_path: Path, change: Change) -> None:
    """What the log of its Delta table says beside the files."""
    place = tmp_path / "target"
    target = Target.create(place, SparkLanding(root))
    columns = Table("t", [Column(1, "id", pa.int32())], (1,), full=False).record()
    target.keep_schema(TABLE, "0" * 16, columns)
    target.commit_table(TABLE, TableVersion(0, 0, "0" * 16, 1))
    assert Target(place).version(TABLE, 0).n == 0
    (path,) = (place / "tables" / TABLE / "current").rglob("*.json")
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
    record = json.loads(metadata["configuration"][PROPERTY])
    change(record)
    metadata["configuration"][PROPERTY] = json.dumps(record)
    path.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(ConfigError, match="newer gaussdecode"):
        Target(place).version(TABLE, 0)


def test_target_of_an_earlier_program(root: Path, tmp_path: Path) -> None:
    """Its tables had a format of their own: what to do is said."""
    place = tmp_path / "target"
    Target.create(place, SparkLanding(root))
    record = json.loads((place / "target.json").read_bytes())
    (place / "target.json").write_text(json.dumps({**record, "layout": 3}))
    with pytest.raises(ConfigError, match="newer gaussdecode"):
        Target(place)
    del record["layout"]
    (place / "target.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"(?s)earlier version.*an empty directory"):
        Target(place)
