"""Tests for `gaussdecode.daemon.status.page`: the document alone, then in a real browser."""

import dataclasses
import datetime as dt
import html
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path

import pytest
from kit import axe
from kit.chromium import Chromium
from kit.daemon import wait_until

from gaussdecode.daemon.control import Answer
from gaussdecode.daemon.httpacts import HttpActs
from gaussdecode.daemon.status.history import Sample
from gaussdecode.daemon.status.http import MonitoringServer, Page
from gaussdecode.daemon.status.landed import Commit, TableTally
from gaussdecode.daemon.status.limit import Limit, Stage
from gaussdecode.daemon.status.page import Picture, render_page
from gaussdecode.daemon.status.queues import Fill
from gaussdecode.daemon.status.states import STATES
from gaussdecode.daemon.status.trouble import State, Trouble
from gaussdecode.settings.types import Address

DESKTOP = (1280, 900)
PHONE = (360, 740)
RAISE = "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf();"
EVIL = "<script>alert('x')</script>\"'&"

OUTSIDE = """
Array.from(document.querySelectorAll('main *')).filter(e => !e.closest('.scroll')
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(e => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 40))
"""
"""Elements that stick out to the right, but for what scrolls by itself."""


def state_of(name: str) -> State:
    """A row of the table."""
    return next(state for state in STATES if state.name == name)


IDLE = Picture(
    status={
        "slot_name": "orders", "parallel_decode_num": 4, "state": "streaming", "detail": None,
        "lag_bytes": 0, "lag_seconds": 0.0, "reader_lsn": "16/B374D848",
        "durable_lsn": "16/B374D848", "working_txn_cnt": 0, "working_txn_memory": 0,
        "working_txn_spooled": 0, "working_txn_spooled_batches": 0,
        "prepared_txn_cnt": 0,
        "version": "0.1.0", "pid": 1, "root": "/var/lib/gaussdecode/orders", "entry": 7,
        "server": None, "uptime_seconds": 12000.0,
        "source": {"kind": "postgresql", "version": "15.18", "host": "db1:5432", "database": "shop",
                   "plugin": "pgoutput"},
    },
    queues=[(Fill(0, 128, 0, 1000), Fill(0, 128, 0, 1000))] * 4,
    limit=Limit(Stage.NONE, "Keeping up.", None),
    troubles=[], samples=[], rates=None, lane_count=2, tables=[], commits=[],
)  # fmt: skip

