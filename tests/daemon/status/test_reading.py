"""Tests for `gaussdecode.daemon.status.reading` and what it reads."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gaussdecode.daemon.session import Session, SessionSettings
from gaussdecode.daemon.status.facts import DaemonFacts, Running, Standing
from gaussdecode.daemon.status.landed import Durable, Landed
from gaussdecode.daemon.status.reading import Readings
from gaussdecode.host.certificates import CertificateEnd
from gaussdecode.ipc.control import Word
from gaussdecode.metrics.table import BY_NAME
from gaussdecode.model.histogram import Counted
from gaussdecode.model.landing import SourcePosition
from gaussdecode.settings.load import load
from gaussdecode.source.coverage import Coverage

RECEIVED = "gaussdecode_source_received_bytes_total"
FACTS = DaemonFacts(
    slot="orders",
    config=Path("/etc/orders.yaml"),
    root=Path("/"),
    started_time=1.0,
    budget_bytes=1,
    decoder_count=1,
    commit_interval=30.0,
    queue_size=128,
    warn_before=None,
)


class Landing:
    """A landing in which nothing has happened."""

    def __init__(self) -> None:
        self.landed = Landed()
        self.coverage = Coverage()
        self.lane_count = 1
        self.server_version: int | None = None
        self.quarantined: dict[str, str] = {}
        self.positions: dict[str, SourcePosition] = {}

    def stats(self) -> dict[str, float]:
        """What the landing counts of itself."""
        return self.landed.totals()

    def read_again_n(self, source: str | None) -> int:
        """Nothing was ordered."""
        return -1

    def histograms(self) -> dict[str, dict[tuple[str, ...], Counted]]:
        """Durations of the landing."""
        return {"land_commit_to_durable_seconds": {(): Counted()}}


@pytest.fixture
def make_session() -> Iterator[Callable[[int], Session]]:
    """Make sessions that have received so many bytes, without processes."""
    made: list[Session] = []

    def make(received: int) -> Session:
        settings = SessionSettings(
            decoder_count=1,
            queue_entries=1,
            raw_ring_bytes=1,
            decoded_ring_bytes=1,
            kept_buffer_bytes=1,
            max_row_bytes=1,
            defers_large_rows=False,
            reader={},
        )
        session = Session(settings, cast("Any", None), lambda _: True, lambda: False, lambda: None)
        session.control.set(Word.RECEIVED_BYTES, received)
        made.append(session)
        return session

    yield make
    for session in made:
        session._close()


def received(readings: Readings) -> float:
    """Bytes received, as a scrape sees them."""
    return readings.metrics()[RECEIVED][()]


def test_counters_of_a_session_that_ends_are_seen_once(
    make_session: Callable[[int], Session],
) -> None:
    """Before it is retired, between that and its end, after it, and beside the next."""
    running = Running()
    readings = Readings(FACTS, running, cast("Any", Landing()))
    seen = []
    for session in (make_session(5), make_session(2)):
        running.session = session
        seen.append(received(readings))
        readings.retire(session)
        seen.append(received(readings))
        running.session = None
        seen.append(received(readings))
    assert seen == [5, 5, 5, 7, 7, 7]


def test_gauges_of_a_session_go_with_it(make_session: Callable[[int], Session]) -> None:
    """Nothing of an ended session is shown as of now."""
    running = Running(session=make_session(5))
    readings = Readings(FACTS, running, cast("Any", Landing()))
    assert "gaussdecode_source_received_lsn" in readings.metrics()
    assert running.session is not None
    readings.retire(running.session)
    running.session = None
    assert "gaussdecode_source_received_lsn" not in readings.metrics()


def test_every_value_is_a_metric_that_is_told_of(make_session: Callable[[int], Session]) -> None:
    """No name that the table of metrics lacks."""
    running = Running(session=make_session(1), is_slot_lost=True)
    running.note_restart("SourceError")
    assert set(Readings(FACTS, running, cast("Any", Landing())).metrics()) <= set(BY_NAME)


def test_what_snapshots_have_read_never_falls() -> None:
    """Whatever becomes of the tables: it is counted by those who read."""
    running = Running(snapshot=dict, snapshot_read=lambda: (7, 700))
    values = Readings(FACTS, running, cast("Any", Landing())).metrics()
    assert values["gaussdecode_land_snapshot_rows_total"][()] == 7
    assert values["gaussdecode_land_snapshot_bytes_total"][()] == 700


def test_status_shows_standing_and_landing() -> None:
    """State and reason of one moment, and the landing's end."""
    landing = Landing()
    landing.landed.reach(7, 0x100)
    running = Running(Standing("retrying", "the source is away"))
    document = Readings(FACTS, running, cast("Any", landing)).status()
    assert {name: document[name] for name in ("state", "detail", "entry", "durable_lsn")} == {
        "state": "retrying",
        "detail": "the source is away",
        "entry": 7,
        "durable_lsn": "0/100",
    }


