"""Columns whose values no table of a target shows, over renames, retypes and old rows."""

import datetime as dt
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.csnhistory import SharedHistory
from kit.history import Column, History, Table
from kit.postgres import Database

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK, ConfigError
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.masks import read_key, read_masks
from gaussdecode.spark.maintain.upkeep import compact_with
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

KEY = b"0123456789abcdef-of-tests"
SECRET = "secret"  # every value that must not be seen begins with it
RULES = "public.people=email:hash,phone:null,name:keep(2),born:null"


def hashed(text: str) -> str:
    """What a text is under the key."""
    return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


class People:
    """A landing of one table, written change by change."""

    def __init__(self, root: Path, *, full: bool = True) -> None:
        self.root = root
        names = {"id": pa.int32(), "email": pa.string(), "phone": pa.string(), "name": pa.string(),
                 "born": pa.int32(), "city": pa.string()}  # fmt: skip
        self.columns = [Column(i, n, t) for i, (n, t) in enumerate(names.items(), 1)]
        self.table = Table("people", self.columns, (1,), full=full)
        self.source = History(root / "landing", 1, with_schema_changes=False, tables=[self.table])

    def land(self, *changes: tuple[str, Any, Any]) -> None:
        """Commit changes: operation, row and old row, by number of the column."""
        self.source.lsn += 10
        for seq, (op, new, old) in enumerate(changes):
            self.source.land(self.table, seq, op, new, old, [])
        self.source.commit()

    def person(self, number: int, born: int | None = 1) -> dict[int, Any]:
        """A row."""
        told = {at: f"{SECRET}{number}-{at}" for at in (2, 3, 4)}
        return {1: number, **told, 5: born, 6: f"city{number}"}

    def apply(self, masks: str | None = RULES, key: bytes = KEY, **options: Any) -> None:
        """Bring the target to the end of the log."""
        made = Options(
            history=True, changelog="gd_commit_date", mask_key=key,
            masks=None if masks is None else read_masks([masks], key), **options,
        )  # fmt: skip
        apply_with(LocalEngine(), self.root / "landing", self.root / "target", made)

    def rows(self) -> list[dict[str, Any]]:
        """Current rows."""
        store = Target(self.root / "target")
        version = store.newest("public.people")
        assert version is not None
        root = store.table_root("public.people")
        found = [row for file in version.current for row in current_rows(root, file).to_pylist()]
        return sorted(found, key=lambda row: row["id"])

    def seen(self) -> list[str]:
        """Values in any file of the target, statistics and logs too, that must not be seen."""
        found = []
        for path in (self.root / "target").rglob("*"):
            if path.suffix == ".parquet":
                text = repr(pq.read_table(path, partitioning=None).to_pylist())
                text += repr(pq.read_metadata(path).to_dict())
            else:
                text = path.read_text(errors="replace") if path.is_file() else ""
            found += [str(path)] if SECRET in text else []
        return found


@pytest.mark.parametrize("full", [True, False])
def test_values_are_in_no_file(tmp_path: Path, *, full: bool) -> None:
    """Rows, rows before, histories and changes; a hash is the same for the same text, NULL stays NULL."""
    people = People(tmp_path, full=full)
    first, second = people.person(1), people.person(2)
    nothing = {1: 3, 2: None, 3: None, 4: None, 5: None, 6: None}
    people.land(("I", first, None), ("I", second, None), ("I", nothing, None))
    people.apply()
    changed = {**first, 2: f"{SECRET}9"}
    people.land(("U", changed, first if full else None), ("D", None, second))
    people.apply(masks=None)
    compact_with(LocalEngine(), tmp_path / "target", buckets=2)
    assert people.seen() == []
    one, three = people.rows()
    shown = ("email", "phone", "name", "born", "city")
    assert tuple(one[name] for name in shown) == (hashed(f"{SECRET}9"), None, "se", None, "city1")
    assert tuple(three[name] for name in shown) == (None,) * 5


def test_masks_follow_columns(tmp_path: Path) -> None:
    """Under a later name, in a column made anew under the name, and after a change of type."""
    people = People(tmp_path)
    people.land(("I", people.person(1), None))
    people.apply()
    email, phone = people.columns[1], people.columns[2]
    email.name = "mail"
    people.land(("I", people.person(2), None))
    people.apply(masks=None)
    assert [row["mail"] for row in people.rows()] == [hashed(f"{SECRET}{n}-2") for n in (1, 2)]
    people.columns.append(Column(7, "email", pa.string()))
    people.columns.remove(phone)
    people.land(("I", {**people.person(3), 7: f"{SECRET}7"}, None))
    people.apply(masks=None)
    assert people.rows()[-1]["email"] == hashed(f"{SECRET}7")
    assert people.rows()[-1]["mail"] == hashed(f"{SECRET}3-2")
    assert people.seen() == []


def test_a_key_may_be_hashed(tmp_path: Path) -> None:
    """Rows stay apart, and updates and deletions find them; any other rule is refused."""
    people = People(tmp_path)
    people.table.key = (2,)
    people.land(("I", people.person(1), None), ("I", people.person(2), None))
    with pytest.raises(ConfigError, match=r"is in the key.*only hash can mask it"):
        people.apply("public.people=email:null")
    people.root = tmp_path
    other = tmp_path / "other"
    made = Options(masks=read_masks(["public.people=email:hash"], KEY), mask_key=KEY)
    apply_with(LocalEngine(), tmp_path / "landing", other, made)
    moved = {**people.person(1), 2: f"{SECRET}x", 6: "moved"}
    people.land(("U", moved, people.person(1)), ("D", None, people.person(2)))
    summary = apply_with(LocalEngine(), tmp_path / "landing", other, Options(mask_key=KEY))
    assert summary.unmatched == {}
    version = Target(other).newest("public.people")
    assert version is not None
    rows = [
        row
        for file in version.current
        for row in current_rows(Target(other).table_root("public.people"), file).to_pylist()
    ]
    assert [(row["email"], row["city"]) for row in rows] == [(hashed(f"{SECRET}x"), "moved")]


