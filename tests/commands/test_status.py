"""Tests for `gaussdecode.commands.status`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaussdecode.cli import main
from gaussdecode.daemon.http import MonitoringServer
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE
from gaussdecode.values import Address

RECORD: dict[str, object] = {
    "slot_name": "orders",
    "parallel_decode_num": 2,
    "read_change_queue_length": "queue0: 3, queue1: 0",
    "decode_change_queue_length": "queue0: 0, queue1: 1",
    "reader_lsn": "16/B374D848",
    "durable_lsn": "16/B374D800",
    "lag_bytes": 72,
    "lag_seconds": 0.25,
    "state": "retrying",
    "detail": "server away",
}


@pytest.fixture
def port() -> Iterator[int]:
    """Port of a daemon that says `RECORD`."""
    server = MonitoringServer(
        Address("127.0.0.1", 0),
        render_metrics=lambda: b"",
        take_status=lambda: RECORD,
        is_alive=lambda: True,
        why_not_ready=lambda: None,
    )
    server.start()
    yield server.address.port
    server.close()


def config(directory: Path, port: int, slot: str = "orders") -> str:
    """Write a configuration that listens on a port."""
    path = directory / f"{slot}.yaml"
    path.write_text(
        f"slot: {slot}\nsource: {{kind: capture, file: /c}}\nlanding: {{root: /l}}\n"
        f"monitoring: {{listen: '127.0.0.1:{port}'}}\n"
    )
    return str(path)


def test_prints_the_servers_columns(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A header and a row, aligned; what is wrong goes to standard error."""
    assert main(["status", config(tmp_path, port)]) == EX_OK
    out, err = capsys.readouterr()
    header, rule, row = out.splitlines()
    assert header.split(" | ")[0].strip() == "slot_name"
    assert set(rule) == {" ", "-", "+"}
    cells = [cell.strip() for cell in row.split(" | ")]
    assert cells == ["orders", "2", "queue0: 3, queue1: 0", "queue0: 0, queue1: 1", "16/B374D848",
                     "16/B374D800", "72", "0.2", "retrying"]  # fmt: skip
    assert err == "orders: server away\n"


def test_json_gives_every_field(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object a line."""
    assert main(["status", "--json", config(tmp_path, port)]) == EX_OK
    assert json.loads(capsys.readouterr().out) == RECORD


def test_a_silent_daemon_is_named(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are still printed; the end says who is missing and where to look."""
    good, silent = config(tmp_path, port), config(tmp_path, 1, "events")
    assert main(["status", silent, good]) == EX_UNAVAILABLE
    out, err = capsys.readouterr()
    assert "queue0: 3" in out
    assert "events.yaml: no daemon answers on 127.0.0.1:1" in err
    assert "systemctl status gaussdecode@events" in err


def test_another_slots_daemon_is_noticed(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two configurations with one port are a mistake worth a sentence."""
    assert main(["status", config(tmp_path, port, "events")]) == EX_UNAVAILABLE
    assert "follows slot orders, not events" in capsys.readouterr().err
