"""What a probe says of transactions that hold a slot back, on a real server."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from kit.daemon import Daemon
from kit.postgres import Database, Postgres

from gaussdecode.settings.load import load
from gaussdecode.source.address import source_address
from gaussdecode.source.postgresql.probe import PostgresProbe

pytestmark = pytest.mark.integration


@pytest.fixture
def database() -> Iterator[Database]:
    """On a server that may prepare transactions."""
    with Postgres(15, {"max_prepared_transactions": "2"}) as server:
        yield Database(server, "held")


def test_old_transactions_and_their_age_are_seen(
    database: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """An open one, then an older one that is prepared; and what passes since the slot's oldest."""
    database.execute("CREATE TABLE public.t (id int4)")
    database.create_slot()
    config = load(make_daemon(database).config_path)
    with contextlib.closing(PostgresProbe(source_address(config), database.slot)) as probe:
        before = probe.look()
        assert before.transaction_seconds is None
        assert before.prepared_seconds is None
        assert before.catalog_xmin_age is not None
        for _ in range(50):
            database.execute("INSERT INTO public.t VALUES (1)")
        with database.connect() as forgotten:
            forgotten.autocommit = False
            forgotten.execute("INSERT INTO public.t VALUES (2)")
            seen = probe.look()
            assert seen.transaction_seconds is not None
            assert seen.catalog_xmin_age is not None
            assert seen.catalog_xmin_age >= before.catalog_xmin_age + 50
            assert seen.frozen_age is not None
            assert seen.frozen_age >= seen.catalog_xmin_age
            forgotten.execute("PREPARE TRANSACTION 'forgotten'")
        seen = probe.look()
        assert seen.transaction_seconds is None
        assert seen.prepared_seconds is not None
        database.execute("ROLLBACK PREPARED 'forgotten'")
        assert probe.look().prepared_seconds is None
