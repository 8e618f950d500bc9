"""Tests for `gaussdecode.commands.top`: printed, on a terminal, and as a page in a browser."""

import codecs
import fcntl
import http.client
import itertools
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pytest
from kit import axe
from kit.chromium import Chromium
from kit.daemon import wait_until

from gaussdecode.cli import main
from gaussdecode.console.screen import Paint, frame, table_lines
from gaussdecode.console.terminal import Terminal
from gaussdecode.daemon.status.fleet import Member, render_fleet, worst_first
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.demo.ports import free_port
from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from gaussdecode.settings.types import Address

Json = dict[str, Any]  # Any: JSON
WELL: Final[Json] = {
    "slot_name": "orders", "state": "streaming", "lag_bytes": 72, "lag_seconds": 0.25,
    "rows_per_second": 1234.5, "durable_lsn": "16/B374D800", "memory_bytes": 300_000_000,
    "uptime_seconds": 12000.0, "is_well": True, "causes": [],
    "queues": [{"read": {"share": 0.5}, "decode": {"share": 0.03}}],
    "limit": {"sentence": "Keeping up."},
    "source": {"kind": "postgresql", "version": "15.18", "host": "db1:5432", "database": "shop",
               "plugin": "pgoutput"},
}  # fmt: skip
LATE: Final[Json] = {
    **WELL, "slot_name": "billing", "lag_seconds": 700.0,
    "causes": [{"severity": "warning", "what": "The landing is 12 min behind.",
                "action": "See `gaussdecode check /c.yaml` and `df -h /l`.",
                "runbook": "/alerts#gaussdecodelagseconds"}],
}  # fmt: skip


def config(directory: Path, slot: str, port: int) -> Path:
    """Write a configuration that listens on a port."""
    path = directory / f"{slot}.yaml"
    path.write_text(
        f"slot: {slot}\nsource: {{kind: capture, file: /c}}\nlanding: {{root: /l}}\n"
        f"monitoring: {{listen: '127.0.0.1:{port}'}}\n"
    )
    return path


def serve(record: Mapping[str, object]) -> MonitoringServer:
    """A daemon's port that says this."""
    server = MonitoringServer(
        Address("127.0.0.1", 0),
        render_metrics=lambda: b"",
        take_status=lambda: record,
        is_alive=lambda: True,
        readiness=lambda: (True, "ready"),
        render_page=lambda _: b"<!DOCTYPE html><html lang=en><main>\nits own page</main></html>",
    )
    server.start()
    return server


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Path]:
    """A directory of four: one is well, one late, one silent, one wrong."""
    directory = tmp_path / "etc"
    directory.mkdir()
    well, late = serve(WELL), serve(LATE)
    config(directory, "orders", well.address.port)
    config(directory, "billing", late.address.port)
    config(directory, "events", free_port())
    (directory / "wrong.yaml").write_text("slot: wrong\nsauce: {password: geheim}\n")
    yield directory
    well.close()
    late.close()


def test_it_is_printed_once_where_nobody_looks_on(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worst first, a line for each, and the end says that not all is well."""
    assert main(["top", str(fleet)]) == EX_UNAVAILABLE
    out = capsys.readouterr().out
    header, *lines = out.splitlines()
    assert header.split() == [
        "slot", "state", "lag", "behind", "rows/s", "durable", "LSN", "queues", "memory", "up",
        "first", "cause",
    ]  # fmt: skip
    assert [line[:10].split()[:2] for line in lines[:3]] == [
        ["!!", "events"],
        ["!!", "wrong"],
        ["!", "billing"],
    ]
    assert "connection refused" in lines[0]
    assert "sauce" in lines[1]
    assert re.search(
        r"orders +streaming +72 B +0 s +1 23\d +16/B374D800 +50% 3% +300 MB +3 h 20 min", lines[3]
    )
    assert "geheim" not in out
    assert "\x1b" not in out


def test_all_well_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `status` does; single files may be named."""
    server = serve(WELL)
    assert main(["top", str(config(tmp_path, "orders", server.address.port))]) == EX_OK
    server.close()
    assert "orders" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["empty", "missing"])
def test_nobody_to_show_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Of a directory; a file that is missing is a line."""
    (tmp_path / "empty").mkdir()
    status = main(["top", str(tmp_path / what)])
    told = capsys.readouterr()
    if what == "empty":
        assert status == EX_CONFIG
        assert "no configuration (*.yaml)" in told.err
    else:
        assert status == EX_UNAVAILABLE
        assert "No such file or directory" in told.out


def test_why_a_daemon_is_silent_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another slot's daemon, another program, and what may not be read."""
    server = serve(WELL)
    config(tmp_path, "other", server.address.port)
    foreign = serve({"nothing": 1})
    config(tmp_path, "foreign", foreign.address.port)
    assert main(["top", str(tmp_path)]) == EX_UNAVAILABLE
    server.close()
    foreign.close()
    out = capsys.readouterr().out
    assert "follows slot orders, not other." in out
    assert "but another program." in out


