"""Connections beside the stream give up where nothing comes back and nothing breaks either."""

import contextlib
from collections.abc import Callable

import pytest
from kit.daemon import Daemon
from kit.postgres import Database
from kit.proxy import Fault, Proxy

from gaussdecode.errors import SourceError
from gaussdecode.settings.load import load
from gaussdecode.source.address import source_address
from gaussdecode.source.postgresql import catalog, probe
from gaussdecode.source.postgresql.catalog import Catalog
from gaussdecode.source.postgresql.probe import PostgresProbe

pytestmark = pytest.mark.integration


def test_guard_and_catalogue_give_up_and_connect_again(
    database_15: Database,
    make_daemon: Callable[..., Daemon],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy that keeps connections alive and carries nothing is found by ourselves."""
    monkeypatch.setattr(probe, "_PATIENCE", 1.0)
    monkeypatch.setattr(catalog, "_LATE", 1.0)
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database_15.create_slot()
    ((oid,),) = database_15.execute("SELECT 'public.t'::regclass::oid::int8")
    port = database_15.server.port
    with Proxy(port) as proxy:
        dsn = database_15.dsn.replace(f"port={port}", f"port={proxy.port}")
        config = load(make_daemon(database_15, dsn=dsn).config_path)
        with contextlib.closing(PostgresProbe(source_address(config), database_15.slot)) as guard:
            assert guard.look().confirmed_lsn
            proxy.plan(Fault.BLACKHOLE, 0)
            with pytest.raises(SourceError, match="has not answered for 1 seconds"):
                guard.look()
            assert guard.look().confirmed_lsn
        with Catalog(config) as columns:
            query = f"SELECT relname FROM pg_class WHERE oid = {oid}"
            assert columns.ask(lambda session: session.query(query), 0.5) == [("t",)]
            proxy.plan(Fault.BLACKHOLE, 0)
            again = columns.ask(lambda session: session.query(query), 0.5)
            assert again == [("t",)], "over another connection"
        assert proxy.faults == 2