@pytest.mark.parametrize(
    ("masks", "key", "why"),
    [
        ("public.people=emial:null", KEY, "has no column 'emial' to mask; it has: born, city"),
        ("public.nobody=a:null", KEY, "has no table|no table"),
        ("public.people=email:hash", b"", "hash needs a key: give --mask-key"),
        ("public.people=born:hash", KEY, "'born' is int32: hash and keep are for texts"),
        ("public.people=email:md5", KEY, r"mask 'md5' is none: give null, hash or keep\(NUMBER\)"),
        ("public.people", KEY, "give TABLE=COLUMN:RULE"),
    ],
)
def test_masks_that_cannot_be(masks: str, key: bytes, why: str, tmp_path: Path) -> None:
    """Are refused in a sentence, and no row is written."""
    people = People(tmp_path)
    people.land(("I", people.person(1), None))
    with pytest.raises(ConfigError, match=why):
        people.apply(masks, key)
    assert not list(tmp_path.glob("target/**/*.parquet"))


def test_masks_stay_what_they_are(tmp_path: Path) -> None:
    """Others, another key, none at first: each is refused, and nothing is shown."""
    people = People(tmp_path)
    people.land(("I", people.person(1), None))
    people.apply()
    people.land(("I", people.person(2), None))
    with pytest.raises(ConfigError, match="give --mask-key, with the key that its first apply had"):
        people.apply(masks=None, key=b"")
    with pytest.raises(ConfigError, match="with the key that its first apply had"):
        people.apply(masks=None, key=b"another key of tests")
    with pytest.raises(ConfigError, match="was made with other masks, which it keeps"):
        people.apply("public.people=email:null")
    people.apply()
    assert (len(people.rows()), people.seen()) == (2, [])
    plain = People(tmp_path / "plain")
    plain.land(("I", plain.person(1), None))
    plain.apply(masks=None)
    with pytest.raises(ConfigError, match="was made with no masks, which it keeps"):
        plain.apply()


def test_commands(
    database_15: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are masked; verify leaves the columns out, and says so; short keys are refused."""
    landing, target, key = tmp_path / "landing", tmp_path / "target", tmp_path / "key"
    key.write_bytes(KEY + b"\n")
    key.chmod(0o600)

    columns = [
        Column(1, "id", pa.int64()),
        Column(2, "email", pa.string()),
        Column(3, "born", pa.date32()),
    ]
    table = Table("people", columns, (1,), full=False)
    source = History(landing, 1, with_schema_changes=False, tables=[table])
    for g in range(1, 51):
        source.land(table, g, "I", {1: g, 2: f"{SECRET}{g}", 3: dt.date(2000, 1, 1)}, None, [])
    source.commit()
    database_15.execute("CREATE TABLE public.people (id int8 PRIMARY KEY, email text, born date)")
    database_15.execute(
        f"INSERT INTO people SELECT g, '{SECRET}' || g, '2000-01-01' FROM generate_series(1, 50) g"
    )
    config = tmp_path / "s.yaml"
    config.write_text(
        f"slot: s\nsource: {{kind: postgresql, dsn: {database_15.dsn} sslmode=disable, "
        f"publication: [{database_15.publication}], allow-insecure: true}}\nlanding: {{root: {landing}}}\n"
    )
    config.chmod(0o600)
    masks = ["--mask", "public.people=email:hash,born:null", "--mask-key", str(key)]
    source.writer.entry(EntryKind.IDLE, 1 << 50)  # beyond any view's position
    assert main(["spark", "apply", str(landing), str(target), "--local", *masks]) == EX_OK
    people = People(tmp_path / "x")
    people.root = tmp_path
    assert [row["email"] for row in people.rows()] == [hashed(f"{SECRET}{n}") for n in range(1, 51)]
    assert people.seen() == []
    capsys.readouterr()
    verify = ["spark", "verify", str(landing), str(target), "--config", str(config), "--local"]
    assert main([*verify, "--json"]) == EX_OK
    assert '"not_compared": ["born", "email"]' in capsys.readouterr().out
    key.write_bytes(b"short")
    words = ["spark", "apply", str(landing), str(tmp_path / "y"), "--local", *masks]
    assert main(words) == EX_CONFIG
    assert "has 5 bytes; give at least 16" in capsys.readouterr().err
    key.chmod(0o640)
    with pytest.raises(ConfigError, match="others can read it; chmod 0600"):
        read_key(key)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key(tmp_path / "none")


def test_rows_of_several_sources(tmp_path: Path) -> None:
    """A mask is of the column of each source, which has another name by now; rows are those of a target without it, but for its values."""
    source = SharedHistory(tmp_path / "landing", 1)
    source.run(6)
    masks = read_masks(["public.plain=a:null"])
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "masked", Options(masks=masks))
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "plain")
    found = []
    for name in ("masked", "plain"):
        store = Target(tmp_path / name)
        version = store.newest("public.plain")
        assert version is not None
        root = store.table_root("public.plain")
        rows = [row for file in version.current for row in current_rows(root, file).to_pylist()]
        found.append(rows)
    masked, plain = found
    assert {row["z_a2"] for row in masked} == {None}
    assert {row["z_a2"] for row in plain} > {None}
    spelled = [
        sorted(repr({**row, "z_a2": None, "gd_raw": None}) for row in rows)
        for rows in (masked, plain)
    ]
    assert spelled[0] == spelled[1]