# ---- the screen -------------------------------------------------------------------------

MEMBERS: Final = worst_first(
    [
        Member.answering("orders", WELL),
        Member.answering("billing", LATE),
        Member.silent("events", "failed", "No daemon answers.", "See why: `journalctl -u x`."),
        *(Member.answering(f"slot{n}", {**WELL, "slot_name": f"slot{n}"}) for n in range(30)),
    ]
)


@pytest.mark.parametrize("size", [(20, 6), (60, 10), (80, 24), (132, 40), (300, 80)])
@pytest.mark.parametrize("chosen", [0, 1, 17, len(MEMBERS) - 1])
def test_a_screen_fits(size: tuple[int, int], chosen: int) -> None:
    """No line too wide, none too many; slot and state stay, and what is chosen is seen."""
    width, height = size
    lines = frame(MEMBERS, chosen, width, height, "20:10:05", Paint())
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any(line[3:].startswith(MEMBERS[chosen].slot) for line in lines[3:])
    if width >= 60:
        assert "state" in lines[2]
    wide = width >= 132
    assert ("durable LSN" in lines[2]) is wide


def test_sources_of_what_is_chosen_are_told() -> None:
    """A line each, where there are several."""
    source = {
        "name": "dn1", "slot": "s", "host": "h:1", "lag_bytes": 0, "lag_seconds": 0.0,
        "durable_lsn": "0/1", "watermark_csn": 7, "waiting_transactions": 0, "is_late": False,
    }  # fmt: skip
    member = Member.answering("orders", {**WELL, "sources": [source]})
    lines = frame([member], 0, 100, 40, "20:10:05", Paint())
    assert "  source dn1 (s at h:1): 0 B, 0 s behind; durable 0/1, CSN 7" in lines


def test_causes_of_what_is_chosen_are_explained() -> None:
    """With the source, and each command whole on a line of its own."""
    lines = frame(MEMBERS, 1, 60, 40, "20:10:05", Paint())
    at = next(i for i, line in enumerate(lines) if line.startswith("billing:"))
    assert lines[at : at + 6] == [
        "billing: PostgreSQL 15.18 at db1:5432, database shop,",
        "pgoutput",
        "!  The landing is 12 min behind.",
        "   See (1) and (2).",
        "     (1) gaussdecode check /c.yaml",
        "     (2) df -h /l",
    ]


def _drawn(written: str, columns: int, lines: int) -> list[str]:
    """What a terminal that does not wrap shows of the bytes that it gets; a wide letter takes two cells."""
    cells = [[" "] * columns for _ in range(lines)]
    row = column = 0
    for code, letter in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|(.)", written, re.DOTALL):
        if code == "H":
            row = column = 0
        elif code in {"J", "K"}:
            cells[row][column:] = [" "] * (columns - column)
            for below in cells[row + 1 :] if code == "J" else ():
                below[:] = [" "] * columns
        elif letter == "\n":
            row, column = row + 1, 0
            assert row < lines, "it does not scroll"
        elif letter:
            size = 1 + (unicodedata.east_asian_width(letter) in "WF")
            column = min(column, columns - size)
            cells[row][column : column + size] = [letter] + [""] * (size - 1)
            column = min(column + size, columns - 1)
    return ["".join(line).rstrip() for line in cells]


LONG: Final = "a_slot_with_a_name_of_sixty_three_letters_as_postgresql_has_it"
ODD: Final = worst_first(
    [
        *MEMBERS[:4],
        Member.answering("long", {**LATE, "slot_name": f"{LONG}1", "lag_bytes": 123_456_789_012}),
        Member.answering("longer", {**WELL, "slot_name": f"{LONG}2", "rows_per_second": 1234567.8}),
        Member.answering("new", {"slot_name": "new", "state": "starting", "is_well": False}),
        Member.answering(
            "wide",
            {**WELL, "slot_name": "wide", "causes": [
                {"severity": "error", "what": "Table \u8ba2\u5355.\u660e\u7ec6 \x1b[2J needs 19187 bytes of port 19187.",
                 "action": "Run `gaussdecode snapshot /etc/gaussdecode/wide.yaml 'public.a b' --where 'id > 17'` "
                           "or `SELECT pg_drop_replication_slot('a'), pg_create_logical_replication_slot('a')`.",
                 "runbook": ""}]},
        ),
    ]
)  # fmt: skip