def test_an_entry_of_another_thread_leaves_the_position() -> None:
    """It is none of the stream's; and an older one does not take the number back."""
    landed = Landed()
    landed.reach(3, 0x100)
    landed.reach(5)
    landed.reach(4, 0x200)
    assert landed.durable == Durable(lsn=0x200, entry=5)


def test_a_restart_leaves_the_counts_that_others_read() -> None:
    """They are replaced, not changed, while a scrape may be in them."""
    running = Running()
    running.note_restart("SourceError")
    before = running.restarts
    running.note_restart("SourceError")
    assert (before, running.restarts) == ({"SourceError": 1}, {"SourceError": 2})


@pytest.mark.parametrize(
    ("kind", "dsn", "told"),
    [
        ("postgresql", "host=db1 dbname=shop user=u password=hidden", "db1:5432 shop pgoutput"),
        ("postgresql", "host=a,b port=1,2 dbname=shop user=u", "a:1,b:2 shop pgoutput"),
        ("postgresql", "host=a,b port=7 dbname=s user=u", "a:7,b:7 s pgoutput"),
        ("gaussdb", "postgresql://u:hidden@db1:8000/shop", "db1:8000 shop mppdb_decoding"),
    ],
)
def test_the_source_is_told_without_secrets(tmp_path: Path, kind: str, dsn: str, told: str) -> None:
    """Host, port, database and plug-in; nothing else of the connection string."""
    path = tmp_path / "orders.yaml"
    publication = ", publication: [p]" if kind == "postgresql" else ""
    path.write_text(
        f"slot: s\nsource: {{kind: {kind}, dsn: '{dsn}'{publication}}}\n"
        f"landing: {{root: {tmp_path}}}\n"
    )
    path.chmod(0o600)
    source = DaemonFacts.of(load(path)).source
    assert f"{source['host']} {source['database']} {source['plugin']}" == told
    assert "hidden" not in str(source)


def test_the_version_is_spelled_as_the_product_does() -> None:
    """From the number that the stream brings."""
    for plugin, number, told in (("pgoutput", 150018, "15.18"), ("mppdb_decoding", 50001, "5.0.1")):
        landing = Landing()
        landing.server_version = number
        facts = dataclasses.replace(FACTS, source={"plugin": plugin})
        assert (
            Readings(facts, Running(), cast("Any", landing)).status()["source"]["version"] == told
        )


def test_existing_rows_are_unknown_until_somebody_looked() -> None:
    """A daemon that is starting does not say that no table waits for its rows."""
    assert (
        Readings(FACTS, Running(), cast("Any", Landing())).status()["is_snapshot_settled"] is False
    )


def test_ends_of_certificates_are_shown_by_the_names_of_their_settings(tmp_path: Path) -> None:
    """NaN for a file that cannot be read; nothing where none is configured."""
    facts = dataclasses.replace(
        FACTS, certificates={"source.sslcert": CertificateEnd(tmp_path / "none.pem")}
    )
    name = "gaussdecode_daemon_certificate_end_time_seconds"
    values = Readings(facts, Running(port_end=lambda: 7.0), cast("Any", Landing())).metrics()[name]
    assert values.pop(("monitoring.tls-certificate-file",)) == 7.0
    assert str(values) == "{('source.sslcert',): nan}"
    assert not Readings(FACTS, Running(), cast("Any", Landing())).metrics()[name]
