"""Two daemons over one server, side by side: `gaussdecode top` and its page, as things go wrong."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import axe
from kit.chromium import Chromium
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


@pytest.fixture
def other(postgres_15: Postgres) -> Iterator[Database]:
    """A second database of the same server."""
    database = Database(postgres_15, "kit_other")
    yield database
    database.drop()


@pytest.fixture
def pair(database_15: Database, other: Database, make_daemon: MakeDaemon) -> list[Daemon]:
    """A daemon over each; both stream."""
    daemons = []
    for database in (database_15, other):
        database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
        database.create_slot()
        daemons.append(make_daemon(database))
        daemons[-1].start()
    for daemon in daemons:
        daemon.wait_for_state("streaming")
        daemon.database.execute("INSERT INTO public.t VALUES (1, 'secret value')")
        daemon.catch_up()
    return daemons


@contextlib.contextmanager
def page_over(files: list[str]) -> Iterator[str]:
    """Address of `gaussdecode top --listen`, which ends in order."""
    command = [sys.executable, "-m", "gaussdecode", "top", "--listen", "127.0.0.1:0", *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            found = re.search(r"http://\S+", serving.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            serving.terminate()
        assert serving.wait(60) == EX_OK


def test_a_fleet_and_what_becomes_of_it(
    pair: list[Daemon], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Well, hanging, well again, stopped: each is told as long as it lasts, on terminal and page."""
    first, second = pair
    names = [daemon.database.name for daemon in pair]
    files = [str(daemon.config_path) for daemon in pair]

    def top() -> tuple[int, list[str]]:
        status = main(["top", *files])
        return status, capsys.readouterr().out.splitlines()[1:]

    status, lines = top()
    assert status == EX_OK
    assert sorted(line.split()[0] for line in lines) == sorted(names)
    for line in lines:
        assert re.search(r"streaming +[\d.]+ \w+ +\d+ s +(-|\d+) +[0-9A-F]+/[0-9A-F]+ ", line)
        assert re.search(r"\d+% \d+% +\d+ MB +\d+ s", line)
    with page_over(files) as url, Chromium(tmp_path) as browser:
        browser.open(url, width=1280, height=900)
        assert browser.evaluate("document.title").endswith("2 slots: 2 ok")
        assert "at localhost" not in browser.evaluate("document.body.innerText")

        assert second.process is not None
        second.process.send_signal(signal.SIGSTOP)
        status, lines = top()
        assert status == EX_UNAVAILABLE
        assert lines[0].startswith(f"!! {names[1]}")
        assert "(silent for 5 seconds)" in lines[0]
        text = "document.querySelector('main').innerText"
        wait_until(lambda: "silent for 5 seconds" in browser.evaluate(text), "the page says so")
        assert f"journalctl -u gaussdecode@{names[1]}" in browser.evaluate(text)
        assert axe.complaints(browser) == []

        second.process.send_signal(signal.SIGCONT)
        wait_until(lambda: top()[0] == EX_OK, "it is well again")
        wait_until(lambda: "2 slots: 2 ok" in browser.evaluate(text), "the page says no more")
        assert "silent" not in browser.evaluate(text)

        assert second.stop() == 0
        status, lines = top()
        assert status == EX_UNAVAILABLE
        assert lines[0].startswith(f"!! {names[1]}")
        assert "connection refused" in lines[0]
        wait_until(lambda: "connection refused" in browser.evaluate(text), "the page says so")

        browser.open(f"{url}slots/{names[0]}", width=360, height=740, is_dark=True)
        shown = browser.evaluate(text)
        assert f"database {names[0]}, pgoutput" in shown
        assert "PostgreSQL 15." in shown
        assert "public.t" in shown
        assert "secret value" not in shown
        assert axe.complaints(browser) == []
        assert browser.complaints == []
    assert first.stop() == 0
