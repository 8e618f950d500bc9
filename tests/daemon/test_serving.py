"""The server for clients as a process of the daemon: whatever becomes of it, it is started again."""

import os
import signal
import socket
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from kit.daemon import wait_until
from kit.served import unpack_landing

from gaussdecode.daemon.serving import Serving, Task
from gaussdecode.demo.ports import free_port
from gaussdecode.settings.sections import MonitoringConfig
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.types import Address

Make = Callable[..., Serving]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make a server's keeper, which waits for a moment only; it is closed after the test."""
    made = []

    def serving(port: int = 1, module: str = "gaussdecode.daemon.serveprocess") -> Serving:
        settings = ServeConfig(listen=Address("127.0.0.1", port))
        task = Task(tmp_path / "landing", settings, MonitoringConfig(), "orders")
        made.append(Serving(task, lambda _: 0.05, module))
        made[-1].start()
        return made[-1]

    yield serving
    for of in made:
        of.close()


def test_a_server_that_ends_is_started_again(tmp_path: Path, make: Make) -> None:
    """Its address is in use first, then it is killed; in the end it stops in order."""
    unpack_landing(tmp_path)
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        serving = make(port)
        assert serving.state.is_up is None
        wait_until(lambda: serving.state.is_up is False, "it cannot serve")
        assert "in use" in (serving.state.reason or "")
    wait_until(lambda: serving.state.is_up is True, "it serves")
    record = serving.record()
    assert (record["state"], record["listen"]) == ("serving", f"127.0.0.1:{port}")
    os.kill(record["pid"], signal.SIGKILL)

    def is_again() -> bool:
        return serving.state.is_up is True and serving.state.starts > record["starts"]

    wait_until(is_again, "it serves again")
    given = f"host=127.0.0.1 port={port} dbname=kept user=me sslmode=disable"
    with psycopg.connect(given, autocommit=True) as session:
        session.execute("SELECT pg_create_logical_replication_slot('copy', 'test_decoding')")
        serving.close()
        with pytest.raises(psycopg.errors.AdminShutdown, match="the server stops"):
            session.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(given)


def test_one_that_hangs_is_killed(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sign of life; and one that does not stop is, too."""
    module = tmp_path / "hanging.py"
    module.write_text(
        textwrap.dedent("""
        import time
        from gaussdecode.ipc.process import enter_child
        settings, reports = enter_child()
        reports.write("serving", port=1)
        time.sleep(600)
        """)
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("gaussdecode.daemon.serving.STUCK_SECONDS", 0.1)
    monkeypatch.setattr("gaussdecode.daemon.serving._LEAVE_SECONDS", 0.1)
    serving = make(module="hanging")
    wait_until(lambda: "no sign of life" in (serving.state.reason or ""), "it is killed")
    monkeypatch.setattr("gaussdecode.daemon.serving.STUCK_SECONDS", 600.0)
    wait_until(lambda: serving.state.is_up is True, "another one serves")
    serving.close()
