"""Targets and other readers of a landing of simulated GaussDB servers, against the servers' tables."""

from collections.abc import Mapping
from pathlib import Path

from gaussdecode.land.names import table_directory
from gaussdecode.spark.target.store import Target
from kit import oracle
from kit.applied import newest
from kit.gausscheck import rows_of
from kit.gaussserver import GaussServer
from kit.stranger import Reader
from kit.targets import apply_local, state_of, stranger_state


def check_targets(root: Path, target: Path, servers: Mapping[str, GaussServer]) -> None:
    """A target that is brought up to a landing has the servers' rows, and so has a reader by its format's page.

    Args:
        root: of the landing.
        target: may be there.
        servers: by name of the source, one or several.
    """
    summary = apply_local(root, target, accept_hidden_truncates=True)
    assert not summary.stopped, summary.stopped
    store = Target(target)
    for name, server in servers.items():
        source = name if len(servers) > 1 else None
        read = Reader(root, source=source).advance()
        for where, table in server.store.tables.items():
            rows, directory = rows_of(server, table), table_directory(*where)
            if directory not in read.tables:
                assert not rows, where
                continue
            oracle.compare(where, stranger_state(read.tables[directory]), rows)
            schema, held = newest(store, directory)
            own = [row for row in held if source is None or row["gd_source"] == source]
            oracle.compare(where, state_of(schema, own), rows)