@pytest.mark.parametrize("size", [(20, 12), (40, 24), (80, 24), (81, 24), (132, 24), (200, 40)])
@pytest.mark.parametrize("chosen", range(len(ODD)))
def test_a_terminal_shows_all_of_each_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    size: tuple[int, int],
    chosen: int,
) -> None:
    """To its last letter, also after a longer screen; a number is whole, or two dots are in its place."""
    monkeypatch.setattr(Terminal, "size", size)
    terminal = Terminal()
    terminal.show(["x" * size[0]] * size[1])
    lines = frame(ODD, chosen, *size, "20:10:05", Paint(is_live=True, has_colour=True))
    terminal.show(lines)
    drawn = _drawn(capsys.readouterr().out, *size)
    plain = [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in lines]
    assert drawn[: len(plain)] == plain
    assert not any(drawn[len(plain) :])
    assert all("19187" in line for line in drawn if "19" in line)
    assert all("12 min" in line or ".." in line for line in drawn if "is 1" in line)


def test_long_names_differ() -> None:
    """Their middle is left out, and no more of it than lets two look alike; to a file they go whole."""
    lines = table_lines(ODD, 80, Paint())
    first, second = (line for line in lines if "a_slot_with" in line)
    assert first[3:30].split()[0] != second[3:30].split()[0]
    whole = table_lines(ODD, None, Paint())
    assert [any(f"{LONG}{n} " in line for line in whole) for n in (1, 2)] == [True, True]


def test_what_is_not_known_is_a_dash() -> None:
    """In every column: never a zero, and never nothing."""
    (row,) = (line for line in table_lines(ODD, None, Paint()) if " new " in line)
    assert row.split() == ["new", "starting", *["-"] * 8]


def test_a_folded_command_can_be_copied() -> None:
    """A shell joins its lines, and no quoted text is parted; SQL needs no mark."""
    chosen = next(at for at, member in enumerate(ODD) if member.name == "wide")
    lines = frame(ODD, chosen, 60, 60, "20:10:05", Paint())
    begin = next(at for at, line in enumerate(lines) if "(1) gaussdecode" in line)
    end = next(at for at, line in enumerate(lines) if "(2) SELECT" in line)
    folded = "\n".join(lines[begin:end]).replace("(1)", "").strip()
    assert "\\\n" in folded
    told = subprocess.check_output(["sh", "-c", f"printf '%s|' {folded}"], text=True)
    assert told == "gaussdecode|snapshot|/etc/gaussdecode/wide.yaml|public.a b|--where|id > 17|"
    assert "\\" not in "".join(lines[end:])


class Screen:
    """`gaussdecode top` on a terminal of its own, as a person sees it.

    Args:
        directory: of the configurations.
        environment: besides that of the tests.
    """

    def __init__(self, directory: Path, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(120, 30)
        self.modes = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gaussdecode", "top", "--every", "0.1", str(directory)],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "xterm", **environment},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """Wait until it shows something."""
        self.await_text("q: end")
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if it has not."""
        self.process.kill()
        self.process.wait()
        os.close(self._theirs)
        self._reader.join(60)
        os.close(self._ours)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a letter
        while True:
            try:
                chunk = os.read(self._ours, 1 << 16)
            except OSError:  # nobody has it open any more
                return
            self.text += decoder.decode(chunk)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._ours, keys.encode())

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, without how it looks."""
        newest = self.text.rpartition("\x1b[H")[2]
        return [re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", line) for line in newest.split("\r\n")]

    def await_text(self, text: str) -> None:
        """Wait until something is on the screen."""
        wait_until(lambda: any(text in line for line in self.lines), f"the screen shows {text}")


def test_on_a_terminal(fleet: Path) -> None:
    """All slots, those that come and go, keys, another size; q gives the terminal back as it was."""
    with Screen(fleet) as screen:
        assert screen.lines[0].startswith("4 slots: 2 with errors, 1 with warnings, 1 ok")
        screen.await_text("events: ")
        assert "\x1b[31m" in screen.text
        screen.press("\x1b[B\x1b[B")
        screen.await_text("billing: PostgreSQL 15.18")
        (fleet / "wrong.yaml").unlink()
        screen.await_text("3 slots: 1 with errors, 1 with warnings, 1 ok")
        screen.await_text("billing: PostgreSQL 15.18")  # still chosen
        screen.resize(50, 12)
        wait_until(lambda: 0 < max(map(len, screen.lines)) <= 50, "it fits the smaller window")
        assert len(screen.lines) <= 12
        screen.press("q")
        assert screen.process.wait(60) == EX_OK
        wait_until(lambda: screen.text.rstrip().endswith("\x1b[?1049l"), "the screen from before")
        assert termios.tcgetattr(screen._theirs) == screen.modes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_the_terminal_back(fleet: Path, number: signal.Signals) -> None:
    """Ctrl-C is a request like q; and NO_COLOR is respected."""
    with Screen(fleet, NO_COLOR="1") as screen:
        screen.process.send_signal(number)
        assert screen.process.wait(60) == EX_OK
        assert termios.tcgetattr(screen._theirs) == screen.modes
        wait_until(lambda: "\x1b[?1049l" in screen.text, "the screen from before")
        assert not re.search(r"\x1b\[3\dm", screen.text)


# ---- the page ---------------------------------------------------------------------------


@pytest.fixture
def address(fleet: Path) -> Iterator[str]:
    """Host and port of `gaussdecode top --listen`."""
    command = [sys.executable, "-m", "gaussdecode", "top", "--listen", "127.0.0.1:0", str(fleet)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        found = re.search(r"http://([\d.:]+)/", serving.stdout.readline())
        assert found is not None
        yield found[1]
        serving.terminate()
        assert serving.wait(60) == EX_OK


def ask(address: str, path: str, **headers: str) -> tuple[int, str]:
    """Send one request."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_pages_of_the_machine(address: str) -> None:
    """All slots, each daemon's own page, the same for programs, runbooks; nothing for other hosts."""
    status, page = ask(address, "/")
    assert status == 200
    assert "geheim" not in page
    page = page[page.index("<main>") :]
    assert page.index("events") < page.index("billing") < page.index("orders")
    status, own = ask(address, "/slots/orders")
    assert (status, "its own page" in own, '<a id="all" href="/">' in own) == (200, True, True)
    assert ask(address, "/slots/events")[0] == ask(address, "/slots/nobody")[0] == 502
    assert ask(address, "/slots/..%2Fetc")[0] == 502
    slots = json.loads(ask(address, "/status")[1])["slots"]
    assert {slot["name"]: slot["is_well"] for slot in slots} == {
        "orders": True, "billing": True, "events": False, "wrong": False,
    }  # fmt: skip
    assert "GaussdecodeDown" in ask(address, "/alerts")[1]
    assert ask(address, "/etc/passwd")[0] == 404
    assert ask(address, "/", Host="evil.example")[0] == 421


