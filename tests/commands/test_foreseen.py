"""What `check` foresees before a slot is made: partitions unlike their table, rows that a role does not see."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from kit.commands import Configure, Run
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

from gaussdecode.errors import EX_OK

pytestmark = pytest.mark.integration
PARTITIONED = (
    "CREATE TABLE public.r (id int4 {key}, v text) PARTITION BY RANGE (id);"
    "CREATE TABLE public.r1 PARTITION OF public.r FOR VALUES FROM (0) TO (100);"
    "CREATE TABLE public.r2 PARTITION OF public.r FOR VALUES FROM (100) TO (200)"
)
UNLIKE = "partitions have another replica identity than the table they are sent as: "
HIDDEN = "row-level security keeps rows"


def publish(database: Database, *, via_root: bool) -> None:
    """Have all tables published, partitions by their own names or not."""
    database.execute(f"DROP PUBLICATION {database.publication}")
    database.execute(
        f"CREATE PUBLICATION {database.publication} FOR ALL TABLES "
        f"WITH (publish_via_partition_root = {str(via_root).lower()})"
    )


@pytest.mark.parametrize(
    ("key", "commands", "named"),
    [
        ("", "ALTER TABLE public.r1 REPLICA IDENTITY FULL", "public.r1 of public.r"),
        ("PRIMARY KEY", "ALTER TABLE public.r REPLICA IDENTITY FULL", "public.r1 of public.r, public.r2"),
        ("PRIMARY KEY", "ALTER TABLE public.r2 REPLICA IDENTITY NOTHING", "public.r2 of public.r"),
        ("PRIMARY KEY", "ALTER TABLE public.r1 REPLICA IDENTITY FULL", None),
        ("PRIMARY KEY", "SELECT", None),
    ],
)  # fmt: skip
def test_partitions_with_another_replica_identity(
    database_15: Database,
    configure: Configure,
    run: Run,
    key: str,
    commands: str,
    named: str | None,
) -> None:
    """As far as their old rows do not tell what the table's would; not where they come by themselves."""
    database_15.execute(PARTITIONED.format(key=key))
    database_15.execute(commands)
    publish(database_15, via_root=True)
    path = configure(database_15)
    said = run("check", path).out
    assert (UNLIKE in said) is (named is not None), said
    assert named is None or f"{UNLIKE}{named}" in said
    publish(database_15, via_root=False)
    assert UNLIKE not in run("check", path).out


@pytest.fixture
def reader(database_15: Database) -> Iterator[str]:
    """A role that may read everything, as far as no row is kept from it."""
    role = f"reader_{database_15.name}"
    database_15.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    database_15.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    yield role
    database_15.execute(f"DROP OWNED BY {role}")
    database_15.execute(f"DROP ROLE {role}")


def test_row_level_security(
    database_15: Database,
    configure: Configure,
    run: Run,
    reader: str,
    make_daemon: Callable[..., Daemon],
) -> None:
    """No snapshot of some of the rows; the message says what helps, and that does help."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database_15.execute("INSERT INTO public.t SELECT generate_series(1, 10)")
    database_15.execute("CREATE POLICY few ON public.t USING (id < 5)")
    database_15.execute("ALTER TABLE public.t ENABLE ROW LEVEL SECURITY")
    database_15.execute(f"GRANT SELECT ON public.t TO {reader}")
    user = psycopg.conninfo.conninfo_to_dict(database_15.dsn)["user"]
    dsn = database_15.dsn.replace(f"user={user}", f"user={reader}")
    path = Path(configure(database_15))
    path.write_text(path.read_text().replace(database_15.dsn, dsn))
    said = run("check", str(path)).out
    assert f"{HIDDEN} from role {reader}: public.t" in said
    assert f'ALTER ROLE "{reader}" BYPASSRLS' in said
    database_15.create_slot()
    daemon = make_daemon(database_15, dsn=dsn, config={"snapshot": {"mode": "initial"}})
    with daemon:
        wait_until(
            lambda: daemon.log.exists() and "row-level security" in daemon.log.read_text(),
            "the refusal",
        )
        assert "GRANT" not in daemon.log.read_text()
        assert not any(file for entry in daemon.entries() for file in entry["files"])
        database_15.execute(f"ALTER ROLE {reader} BYPASSRLS")
        assert run("snapshot", str(daemon.config_path), "--table", "public.t").status == EX_OK
        wait_until(
            lambda: any(
                file["ops"] == {"R": 10} for entry in daemon.entries() for file in entry["files"]
            ),
            "all rows",
        )
        assert daemon.stop() == EX_OK
    said = run("check", str(path)).out
    assert HIDDEN not in said
    assert "more than it needs" not in said
