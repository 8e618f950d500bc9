"""Ask the nodes the questions of a mark, over an ordinary connection to each.

Rows are read by column name, because versions differ. No role needs a right for its questions on
openGauss; one that may not see the states of others' sessions waits for their transactions to end.
"""

from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import SequenceError, SourceError, SourceRefusedError
from gaussdecode.model.csns import MOST_CSN
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.export import NO_PRIVILEGE
from gaussdecode.source.gaussdb.connection import EMPTY, GaussConnection
from gaussdecode.source.gaussdb.csn_mark_rules import (
    Answer,
    Ask,
    Mark,
    Round,
    Running,
    Session,
    What,
)

_UNKNOWN_FUNCTION: Final = "42883"
_LOCATION: Final = "SELECT pg_catalog.pg_current_xlog_insert_location() AS location"
_SQL: Final[Mapping[What, tuple[str, str]]] = {
    What.LOW: ("pg_current_xlog_insert_location()", _LOCATION),
    What.NEXT_CSN: ("gs_get_next_xid_csn()", "SELECT * FROM pg_catalog.gs_get_next_xid_csn()"),
    What.RUNNING: ("pg_get_running_xacts()", "SELECT * FROM pg_catalog.pg_get_running_xacts()"),
    What.ACTIVITY: (
        "pg_stat_activity",
        "SELECT pid, state, query_start FROM pg_catalog.pg_stat_activity",
    ),
    What.HIGH: ("pg_current_xlog_insert_location()", _LOCATION),
}

Rows = list[dict[str, str | None]]


class Marker:
    """Takes marks.

    Args:
        connections: connections by node; an ordinary one to each, that is used for nothing else meanwhile.
        is_clock_local: see `Round`.

    Attributes:
        asked: the node whose answer is waited for now; None between two questions.
    """

    def __init__(self, connections: Mapping[str, GaussConnection], *, is_clock_local: bool) -> None:
        self._connections = connections
        self._is_clock_local = is_clock_local
        self._round = Round.begun(connections, is_clock_local=is_clock_local)
        self.asked: str | None = None

    @property
    def waiting(self) -> frozenset[tuple[str, Running]]:
        """The transactions that this round waits for."""
        return self._round.waiting

    def step(self) -> Mark | None:
        """Ask what can be asked without a wait.

        Returns:
            A mark, after which the next step begins a round; None when transactions have to end first:
            ask again after a while.

        Raises:
            SourceError: a server or a connection failed; begin with another marker.
            SourceRefusedError: a server does not answer such questions.
            SequenceError: an answer cannot be.
        """
        has_waited = False
        while (mark := self._round.mark) is None:
            asks = self._round.asks
            if asks[0].what is What.RUNNING and self._round.waiting and not self._round.is_first:
                if has_waited:
                    return None
                has_waited = True
            for ask in asks:
                self._round = self._round.answered(ask, self._answer(ask))
        self._round = Round.begun(
            self._connections, is_clock_local=self._is_clock_local, before=mark
        )
        return mark

    def nudge(self) -> None:
        """Have every node write a commit record, which its stream shows.

        Raises:
            SourceError: a server or a connection failed.
        """
        for connection in self._connections.values():
            connection.query(EMPTY)

    def _answer(self, ask: Ask) -> Answer:
        self.asked = ask.node
        try:
            return answer_from(self._connections[ask.node], ask)
        except SourceError as error:
            if len(self._connections) > 1:
                error.name_source(ask.node)
            raise
        finally:
            self.asked = None


def answer_from(connection: GaussConnection, ask: Ask) -> Answer:
    """Ask a node on a connection to it.

    Raises:
        SourceError: the server or the connection failed.
        SourceRefusedError: the server does not answer such questions.
        SequenceError: the answer cannot be.
    """
    name, sql = _SQL[ask.what]
    try:
        return answer_of(ask.what, connection.query_table(sql))
    except SourceError as error:
        if error.sqlstate not in {NO_PRIVILEGE, _UNKNOWN_FUNCTION}:
            raise
        raise SourceRefusedError(
            f"{ask.node}: landing in CSN order calls {name} on the server, which refuses it "
            f"({error}); GRANT EXECUTE on it to the role, take another server version, or set "
            "decoding.output-order: 0 for a new landing",
            error.sqlstate,
        ) from error
    except KeyError as error:
        raise SourceRefusedError(
            f"{ask.node}: {name} gives an unknown answer; set decoding.output-order: 0 for a new "
            "landing"
        ) from error
    except ValueError as error:
        raise SequenceError(f"{ask.node}: {name} gives an impossible answer: {error}") from error


def answer_of(what: What, rows: Rows) -> Answer:
    """Convert the rows of an answer.

    Args:
        what: was asked.
        rows: rows by column name.

    Returns:
        The answer as `Round.answered` takes it.

    Raises:
        KeyError: a column or the row is missing.
        ValueError: a value is none of its kind.
    """
    if what is What.RUNNING:
        return frozenset(_running(row) for row in rows if _number(row["gxid"]))
    if what is What.ACTIVITY:
        return frozenset(
            Session(_number(row["pid"]), row["state"], row["query_start"])
            for row in rows
            if row["pid"]
        )
    if not rows:
        raise KeyError("no row")
    if what is What.NEXT_CSN:
        return _csn(rows[0]["next_csn"])  # its own first, where a coordinator lists all
    location = Lsn.parse(rows[0]["location"] or "")
    if not location:
        raise ValueError(f"{location} is no position of a log")
    return location


def _running(row: dict[str, str | None]) -> Running:
    return Running(_number(row["gxid"]), _number(row["pid"]) or None)


def _csn(text: str | None) -> int:
    is_number = text is not None and text.isascii() and text.isdigit()
    if text is None or not is_number or not 0 < int(text) <= MOST_CSN:
        shown = "nothing" if text is None else repr(text)
        raise ValueError(f"{shown} is no CSN, which is a number from 1 to {MOST_CSN}")
    return int(text)


def _number(text: str | None) -> int:
    return int(text or 0)
