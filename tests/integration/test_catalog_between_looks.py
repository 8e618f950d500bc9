"""What comes and goes between two looks at the catalogue, or is altered before the first one."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from kit import targets
from kit.daemon import Daemon
from kit.postgres import Database

pytestmark = pytest.mark.integration

_ROOT: Final = "(id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k)"
_NEW_ROOT: Final = (
    f"CREATE TABLE {{n}} {_ROOT}; CREATE TABLE {{n}}_1 PARTITION OF {{n}} FOR VALUES IN (1);"
    "CREATE TABLE {n}_2 PARTITION OF {n} FOR VALUES IN (2); INSERT INTO {n} VALUES (1, 1), (2, 2)"
)
_BORN: Final = (
    "CREATE TABLE {t}_9 PARTITION OF {t} FOR VALUES IN (9); INSERT INTO {t} VALUES (1, 9)"
)
_TREE: Final = (
    "CREATE TABLE {t}_8 PARTITION OF {t} FOR VALUES IN (8) PARTITION BY LIST (id);"
    "CREATE TABLE {t}_8d PARTITION OF {t}_8 DEFAULT; INSERT INTO {t} VALUES (1, 8);"
    "ALTER TABLE {t} DETACH PARTITION {t}_8; INSERT INTO {t}_8 VALUES (2, 8)"
)
_NEW: Final = "CREATE TABLE {n} (id int PRIMARY KEY, k int); INSERT INTO {n} VALUES (1, 1), (2, 2)"
_LOGGED: Final = "ALTER TABLE {n} SET LOGGED; INSERT INTO {n} VALUES (3, 3)"
_MADE: Final = "CREATE TABLE {n} (id int PRIMARY KEY, k int)"
_WRITTEN: Final = "its file was replaced"
_GONE: Final = "meanwhile, and its rows went with it"
_ANEW: Final = "it was dropped and made anew"

# What happens to a table {t} that is known, or to one {n} that is not; what the log says; whether
# the log can say it where all is one transaction.
_CASES: Final[dict[str, tuple[str, str | None, bool]]] = {
    "born_dropped": (f"{_BORN}; DROP TABLE {{t}}_9", _GONE, True),
    "born_truncated": (f"{_BORN}; TRUNCATE {{t}}_9", _WRITTEN, False),
    "born_detached": (f"{_BORN}; ALTER TABLE {{t}} DETACH PARTITION {{t}}_9", _GONE, True),
    "tree_detached": (_TREE, _GONE, True),
    "born": (_BORN, None, True),
    "root": (_NEW_ROOT, None, True),
    "root_dropped": (f"{_NEW_ROOT}; DROP TABLE {{n}}_1", _GONE, True),
    "root_truncated": (f"{_NEW_ROOT}; TRUNCATE {{n}}_1", _WRITTEN, False),
    "root_emptied": (f"{_NEW_ROOT}; TRUNCATE {{n}}; INSERT INTO {{n}} VALUES (3, 1)", None, True),
    "new": (_NEW, None, True),
    "constant": (f"{_NEW}; ALTER TABLE {{n}} ADD c int DEFAULT 7", None, True),
    "retyped": (f"{_NEW}; ALTER TABLE {{n}} ALTER k TYPE int8 USING k * 2", _WRITTEN, True),
    "volatile": (f"{_NEW}; ALTER TABLE {{n}} ADD c float DEFAULT random()", _WRITTEN, True),
    "unlogged": (f"{_NEW.replace('TABLE', 'UNLOGGED TABLE')}; {_LOGGED}", _WRITTEN, True),
    "logged": (
        f"{_NEW}; ALTER TABLE {{n}} SET UNLOGGED; DELETE FROM {{n}} WHERE id = 1; {_LOGGED}",
        _WRITTEN, True),
    "emptied": (f"{_NEW}; TRUNCATE {{n}}; INSERT INTO {{n}} VALUES (3, 3)", None, True),
    "twice": (f"{_NEW}; DROP TABLE {{n}}; {_MADE}", _ANEW, True),
    "twice_filled": (f"{_NEW}; DROP TABLE {{n}}; {_NEW}", _ANEW, True),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["down", "once"])
@pytest.mark.parametrize("postgres", [15, 18], indirect=True)
def test_equal_or_named(
    database: Database, make_daemon: Callable[..., Daemon], tmp_path: Path, mode: str
) -> None:
    """While the daemon is down, and in one transaction while it streams; what needs no word gets none."""
    name = database.publication
    database.execute(
        f'DROP PUBLICATION "{name}"; '
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root)'
    )
    for case in _CASES:
        database.execute(
            f"CREATE TABLE t_{case} {_ROOT};"
            f"CREATE TABLE t_{case}_1 PARTITION OF t_{case} FOR VALUES IN (1)"
        )
    database.create_slot()
    with make_daemon(database) as daemon:
        for case in _CASES:
            database.execute(f"INSERT INTO t_{case} VALUES (7, 1)")
        daemon.catch_up()
        if mode == "down":
            assert daemon.stop() == 0
        for case, (text, _, _) in _CASES.items():
            commands = text.format(t=f"t_{case}", n=f"n_{case}")
            if mode == "down":
                for command in commands.split(";"):
                    database.execute(command)
            else:
                database.execute(f"BEGIN; {commands}; COMMIT")
        if mode == "down":
            daemon.start()
        daemon.catch_up()
        daemon.catch_up()
        assert daemon.stop() == 0
    summary = targets.apply_local(daemon.root, tmp_path / "target")
    for case, (_, wanted, is_told_at_once) in _CASES.items():
        said = [summary.stopped.get(f"public.{kind}_{case}") for kind in "tn"]
        if mode == "down" or is_told_at_once:
            assert any(said) == (wanted is not None), (case, said)
            assert wanted is None or any(wanted in (of or "") for of in said), (case, said)
    found = targets.compare(database, summary, tmp_path / "target")
    assert summary.stopped.get("public.t_tree_detached_8", "").startswith("it was a partition of")
    hidden = {case for case, (*_, is_told) in _CASES.items() if not is_told and mode == "once"}
    named = {
        name
        for entry in daemon.entries()
        if entry["kind"] == "suspect"
        for name in entry["extra"]["tables"]
    }
    assert {title[9:] for title in found.different.keys() - named} <= hidden, found.different
