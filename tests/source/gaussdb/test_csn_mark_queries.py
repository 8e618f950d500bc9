"""Questions of a round as SQL, and what the rows of a server say."""

from typing import Any

import pytest

from gaussdecode.errors import SequenceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.gaussdb.csn_mark_queries import Marker, answer_of
from gaussdecode.source.gaussdb.csn_mark_rules import Mark, Running, Session, What


class Scripted:
    """Stands for a connection: gives the rows that are laid down, by a word of the question."""

    def __init__(self, **rows: Any) -> None:  # Any: rows as the connection gives them
        self.rows = rows

    def query_table(self, sql: str) -> Any:
        """See `GaussConnection`."""
        (found,) = [rows for word, rows in self.rows.items() if word in sql]
        if isinstance(found, Exception):
            raise found
        return found


def scripted(**changes: Any) -> Any:  # Any: taken for a connection
    """A server on which nothing runs."""
    rows = {
        "insert_location": [{"location": "0/10"}],
        "next_xid_csn": [{"node_name": "dn1", "next_xid": "9", "next_csn": "8589934597"}],
        "running_xacts": [{"gxid": "0", "pid": "77"}],
        "stat_activity": [{"pid": "77", "state": "active", "query_start": "q1"}],
    }
    return Scripted(**(rows | changes))


def test_a_quiet_server_gives_a_mark_at_once() -> None:
    """Its CSN needs more than 32 bits; sessions without a transaction are not waited for."""
    marker = Marker({"a": scripted()}, is_clock_local=True)
    assert marker.step() == Mark((1 << 33) + 4, {"a": Lsn(16)}, {"a": Lsn(16)})


def test_what_runs_is_waited_for_and_the_round_goes_on() -> None:
    """The mark comes when it has left."""
    server = scripted(running_xacts=[{"gxid": "5", "pid": "77"}])
    marker = Marker({"a": server}, is_clock_local=True)
    assert marker.step() is None
    assert marker.waiting == {("a", Running(5, 77))}
    server.rows["running_xacts"] = []
    assert marker.step() is not None


def test_rows_without_a_thread_or_a_state_are_kept_as_such() -> None:
    """A prepared transaction has pid 0."""
    assert answer_of(What.RUNNING, [{"gxid": "5", "pid": "0"}]) == frozenset([Running(5, None)])
    row = {"pid": "7", "state": None, "query_start": None}
    assert answer_of(What.ACTIVITY, [row]) == frozenset([Session(7, None, None)])


@pytest.mark.parametrize("csn", [None, "", "0", "-1", "x", "1_0", str(2**62), str(2**70)])
def test_a_csn_that_cannot_be_is_no_mark(csn: str | None) -> None:
    """Above the flags of a CSN, below the first one, or no number."""
    rows = [{"node_name": "dn1", "next_csn": csn}]
    marker = Marker({"a": scripted(next_xid_csn=rows)}, is_clock_local=True)
    with pytest.raises(SequenceError, match=r"a: gs_get_next_xid_csn\(\) .*from 1 to"):
        marker.step()


@pytest.mark.parametrize("location", [None, "", "0/0", "x", "1/2/3"])
def test_a_position_that_cannot_be_is_no_mark(location: str | None) -> None:
    """No position, or the one that stands for none."""
    marker = Marker({"a": scripted(insert_location=[{"location": location}])}, is_clock_local=True)
    with pytest.raises(SequenceError, match=r"a: pg_current_xlog_insert_location\(\)"):
        marker.step()


def test_a_log_that_goes_back_is_no_mark() -> None:
    """Within a round, and from one to the next."""
    server = scripted()
    marker = Marker({"a": server}, is_clock_local=True)
    assert marker.step() is not None
    server.rows["insert_location"] = [{"location": "0/8"}]
    with pytest.raises(
        SequenceError, match=r"a reports the end of its WAL at 0/8, after 0/10 before"
    ):
        marker.step()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (SourceRefusedError("command: permission denied", "42501"), r"GRANT EXECUTE"),
        ([{"other": "1"}], r"gives an unknown answer"),
        ([], r"gives an unknown answer"),
    ],
)
def test_a_server_that_does_not_answer_is_named_with_the_function(answer: Any, told: str) -> None:
    """The error says what to do."""
    marker = Marker({"a": scripted(next_xid_csn=answer)}, is_clock_local=True)
    with pytest.raises(SourceRefusedError, match=rf"a: .*gs_get_next_xid_csn\(\).*{told}"):
        marker.step()