_NOW = dt.datetime(2026, 1, 31, 22, 30, tzinfo=dt.UTC)
_SLOT = {
    "wal_end": 1, "retained_bytes": 4 << 30, "confirmed_lsn": 5, "wal_status": "extended",
    "safe_bytes": 1 << 30, "is_active": True, "wait_event": None, "spilled_bytes": 0,
    "transaction_seconds": 7800.0, "catalog_xmin_age": 1234567, "frozen_age": 7654321,
}  # fmt: skip
_SOURCE = {
    "slot": "s",
    "lag_bytes": 2_000_000,
    "lag_seconds": 3.0,
    "received_lsn": "0/2",
    "durable_lsn": "0/1",
    "confirmed_lsn": "0/0",
    "server_wal_end": "0/3",
    "waiting_transactions": 4,
    "watermark_csn": 7001,
    "is_late": False,
    "held_seconds": 0.0,
    "held_by": [],
}
_HELD = {"is_late": True, "held_seconds": 400.0, "held_by": [{"xid": 8123, "pid": None}]}
STARTING = dataclasses.replace(
    IDLE,
    status={**IDLE.status, "state": "connecting", "source": {}, "uptime_seconds": 1.0},
    queues=[],
    limit=Limit(Stage.CONNECTION, "Nothing is streamed.", None),
    troubles=[
        Trouble(state_of("not-yet-streaming"), "Not streaming: connecting.", "Wait, or `check c`.")
    ],
)
TROUBLE = dataclasses.replace(
    IDLE,
    status={
        **IDLE.status, "state": "retrying", "detail": "the server is away", "lag_bytes": 7 << 30,
        "lag_seconds": 5000.0, "working_txn_cnt": 3,
        "sources": [
            {"name": "dn1", "host": "h1:1", **_SOURCE}, {"name": "dn2", "host": "h2:1", **_SOURCE, **_HELD},
        ],
        "snapshot": {
            "sales.orders": {"state": "reading", "chunks": 9, "chunks_done": 4, "rows": 1234,
                             "bytes": 10**7, "estimate": 5000, "seconds_left": 90.0, "reason": None},
        },
        "server": {
            "guard_step": "pause", "invalidation_seconds": 900.0, "full_seconds": 4000.0,
            "free_bytes": 5e9, "reason": None, "slot": _SLOT, "held_by": "transaction",
        },
    },
    queues=[
        (Fill(128, 128, 500, 1000), Fill(100, 128, 400, 1000)),
        (Fill(15, 128, 990, 1000), Fill(128, 128, 300, 1000)),
        (Fill(128, 128, 1000, 1000), Fill(9, 128, 1000, 1000)),
        (Fill(127, 128, 10, 1000), Fill(5, 128, 20, 1000)),
    ],
    limit=Limit(Stage.ENCODE, "The 2 writer lanes encode 99% of the time.", "landing.writer-lanes"),
    troubles=[
        Trouble(state_of("slot-near-its-end"), "The slot may be lost in 15 min.", f"Raise it: `{RAISE}`."),
        Trouble(state_of("quarantined"), "2 tables in quarantine.", "Run `gaps '/a b'`, then `snapshot c`."),
        Trouble(state_of("lagging"), "The landing is 83 min behind.", "The 2 lanes encode. What moves it."),
        Trouble(state_of("queues-full"), "A stage has waited for room.", "Moves with the limit."),
        Trouble(state_of("misfits"), "9 values stand as text.", "Look at gd_raw."),
    ],
    samples=[
        Sample(2.0 * i, land_rows_total=1e5 * i, source_lag_bytes=1e6 * i * i, source_lag_seconds=i)
        for i in range(900)
    ],
    rates=Sample(
        30.0, source_busy_seconds_total=0.1, source_stalled_seconds_total=0.9,
        decode_busy_seconds_total=1.0, decode_waited_output_seconds_total=3.0,
        collect_busy_seconds_total=0.9, collect_blocked_seconds_total=0.8,
        land_encoded_seconds_total=1.98, land_rows_total=123456.0, decode_rows_total=123456.0,
    ),
    tables=[
        TableTally(f"sales.a_rather_long_table_name_{i}", 10**9 // (i + 1), 10**9, 99, Counter(I=5, U=9), 12)
        for i in range(60)
    ],
    commits=[
        Commit(n, "data", 0x16B374D848 + n, _NOW, _NOW, 60, 61, 10**6, 10**8) for n in range(20)
    ],
)  # fmt: skip


class Parser(HTMLParser):
    """Gathers tags with their attributes, and checks that they are closed."""

    VOID = frozenset({"meta", "link", "br", "rect", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """It closes the last that was opened."""
        assert self.open.pop() == tag


def parsed(picture: Picture) -> Parser:
    """Render and parse."""
    parser = Parser()
    parser.feed(render_page(picture).decode())
    assert parser.open == []
    return parser


PICTURES = {"idle": IDLE, "starting": STARTING, "trouble": TROUBLE}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_the_document_needs_nothing_else(picture: Picture) -> None:
    """Well-formed; links to its runbooks only, no inline handler or style that the policy refuses."""
    seen = parsed(picture).seen
    for tag, attributes in seen:
        assert not {"src", "style", "action"} & attributes.keys(), tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert tag not in {"iframe", "img", "object", "form"}
    targets = {tag: str(of["href"]) for tag, of in seen if "href" in of}
    assert targets["a"].startswith("/alerts")
    assert targets["link"].startswith("data:image/svg+xml,")
    names = [of["id"] for _, of in seen if "id" in of]
    assert len(names) == len(set(names))


def test_each_cause_is_told_once_the_worst_first() -> None:
    """With what follows from it, its command as it is to be pasted, and its runbook."""
    text = render_page(TROUBLE).decode()
    told = [text.index(item.what) for item in TROUBLE.troubles]
    assert told == sorted(told)
    for item in TROUBLE.troubles:
        assert text.count(item.what) == 1
    assert "4 problems" in text
    assert "<p>Consequences: A stage has waited for room.</p>" in text
    assert f"<code>{html.escape(RAISE)}</code><button" in text
    assert 'href="/alerts#gaussdecodeslotnearinvalidation"' in text
    assert "the server is away" not in text  # `detail` stands in the cause, where there is one
    assert "Limit: encode" not in text  # the lag says so


def test_a_reason_that_has_passed_is_gone() -> None:
    """Nothing of it is left when the daemon is well again."""
    text = render_page(IDLE).decode()
    assert "<b>No limit.</b> Keeping up." in text
    assert 'id="causes"' not in text
    assert "<title>orders: streaming</title>" in text
    assert "<title>orders: retrying (error)</title>" in render_page(TROUBLE).decode()


def test_source_and_uptime_are_told() -> None:
    """What is followed, since when, and who holds the WAL back."""
    text = render_page(TROUBLE).decode()
    assert "PostgreSQL 15.18 at db1:5432, database shop, pgoutput; up 3 h 20 min" in text
    assert "a transaction that has been open for 2 h 10 min" in text
    assert "1\u2009234\u2009567 transactions ago" in text


def test_rows_that_are_there_already() -> None:
    """Tables that are being read, wait, failed or are ignored are listed; those done are not."""
    counts = {"chunks": 0, "chunks_done": 0, "rows": 0, "bytes": 0, "estimate": 0}
    quiet = {**counts, "seconds_left": None, "reason": None}
    reading = {"chunks": 9, "chunks_done": 4, "rows": 1234, "bytes": 10**7, "estimate": 5000}
    tables = {
        "a.read": {"state": "reading", **reading, "seconds_left": 90.0, "reason": None},
        EVIL: {**quiet, "state": "failed", "reason": f"no right {EVIL}"},
        "a.finished": {**quiet, "state": "done"},
    }
    picture = dataclasses.replace(IDLE, status={**IDLE.status, "snapshot": tables})
    assert parsed(picture).open == []
    shown = render_page(picture).decode()
    assert (
        "<td>reading</td><td>4 of 9</td><td>1\u2009234</td><td>5\u2009000</td><td>10.0 MB</td>"
        in shown
    )
    assert "<script>alert" not in shown
    assert "a.finished" not in shown
    done = {"a.finished": tables["a.finished"]}
    idle = dataclasses.replace(IDLE, status={**IDLE.status, "snapshot": done})
    assert render_page(idle) == render_page(IDLE)


def test_sources_have_a_table() -> None:
    """With what the mark waits for; where there is one alone, there is none."""
    text = render_page(TROUBLE).decode()
    rows = text.partition('id="sources"')[2].partition("</section>")[0].split("<tr>")[2:]
    assert [">dn1<" in row for row in rows] == [True, False]
    assert "the mark has waited 7 min for transaction 8123, prepared" in rows[1]
    assert 'id="sources"' not in render_page(IDLE).decode()


def test_virtual_slots_have_a_table() -> None:
    """Lost ones are called so, and what is not known is a dash; without a slot there is no table."""
    known = {
        "name": "copy", "plugin": "pgoutput", "owner": "reader", "confirmed_lsn": "0/1234",
        "behind_bytes": 5_000_000, "behind_seconds": 90.0, "is_connected": True, "is_lost": False,
    }  # fmt: skip
    damaged = {**dict.fromkeys(known), "name": "damaged"}
    lost = {**known, "name": "gone", "is_lost": True, "behind_seconds": None}
    slots = [known, damaged, lost]
    picture = dataclasses.replace(IDLE, status={**IDLE.status, "virtual_slots": slots})
    assert parsed(picture).open == []
    text = render_page(picture).decode().partition('id="clients"')[2].partition("</section>")[0]
    assert "<td>5.0 MB</td><td>90 s</td><td>connected</td>" in text
    assert "<td>-</td><td>-</td><td>its file cannot be read</td>" in text
    assert "<td>5.0 MB</td><td>-</td><td>lost</td>" in text
    assert 'id="clients"' not in render_page(IDLE).decode()
    serve = {"state": "retrying", "reason": "<in use>", "listen": "127.0.0.1:15432"}
    picture = dataclasses.replace(IDLE, status={**IDLE.status, "serve": serve})
    assert parsed(picture).open == []
    text = render_page(picture).decode().partition('id="clients"')[2].partition("</section>")[0]
    assert "<p>serve at 127.0.0.1:15432: retrying: &lt;in use&gt;</p>" in text
    assert "<table" not in text


def test_texts_are_escaped() -> None:
    """Whatever a table, an error or a path is called, it stays text."""
    picture = dataclasses.replace(
        TROUBLE,
        status={**TROUBLE.status, "slot_name": EVIL, "detail": EVIL, "root": EVIL},
        limit=Limit(Stage.ENCODE, EVIL, EVIL),
        troubles=[
            *TROUBLE.troubles[1:],
            Trouble(STATES[0], EVIL, f"{EVIL}`{EVIL}`"),
            Trouble(state_of("gap"), EVIL, EVIL),
        ],
        tables=[TableTally(EVIL)],
    )
    plain, evil = parsed(TROUBLE), parsed(picture)
    assert [tag for tag, _ in evil.seen].count("script") == 1
    assert {tag for tag, _ in evil.seen} == {tag for tag, _ in plain.seen}


def test_the_limit_is_a_sentence() -> None:
    """The stage, why, what moves it."""
    text = render_page(dataclasses.replace(TROUBLE, troubles=[])).decode()
    assert "Limit: encode." in text
    assert "Remedy: landing.writer-lanes" in text


def test_queues_are_shown_by_the_bound_that_binds() -> None:
    """15 batches that fill the bytes are a full queue, and both figures can be read."""
    text = render_page(TROUBLE).decode()
    assert '<span title="15 of 128 batches, 990 B of 1000 B">127</span>' in text.replace(
        "1.0 KB", "1000 B"
    )


def test_the_document_stays_small() -> None:
    """Thousands of tables and a full history are cut to what a phone can take."""
    many = dataclasses.replace(TROUBLE, tables=[TableTally(f"t{i}") for i in range(2000)])
    page = render_page(many)
    assert len(page) < 100_000
    assert "and 1950 more" in page.decode()


def test_a_chart_has_the_figure_of_its_tile_times_and_gaps() -> None:
    """Both are of one reading; what is not known is no line."""
    samples = [Sample(2.0 * i, source_lag_bytes=9e6) for i in (*range(30), *range(60, 90))]
    page = render_page(dataclasses.replace(TROUBLE, samples=samples)).decode()
    for figure in ("7.5 GB", "83 min", "123\u2009456 rows/s", "242 batches"):
        assert f"</span><b>{figure}</b>" in page
    assert page.count("<dd>7.5 GB</dd>") == 1
    assert (
        '<p aria-hidden="true"><span>3 min ago</span><span>89 s ago</span><span>now</span>' in page
    )
    (drawing,) = re.findall(r'aria-label="lag: now.*?</svg>', page)
    assert drawing.count('class="area"') == 2
    assert drawing.startswith('aria-label="lag: now 7.5 GB, highest 7.5 GB in')  # and ends there


def test_a_rate_that_is_not_known_is_a_dash() -> None:
    """With the first sample there is none yet."""
    page = render_page(dataclasses.replace(IDLE, rates=None)).decode()
    for name in ("received", "decoded", "landed"):
        assert f"<dt>{name}</dt><dd>-</dd>" in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser for all tests of this module."""
    with Chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def served(browser: Chromium) -> Iterator[tuple[str, list[Picture]]]:
    """A server of the last picture in a list, with its address; the browser leaves before it ends."""
    pictures = [IDLE]
    server = MonitoringServer(
        Address("127.0.0.1", 0),
        render_metrics=lambda: b"",
        take_status=dict,
        is_alive=lambda: True,
        readiness=lambda: (True, "ready"),
        render_page=lambda _: render_page(pictures[-1]),
    )
    server.start()
    yield f"http://{server.address}/", pictures
    browser.leave()
    server.close()


@pytest.mark.parametrize(
    ("picture", "size", "is_dark"),
    [
        pytest.param(picture, size, is_dark, id=f"{name}-{size[0]}-{'dark' if is_dark else 'light'}")
        for (name, picture), size, is_dark in itertools.product(
            PICTURES.items(), (DESKTOP, PHONE), (False, True)
        )
    ],
)  # fmt: skip
def test_it_is_readable_everywhere(
    browser: Chromium, served: tuple[str, list[Picture]], picture: Picture,
    size: tuple[int, int], tmp_path: Path, *, is_dark: bool,
) -> None:  # fmt: skip
    """It fits the window, light or dark, axe has nothing to say, and the policy refuses nothing."""
    url, pictures = served
    pictures.append(picture)
    browser.open(url, width=size[0], height=size[1], is_dark=is_dark)
    assert browser.evaluate(OUTSIDE) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= size[0]
    back, text = (
        [int(part) for part in re.findall(r"\d+", browser.evaluate(
            f"getComputedStyle(document.body).{name}"))][:3]
        for name in ("backgroundColor", "color")
    )  # fmt: skip
    assert (sum(back) < sum(text)) is is_dark
    assert abs(sum(back) - sum(text)) > 450
    assert axe.complaints(browser) == []
    assert browser.screenshot(tmp_path / "page.png").startswith(b"\x89PNG")
    assert browser.complaints == []


def test_it_is_whole_without_its_script(
    browser: Chromium, served: tuple[str, list[Picture]]
) -> None:
    """Every section is there, and the document asks to be loaded again by itself."""
    url, pictures = served
    pictures.append(TROUBLE)
    browser.open(url, width=1280, height=900, has_script=False)
    sections = browser.evaluate("Array.from(document.querySelectorAll('section'), e => e.id)")
    assert sections == [
        "causes", "now", "queues", "waits", "sources", "snapshot", "history", "tables", "server", "commits",
    ]  # fmt: skip
    assert browser.evaluate("document.querySelector('noscript meta').content") == "5"


def test_the_script_keeps_it_fresh(browser: Chromium, served: tuple[str, list[Picture]]) -> None:
    """New figures appear without a new load, from the same origin only; a dead daemon is told."""
    url, pictures = served
    browser.open(url, width=1280, height=900)
    browser.evaluate("window.mark = 1")
    assert "Keeping up" in browser.evaluate("document.body.innerText")
    pictures.append(TROUBLE)
    wait_until(
        lambda: "may be lost" in browser.evaluate("document.body.innerText"),
        "the page shows new figures",
    )
    assert browser.evaluate("window.mark") == 1
    assert browser.evaluate("document.title") == "orders: retrying (error)"
    assert (
        browser.evaluate("document.getElementById('said').textContent")
        == "orders: retrying (error)"
    )
    assert "%23c9252d" in browser.evaluate("document.querySelector('link').href")
    assert browser.complaints == []
    assert {address for address in browser.requests if not address.startswith("data:")} == {url}
    pictures.append(dataclasses.replace(IDLE, status={}))  # cannot be rendered: 500
    wait_until(lambda: browser.evaluate("document.body.className") == "stale", "it says so")
    assert "No answer from the daemon" in browser.evaluate("document.body.innerText")
    assert axe.complaints(browser) == []


REACHED = """
Array.from(document.querySelectorAll('a, button, [tabindex]'))
    .filter(e => e.checkVisibility()).map(e => e.id)
"""


def test_the_keyboard_reaches_everything(
    browser: Chromium, served: tuple[str, list[Picture]]
) -> None:
    """In the order of the page, each with a frame that can be seen, also while figures change."""
    url, pictures = served
    pictures.append(TROUBLE)
    browser.open(url, width=1280, height=900)
    wanted = browser.evaluate(REACHED)
    assert {"copy-slot-near-its-end-1", "runbook-lagging", "box-tables", "guide"} <= set(wanted)
    reached = []
    for _ in wanted:
        browser.press("Tab")
        reached.append(browser.evaluate("document.activeElement.id"))
        style = browser.evaluate("getComputedStyle(document.activeElement).outline")
        assert "solid 3px" in style, reached
    assert reached == wanted


def test_focus_stays_while_figures_change(
    browser: Chromium, served: tuple[str, list[Picture]]
) -> None:
    """And Enter copies the command, or selects it for the person to copy."""
    url, pictures = served
    pictures.append(TROUBLE)
    browser.open(url, width=1280, height=900)
    browser.press("Tab")
    first, *others = TROUBLE.troubles
    later = dataclasses.replace(first, what="The slot may be lost in 14 min.")
    pictures.append(dataclasses.replace(TROUBLE, troubles=[later, *others]))
    wait_until(lambda: "14 min" in browser.evaluate("document.body.innerText"), "new figures")
    assert browser.evaluate("document.activeElement.id") == "copy-slot-near-its-end-1"
    browser.press("Enter")
    said = "document.activeElement.textContent"
    wait_until(lambda: browser.evaluate(said) in {"Copied", "Selected"}, "it says so")
    assert browser.evaluate("getSelection().toString()") == RAISE


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_runbooks_are_served(
    browser: Chromium, served: tuple[str, list[Picture]], size: tuple[int, int], *, is_dark: bool
) -> None:
    """Each state's link leads to its section; nothing of Markdown is left over."""
    url, _ = served
    browser.open(f"{url}alerts#gaussdecodegap", width=size[0], height=size[1], is_dark=is_dark)
    target = "document.querySelector(':target')?.textContent"  # it goes there after the load
    wait_until(lambda: browser.evaluate(target) == "GaussdecodeGap", "the section")
    names = set(browser.evaluate("Array.from(document.querySelectorAll('h3'), e => e.id)"))
    assert {state.alert.lower() for state in STATES} <= names
    text = browser.evaluate("document.querySelector('main').innerText")
    assert not re.search(r"[`#]|\]\(|\*\w", text)
    dead = "Array.from(document.querySelectorAll('a')).filter(a => !document.querySelector(a.hash))"
    assert browser.evaluate(f"{dead}.length") == 0
    assert browser.evaluate(OUTSIDE) == []
    assert axe.complaints(browser) == []


def test_the_buttons_act(browser: Chromium, tmp_path: Path) -> None:
    """With the token that was typed once; the answer stands below, and a wrong token is said."""
    asked: list[object] = []

    def ask(act: object, table: object, _by: str, _seconds: float) -> Answer:
        asked.append((act, table))
        return Answer(is_done=True, text="told so")

    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    server = MonitoringServer(
        Address("127.0.0.1", 0),
        render_metrics=lambda: b"",
        take_status=dict,
        is_alive=lambda: True,
        readiness=lambda: (True, "ready"),
        render_page=lambda _: render_page(dataclasses.replace(IDLE, has_acts=True)),
        act=HttpActs(ask, token),
    )
    server.start()
    try:
        browser.open(f"http://{server.address}/", width=1280, height=900, is_dark=False)
        assert axe.complaints(browser) == []
        assert browser.complaints == []
        said = "document.getElementById('acted').textContent"

        def click(name: str, typed: str) -> None:
            browser.evaluate(f"document.getElementById('token').value = '{typed}'")
            browser.evaluate(f"document.getElementById('act-{name}').click()")

        click("pause", "wrong")
        wait_until(lambda: "Not done: the token is wrong" in browser.evaluate(said), "a refusal")
        click("pause", token.read_text())
        wait_until(lambda: browser.evaluate(said) == "told so", "the answer")
        browser.evaluate("document.getElementById('act-table').value = 's.t'")
        click("snapshot", "")
        wait_until(lambda: asked == [("pause", None), ("snapshot", "s.t")], "the token is kept")
        assert b'id="acts"' not in render_page(IDLE), "no buttons without a token"
    finally:
        browser.leave()
        server.close()


def test_the_buttons_act_with_a_certificate(browser: Chromium) -> None:
    """Which the browser shows by itself: there is no token to type, and none is sent."""
    asked: list[tuple[str, bytes]] = []

    def post(authorization: str, _by: str, content: bytes, _is_certified: bool) -> Page:
        asked.append((authorization, content))
        return HTTPStatus.OK, "application/json", b'{"is_done": true, "text": "told so"}'

    server = MonitoringServer(
        Address("127.0.0.1", 0),
        render_metrics=lambda: b"",
        take_status=dict,
        is_alive=lambda: True,
        readiness=lambda: (True, "ready"),
        render_page=lambda _: render_page(IDLE, "'oper<ator'"),
        act=post,
    )
    server.start()
    try:
        browser.open(f"http://{server.address}/", width=1280, height=900, is_dark=False)
        assert axe.complaints(browser) == []
        assert "'oper<ator'" in browser.evaluate("document.getElementById('acts').innerText")
        assert browser.evaluate("document.getElementById('token')") is None
        browser.evaluate("document.getElementById('act-pause').click()")
        said = "document.getElementById('acted').textContent"
        wait_until(lambda: browser.evaluate(said) == "told so", "the answer")
        assert asked == [("", b'{"act":"pause","table":null}')]
        assert browser.complaints == []
    finally:
        browser.leave()
        server.close()