@pytest.mark.parametrize(
    ("listen", "told"), [("0.0.0.0:19186", "no loopback address"), ("x", "no address")]
)
def test_a_wrong_address_is_refused(
    fleet: Path, listen: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is asked for a password there."""
    with pytest.raises(SystemExit):
        main(["top", "--listen", listen, str(fleet)])
    assert told in capsys.readouterr().err


def test_a_taken_port_is_told(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its address."""
    server = serve(WELL)
    assert main(["top", "--listen", str(server.address), str(fleet)]) == EX_CONFIG
    server.close()
    assert f"--listen: {server.address}: the port is taken" in capsys.readouterr().err


EVIL: Final = "<script>alert('x')</script>\"'&"


def test_what_daemons_say_is_text() -> None:
    """Whatever it is; and it names no address that we would lead to."""
    cause = {
        "severity": EVIL,
        "what": EVIL,
        "action": f"{EVIL}`{EVIL}`",
        "runbook": "javascript:1#x",
    }
    record = {**LATE, "slot_name": EVIL, "state": EVIL, "causes": [cause]}
    page = render_fleet(EVIL, [Member.answering("a", record)]).decode()
    assert "<script>alert" not in page
    assert "javascript" not in page
    assert 'href="/alerts#x"' in page


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ([[60.0, 5.0], [30.0, None], [0.0, 130.0]], "at most 2 min, now 2 min"),
        ([[60.0, 5.0], [0.0, None]], "at most 5 s, now unknown"),
        ([], None),
    ],
)
def test_the_fleet_shows_trends(history: list[list[float | None]], told: str | None) -> None:
    """Of a slot whose daemon tells its history; a dash where it does not."""
    member = Member.answering("a", {**LATE, "lag_history": history})
    page = render_fleet("host", [member]).decode()
    assert ("</svg>" in page) is (told is not None)
    assert told is None or told in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser for all tests of this module."""
    with Chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def test_the_page_in_a_browser(browser: Chromium, address: str) -> None:
    """At two sizes, light and dark: axe finds nothing, nothing sticks out; links lead on and back."""
    for (width, height), is_dark in itertools.product([(1280, 900), (360, 740)], [False, True]):
        browser.open(f"http://{address}/", width=width, height=height, is_dark=is_dark)
        assert axe.complaints(browser) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.title").endswith(
        "4 slots: 2 with errors, 1 with warnings, 1 ok"
    )
    wanted = browser.evaluate(
        "Array.from(document.querySelectorAll('a,button,[tabindex]'), e => e.id)"
    )
    assert len(set(wanted)) == len(wanted)
    for name in wanted:
        browser.press("Tab")
        assert browser.evaluate("document.activeElement.id") == name
    browser.evaluate("document.getElementById('slot-orders').click()")
    wait_until(lambda: browser.evaluate("location.pathname") == "/slots/orders", "its page")
    wait_until(lambda: browser.evaluate("!!document.getElementById('all')"), "the way back")
    assert browser.complaints == []
