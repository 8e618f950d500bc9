"""Two daemons where there should be one: the second stands back, the first goes on."""

from collections.abc import Callable

import pytest
from kit import oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database
from kit.workload import prepare

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def test_same_root(database_15: Database, make_daemon: MakeDaemon) -> None:
    """The second daemon over a landing ends with a clear error and touches nothing."""
    workload = prepare(database_15, 40)
    first, second = make_daemon(database_15), make_daemon(database_15)
    second.root = first.root
    second.write_config(landing={"root": str(first.root)})
    with first:
        first.wait_for_state("streaming")
        second.start()
        assert second.wait() != 0
        assert str(first.root) in second.log.read_text()
        workload.run(60)
        first.catch_up()
        assert first.stop() == 0
    oracle.check(first.root, database_15)


def test_same_slot(database_15: Database, make_daemon: MakeDaemon) -> None:
    """The second daemon on a slot does not stream, whatever it does instead."""
    workload = prepare(database_15, 41)
    first, second = make_daemon(database_15), make_daemon(database_15)
    with first:
        first.wait_for_state("streaming")
        with second:
            wait_until(
                lambda: not second.is_running or (second.status() or {}).get("state") == "retrying",
                "the second to stand back",
            )
            workload.run(60)
            first.catch_up()
            # at most it says that the first one has moved the slot
            assert {entry["kind"] for entry in second.entries()} <= {"genesis", "gap"}
        assert first.stop() == 0
    oracle.check(first.root, database_15)
