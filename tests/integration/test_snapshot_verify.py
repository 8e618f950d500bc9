"""What was read of a table is compared with what the server counts and adds up."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import Workload

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_TABLES = """
CREATE TABLE kit.ids (id int8 PRIMARY KEY);
INSERT INTO kit.ids SELECT generate_series(1, 500);
CREATE TABLE kit.odd (c char(4), b bool, p point, r int4range, a text[]);
INSERT INTO kit.odd VALUES ('', true, '(1,2)', '[1,5)', '{a,NULL}'), (NULL, false, NULL, NULL, '{}');
CREATE TABLE kit.nothing ();
INSERT INTO kit.nothing DEFAULT VALUES;
"""


def _is_done(daemon: Daemon) -> bool:
    tables = ((daemon.status() or {}).get("snapshot") or {}).values()
    return bool(tables) and all(table["state"] in ("done", "failed") for table in tables)


def test_checksums(database: Database, make_daemon: MakeDaemon) -> None:
    """Tables of all types pass; one whose rows are not what was summed up fails, the others go on."""
    workload = Workload(database, 4)
    workload.create()
    workload.run(30)
    database.execute(_TABLES)
    database.create_slot()
    snapshot = {"mode": "initial", "verify": "checksums", "chunk-bytes": "64KiB"}
    with make_daemon(database, config={"snapshot": snapshot}) as daemon:
        daemon.wait_while_running(lambda: _is_done(daemon), "all tables")
        tables = daemon.record()["snapshot"]
        assert {table["state"] for table in tables.values()} == {"done"}, tables
        command = [sys.executable, "-m", "gaussdecode", "snapshot", str(daemon.config_path)]
        command += ["--table", "kit.ids", "--where", "random() < 0.5"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert asked.returncode == 69, asked.stdout
        assert re.search(r"the server reports \d+ rows with checksum -?\d+", asked.stderr), (
            asked.stderr
        )
        workload.run(5)
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, database, only_journal=False)
    ids = [c for c in landing.read(daemon.root).effective() if c.schema.table == ("kit", "ids")]
    assert len(ids) == 500
