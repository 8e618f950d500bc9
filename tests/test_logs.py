"""Tests for `gaussdecode.logs`."""

import io
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from gaussdecode.logs import (
    Event,
    configure,
    get_logger,
    is_for_a_person,
    is_journal,
    redact,
    relay,
    takes_color,
)


@pytest.fixture
def lines() -> io.StringIO:
    """A log that is read back."""
    file = io.StringIO()
    configure("info", file=file, is_readable=False, slot="orders")
    return file


def records(file: io.StringIO) -> list[dict[str, Any]]:
    """Parse the log."""
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_an_event_is_one_line_of_json(lines: io.StringIO) -> None:
    """Name, level, time, slot and stage are always there."""
    get_logger("land").info(Event.BATCH_LANDED, rows=3, text="two\nlines")
    (record,) = records(lines)
    assert record.pop("time").endswith("Z")
    assert record == {
        "event": "batch_landed",
        "level": "info",
        "slot": "orders",
        "stage": "land",
        "rows": 3,
        "text": "two\nlines",
    }


def test_other_threads_name_the_slot_too(lines: io.StringIO) -> None:
    """Lines of the committer's thread carry the same context."""
    logger = get_logger("land")
    thread = threading.Thread(target=lambda: logger.info(Event.BATCH_LANDED))
    thread.start()
    thread.join()
    assert [record["slot"] for record in records(lines)] == ["orders"]


def test_levels_below_are_left_out(lines: io.StringIO) -> None:
    """Nothing under the configured level is written."""
    get_logger("land").debug(Event.BATCH_LANDED)
    assert records(lines) == []


@pytest.mark.parametrize(
    "key", ["password", "PassFile", "sslkey", "dsn", "conninfo", "api_token", "client_secret"]
)
def test_secret_fields_are_dropped_at_any_depth(lines: io.StringIO, key: str) -> None:
    """Whatever names a secret never reaches the log."""
    get_logger("source").info(Event.SERVER_NOTICE, **{key: "hunter2"}, inner={key: "hunter2"})
    assert "hunter2" not in lines.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "failed: host=a password=hunter2 user=b",
        "failed: password = 'hunter2 \\' x' user=b",
        "failed: postgresql://u:hunter2@host/db",
        "failed: PASSWORD=hunter2",
        "sslpassword=hunter2",
    ],
)
def test_secrets_in_texts_are_cut_out(lines: io.StringIO, text: str) -> None:
    """The library may repeat a connection string in its message."""
    get_logger("source").warning(Event.SERVER_NOTICE, reason=text, more=[text])
    assert "hunter2" not in lines.getvalue()
    assert "***" in redact(text)


def test_reports_of_children_are_said_again(lines: io.StringIO) -> None:
    """Event, level and fields of the child, with what the parent knows."""
    report = {"kind": "log", "event": "tables_changed", "level": "warning", "table": "t"}
    relay(report, stage="source", decoder=1)
    (record,) = records(lines)
    assert (record["event"], record["level"]) == ("tables_changed", "warning")
    assert (record["stage"], record["decoder"], record["table"]) == ("source", 1, "t")


def test_unknown_events_of_children_keep_their_name(lines: io.StringIO) -> None:
    """Nothing a child says is lost, nor can it invent names."""
    relay({"kind": "log", "event": "surprise"}, stage="source")
    (record,) = records(lines)
    assert (record["event"], record["reported"]) == ("child_reported", "surprise")


def test_a_log_that_cannot_be_written_is_no_error() -> None:
    """A full disk under the log must not stop the data."""

    class Full(io.StringIO):
        def write(self, s: str) -> int:
            raise OSError(28, "No space left on device")

    configure(file=Full(), is_readable=False)
    get_logger("land").info(Event.BATCH_LANDED)


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [
        ({}, True), ({"TERM": "xterm"}, True), ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False),
    ],
)  # fmt: skip
def test_colors(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, is_colored: bool
) -> None:
    """A terminal gets colours unless its user has said no; a file never."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "TERM", "JOURNAL_STREAM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    configure(file=terminal, slot="orders")
    get_logger("land").info(Event.BATCH_LANDED, rows=7)
    assert ("\x1b[" in terminal.getvalue()) is is_colored
    assert re.match(r"(\x1b\[\d+m)*2\d{3}-\d\d-\d\dT", terminal.getvalue()), "time first"
    assert not takes_color(io.StringIO(), environment)


def test_a_line_begins_with_its_time(lines: io.StringIO) -> None:
    """Lines are read, cut and sorted as text: time, level and event stand first, in this order."""
    get_logger("land").warning(Event.DISK_FULL, wanted=7, aaa=1)
    keys = list(json.loads(lines.getvalue()))
    assert keys[:4] == ["time", "level", "event", "stage"]
    assert {"wanted", "aaa", "slot"} == set(keys[4:])


def test_lines_for_people_only_on_a_terminal() -> None:
    """Under the journal, or into a file, it is JSON."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert is_for_a_person(Terminal(), {})
    assert not is_for_a_person(Terminal(), {"JOURNAL_STREAM": "8:1"})
    assert not is_for_a_person(io.StringIO(), {})


def test_event_names_are_fixed_and_lower_case() -> None:
    """The name in the log is the name in the code."""
    for event in Event:
        assert event.value == event.name.lower()
        assert re.fullmatch("[a-z_]+", event)


def test_the_journal_gets_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sd-daemon(3) numbers them, and only on the stream that systemd names."""
    with (tmp_path / "journal").open("w+") as file:
        facts = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{facts.st_dev}:{facts.st_ino}")
        assert is_journal(file, os.environ)
        configure("debug", file=file)
        logger = get_logger("land")
        for write in (logger.debug, logger.info, logger.warning, logger.error):
            write(Event.BATCH_LANDED)
        relay({"event": "server_notice", "level": "warning"}, stage="source")
        file.seek(0)
        lines = file.read().splitlines()
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<4>"]
    assert all(json.loads(line[3:])["event"] for line in lines)


@pytest.mark.parametrize("stream", ["", "1:2", "x"])
def test_others_get_none(stream: str, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that stderr was redirected to, or no file at all."""
    monkeypatch.setenv("JOURNAL_STREAM", stream)
    configure("info", file=lines)
    get_logger("land").info(Event.BATCH_LANDED)
    assert json.loads(lines.getvalue())["event"] == "batch_landed"
