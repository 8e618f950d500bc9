"""Readers of the commit log make the source's tables from snapshots and changes."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import SUSPECTS, Workload

from gaussdecode.demo.proof import spark_session
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.spark.query import current

pytestmark = [pytest.mark.integration, pytest.mark.spark]
MakeDaemon = Callable[..., Daemon]
_TABLES = ("big", "types", "toast", "bag_full", "bag", "empty", "pair_key", "parent", "shape")


def _run(*arguments: str, may_stop: str = "") -> None:
    """Run a command; tables of which not all is known yet may stand still, as it says."""
    done = subprocess.run(
        [sys.executable, "-m", "gaussdecode", *arguments],
        check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    stopped = re.findall(r"(\S+) stands still, the other tables go on", done.stderr)
    assert done.returncode == (EX_CONFIG if stopped else EX_OK), done.stderr
    assert [name for name in stopped if not re.fullmatch(may_stop, name)] == [], done.stderr


def _is_done(daemon: Daemon) -> bool:
    tables = (daemon.status() or {}).get("snapshot") or {}
    return bool(tables) and all(table["state"] == "done" for table in tables.values())


def test_spark_applies_snapshots(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applied in two steps, with tables repaired in between, the target has the source's rows."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    workload = Workload(database_15, 7)
    workload.create()
    workload.run(40)
    database_15.execute(
        "CREATE TABLE kit.big (id int8 PRIMARY KEY, v text);"
        "INSERT INTO kit.big SELECT g, repeat(md5(g::text), 3) FROM generate_series(1, 20000) g;"
        "CREATE TABLE kit.empty (id int4 PRIMARY KEY)"
    )
    database_15.create_slot()
    config = {"snapshot": {"mode": "initial", "chunk-bytes": "512KiB"}}
    daemon = make_daemon(database_15, config=config).start()
    target = str(tmp_path / "target")
    daemon.wait_for_state("streaming")
    workload.start(pause=0.05)
    apply = ("spark", "apply", str(daemon.root), target, "--local", "--history", "--buckets", "2")
    daemon.wait_while_running(
        lambda: daemon.record()["snapshot"].get("kit.big", {}).get("state") == "done",
        "the large table",
    )
    _run(*apply, may_stop=SUSPECTS)  # a snapshot says what they are
    database_15.execute("DELETE FROM kit.big WHERE id % 10 = 0; UPDATE kit.big SET id = -id")
    workload.finish()
    asked = [f"--table=kit.{name}" for name in ("big", "bag_full", "toast", "shape")]
    renamed = database_15.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    asked += [f"--table=public.{name}" for (name,) in renamed if re.fullmatch(r"\w+_old", name)]
    _run("snapshot", str(daemon.config_path), *asked)
    daemon.wait_while_running(lambda: _is_done(daemon), "all tables")
    daemon.catch_up()
    assert daemon.stop() == 0
    _run(*apply)
    (tmp_path / "spark").mkdir()
    with spark_session(tmp_path / "spark") as spark:
        for name in _TABLES:
            ((rows,),) = database_15.execute(f"SELECT count(*) FROM kit.{name}")
            assert current(spark, target, f"kit.{name}").count() == rows, name
        landed = current(spark, target, "kit.big").toArrow().to_pydict()
        source: dict[object, object] = dict(database_15.execute("SELECT id, v FROM kit.big"))
        assert dict(zip(landed["id"], landed["v"], strict=True)) == source
