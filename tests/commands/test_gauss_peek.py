"""Tests for `gaussdecode.commands.peek` and `get` on a simulated openGauss or GaussDB."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.gaussprofile import COMMERCIAL, PROFILES, V3_0_0, V6_0_0, Profile
from kit.gaussserver import GaussServer
from kit.gaussstore import Committed, Table

from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.land.names import LAYOUT
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]

POSITION = r"[0-9A-F]+/[0-9A-F]+"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?\+00"
XID = r"(?: xid: \d+)?"  # of BEGIN, from 6.0.0 on
FORMS = {
    "t": (
        rf"BEGIN CSN: \d+ first_lsn: {POSITION}{XID} commit_time: {TIME}",
        rf"commit xid: \d+ \(at {TIME}\)",
    ),
    "b": (
        rf"current_lsn: {POSITION} BEGIN CSN: \d+ first_lsn: {POSITION}{XID} commit_time: {TIME}",
        rf"current_lsn: {POSITION} COMMIT xid: \d+ commit_time: {TIME}",
    ),
}
FORMS["j"] = FORMS["t"]


def orders(server: GaussServer) -> Table:
    """A slot, and a table with a key."""
    server.create_slot("orders")
    return server.store.create_table("public", "test1", {"a": "int4", "b": "text"}, key=["a"])


def insert(server: GaussServer, table: Table, *numbers: int, **how: object) -> Committed:
    """One transaction of inserts."""
    transaction = server.store.begin(**how)  # type: ignore[arg-type]  # as given
    for number in numbers:
        transaction.insert(table, {"a": str(number), "b": f"it's {number}"})
    return transaction.commit()


def decoding(*options: str, number: int = 2) -> str:
    """The section of options."""
    return f"decoding: {{{', '.join([f'parallel-decode-num: {number}', *options])}}}"


def rows(out: str, style: str) -> list[str]:
    """The lines between BEGIN and COMMIT, whose form is checked."""
    begin, commit = FORMS[style]
    return [
        re.sub(rf"current_lsn: {POSITION} ", "", line)
        for line in out.splitlines()
        if not (re.fullmatch(begin, line) or re.fullmatch(commit, line))
    ]


def json_row(operation: str, new: list[str], old: list[str]) -> str:
    """A row in JSON: the eight keys in the product's order."""
    names, types = ["a", "b"], ["integer", "text"]
    record = {
        "table_name": "public.test1",
        "op_type": operation,
        "columns_name": names[: len(new)],
        "columns_type": types[: len(new)],
        "columns_val": new,
        "old_keys_name": names[: len(old)],
        "old_keys_type": types[: len(old)],
        "old_keys_val": old,
    }
    return json.dumps(record, separators=(",", ":"))


EXPECTED = {
    "t": """\
table public test1 INSERT: a[integer]:1 b[text]:'it''s 1'
table public test1 UPDATE: old-key: a[integer]:1 new-tuple: a[integer]:1 b[text]:null
table public test1 DELETE: a[integer]:1
""",
    "j": f"""\
{json_row("INSERT", ["1", "'it''s 1'"], [])}
{json_row("UPDATE", ["1", "null"], ["1"])}
{json_row("DELETE", [], ["1"])}
""",
    "b": """\
INSERT INTO public.test1 new_tuple: {a[typid = 23]: "1", b[typid = 25]: "it's 1"}
UPDATE public.test1 new_tuple: {a[typid = 23]: "1", b[typid = 25]: "NULL"} \
old_value: {a[typid = 23]: "1"}
DELETE FROM public.test1 old_value: {a[typid = 23]: "1"}
""",
}


@pytest.mark.parametrize("style", ["t", "j", "b"])
@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("profile", [V3_0_0, V6_0_0, COMMERCIAL], ids=lambda p: p.name)
def test_styles_are_the_products(
    make_gauss: MakeGauss,
    configure_gauss: Configure,
    run: Run,
    profile: Profile,
    batch: int,
    style: str,
) -> None:
    """Byte for byte, whether the server gathers or not."""
    server = make_gauss(profile)
    table = orders(server)
    transaction = server.store.begin()
    (row,) = transaction.insert(table, {"a": "1", "b": "it's 1"})
    transaction.update(table, row, {"b": None})
    transaction.delete(table, row)
    transaction.commit()
    path = configure_gauss(server, decoding(f"sending-batch: {batch}", "decode-style: t"))
    result = run("peek", "--style", style, path)
    assert result.status == EX_OK, result.err
    assert rows(result.out, style) == EXPECTED[style].splitlines()
    assert server.slots["orders"].confirmed_lsn <= server.store.committed[0].commit_lsn


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_serial_decoding_prints_what_the_plugin_makes(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, profile: Profile
) -> None:
    """JSON between BEGIN and COMMIT with a CSN at its end; a style is refused."""
    server = make_gauss(profile)
    insert(server, orders(server), 7)
    path = configure_gauss(server)
    begin, row, commit = run("peek", path).out.splitlines()
    assert re.fullmatch(r"BEGIN \d+", begin)
    assert json.loads(row)["columns_val"] == ["7", "'it''s 7'"]
    assert re.fullmatch(rf"COMMIT \d+ \(at {TIME}\) CSN \d+", commit)
    refused = run("peek", "--style", "j", path)
    assert refused.status == EX_CONFIG
    assert "--style applies only with decoding.parallel-decode-num" in refused.err


@pytest.mark.parametrize("number", [1, 2], ids=["serial", "parallel"])
def test_limits(make_gauss: MakeGauss, configure_gauss: Configure, run: Run, number: int) -> None:
    """By position, by number of changes, by time; always whole transactions."""
    server = make_gauss()
    table = orders(server)
    insert(server, table, 1, 2)
    middle = server.store.committed[-1].end_lsn
    insert(server, table, 3)
    path = configure_gauss(server, decoding("skip-empty-xacts: true", number=number))

    def count(*arguments: str) -> int:
        return len(re.findall(r"INSERT", run("peek", *arguments, path).out))

    assert count() == 3
    assert count("--upto-lsn", str(Lsn(middle))) == 2
    assert count("--upto-lsn", str(Lsn(middle - 1))) == 0
    assert count("--limit", "1") == 2
    assert count("--limit", "3") == 3
    assert count("--follow", "--seconds", "0.5") == 3


@pytest.mark.parametrize("style", ["t", "j", "b", None], ids=str)
def test_get_confirms_what_it_printed(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, style: str | None
) -> None:
    """In every style, serially too: the end of the last commit, and no more."""
    server = make_gauss()
    table = orders(server)
    first = insert(server, table, 1, 2)
    insert(server, table, 3)
    last = insert(server, table, 4)
    number = 1 if style is None else 2
    path = configure_gauss(server, decoding("sending-batch: 0" if style else "", number=number))
    arguments = ["--style", style] if style else []
    got = run("get", "--limit", "1", *arguments, path)
    assert got.status == EX_OK, got.err
    assert got.out.count("INSERT") == 2
    assert server.slots["orders"].confirmed_lsn == first.end_lsn
    assert run("get", *arguments, path).out.count("INSERT") == 2
    assert server.slots["orders"].confirmed_lsn == last.end_lsn
    assert run("get", *arguments, path).out == ""


def test_nothing_is_taken_from_a_landing(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, tmp_path: Path
) -> None:
    """The landing would miss it."""
    server = make_gauss()
    insert(server, orders(server), 1)
    path = configure_gauss(server)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / LAYOUT).write_text("{}")
    assert run("get", path).status == EX_CONFIG


def test_keepalives_that_run_ahead_end_nothing(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """A server that holds transactions back is believed only when it is silent for long."""
    server = make_gauss()
    table = orders(server)
    committed = insert(server, table, 1)
    path = configure_gauss(server, decoding())
    server.behaviour.is_held = True
    assert run("get", path).out == ""
    assert server.slots["orders"].confirmed_lsn < committed.end_lsn
    server.behaviour.is_held = False
    assert run("get", path).out.count("INSERT") == 1


def test_a_loss_is_told(make_gauss: MakeGauss, configure_gauss: Configure, run: Run) -> None:
    """The server's notice goes to standard error."""
    server = make_gauss()
    table = orders(server)
    transaction = server.store.begin()
    transaction.insert(table, {"a": "1", "b": "x"})
    transaction.ddl()
    transaction.insert(table, {"a": "2", "b": "y"})
    transaction.commit()
    result = run("peek", configure_gauss(server, decoding("decode-style: t")))
    assert len(rows(result.out, "t")) == 1
    assert "warning: the server says: Due to DDL" in result.err


# ---- options whose effect shows here -------------------------------------------------------


def test_start_position_leaves_out_what_lies_before(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """Older transactions, and of the named one its BEGIN and the rows before the position."""
    server = make_gauss()
    table = orders(server)
    insert(server, table, 1)
    named = insert(server, table, 2, 3)
    insert(server, table, 4)
    second = named.changes[1].lsn
    option = f"start-position: {named.csn}/{second}"
    path = configure_gauss(server, decoding(option, "decode-style: b"))
    lines = run("peek", path).out.splitlines()
    assert [re.findall(r'"(\d)"', line) for line in lines if "INSERT" in line] == [
        ["3"], ["4"],
    ]  # fmt: skip
    assert len([line for line in lines if "BEGIN" in line]) == 1
    assert len([line for line in lines if "COMMIT" in line]) == 2


def test_keepalives_show_as_heartbeats(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """An openGauss sends none of its own."""
    server = make_gauss()
    orders(server)
    path = configure_gauss(server, decoding("enable-heartbeat: true"))
    lines = run("peek", "--follow", "--seconds", "0.5", path).out.splitlines()
    assert lines
    assert all(re.fullmatch(rf"HeartBeat: {POSITION}", line) for line in lines)


@pytest.mark.parametrize("is_framed", [True, False], ids=["framed", "bare"])
@pytest.mark.parametrize("style", ["b", "t"])
def test_heartbeats_of_gaussdb_are_printed(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, style: str, is_framed: bool
) -> None:
    """In both framings; the daemon adds none."""
    server = make_gauss(COMMERCIAL, heartbeat_framed=is_framed)
    orders(server)
    path = configure_gauss(server, decoding("enable-heartbeat: true", f"decode-style: {style}"))
    result = run("peek", "--follow", "--seconds", "0.7", path)
    assert result.status == EX_OK, result.err
    assert "HeartBeat: " in result.out


@pytest.mark.parametrize("style", ["b", "t"])
def test_heartbeats_do_not_keep_peek_from_its_end(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, style: str
) -> None:
    """They are signs of life, not data: two of them and nothing in between, and all has come."""
    server = make_gauss(COMMERCIAL, flush_seconds=0.05)
    insert(server, orders(server), 1)
    server.store.write(300)  # no commit brings the stream up to the end of the WAL
    path = configure_gauss(server, decoding("enable-heartbeat: true", f"decode-style: {style}"))
    result = run("peek", path)
    assert result.status == EX_OK, result.err
    assert len(re.findall(r"(?i)\bcommit\b", result.out)) == 1


def test_a_serial_stream_is_asked_for_its_end(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """Its sender says nothing of its own accord; peek ends at WAL without a commit too."""
    server = make_gauss()
    insert(server, orders(server), 1)
    server.store.write(300)
    result = run("peek", configure_gauss(server, "decoding: {parallel-decode-num: 1}"))
    assert result.status == EX_OK, result.err
    assert "COMMIT" in result.out


def test_users_are_named_and_left_out(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """GaussDB says who; openGauss cannot, and refuses."""
    server = make_gauss(COMMERCIAL)
    table = orders(server)
    insert(server, table, 1, user="alice")
    insert(server, table, 2, user="mallory")
    options = decoding("include-user: true", "exclude-users: mallory", "decode-style: b")
    out = run("peek", configure_gauss(server, options)).out
    assert " user: alice" in out
    assert re.findall(r'"(\d)"', out) == ["1"]
    plain = make_gauss()
    orders(plain)
    refused = run("peek", configure_gauss(plain, options))
    assert refused.status == EX_CONFIG
    assert "decoding.exclude-users: mallory is not possible on openGauss 6.0.0" in refused.err


def test_filters_by_user_reach_the_server(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """The server judges them; openGauss would not know them, and is not asked."""
    options = decoding("exclude-userids: '10,16384'", "dynamic-resolution: false")
    server = make_gauss(COMMERCIAL)
    insert(server, orders(server), 1)
    result = run("peek", configure_gauss(server, options))
    assert result.status == EX_OK, result.err
    assert result.out.count("INSERT") == 1
    plain = make_gauss()
    orders(plain)
    refused = run("peek", configure_gauss(plain, options))
    assert refused.status == EX_CONFIG
    assert "decoding.exclude-userids: 10,16384 is not possible on openGauss" in refused.err
    assert "decoding.dynamic-resolution: false is not possible on openGauss" in refused.err


def test_csn_order_needs_its_slot(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """Peek may ask for it where the slot was made so; get would confirm too much."""
    server = make_gauss(COMMERCIAL)
    table = server.store.create_table("public", "test1", {"a": "int4", "b": "text"}, key=["a"])
    server.create_slot("orders", csn=1)
    insert(server, table, 1)
    path = configure_gauss(server, decoding("output-order: 1"))
    result = run("peek", path)
    assert result.status == EX_OK, result.err
    assert result.out.count("INSERT") == 1
    refused = run("get", path)
    assert refused.status == EX_CONFIG
    assert "decoding.output-order: 1 is possible for peek" in refused.err
    assert run("peek", configure_gauss(server, decoding())).status == EX_CONFIG


def test_a_primary_refuses_standby_connections(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """With the documented error, which says that trying again is of no use."""
    server = make_gauss()
    orders(server)
    path = configure_gauss(server, decoding("standby-connection: true"))
    refused = run("peek", path)
    assert refused.status == EX_CONFIG
    assert "walsender closed because of role is primary" in refused.err


@pytest.mark.parametrize("is_xid", [True, False], ids=["xid", "no xid"])
@pytest.mark.parametrize("is_time", [True, False], ids=["time", "no time"])
def test_what_transactions_carry(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, is_xid: bool, is_time: bool
) -> None:
    """include-xids and include-timestamp."""
    server = make_gauss()
    insert(server, orders(server), 1)
    options = [f"include-xids: {str(is_xid).lower()}", f"include-timestamp: {str(is_time).lower()}"]
    path = configure_gauss(server, decoding("decode-style: t", *options))
    lines = run("peek", path).out.splitlines()
    for line in (lines[0], lines[-1]):
        assert (" xid: " in line) is is_xid
        assert (re.search(TIME, line) is not None) is is_time


def test_filters_of_the_server(make_gauss: MakeGauss, configure_gauss: Configure, run: Run) -> None:
    """White list, empty transactions and replicated ones."""
    server = make_gauss()
    table = orders(server)
    other = server.store.create_table("public", "other", {"a": "int4", "b": "text"}, key=["a"])
    insert(server, table, 1)
    insert(server, other, 2)
    insert(server, table, 3, origin=1)
    insert(server, table, 4)

    def lines(*options: str) -> list[str]:
        path = configure_gauss(server, decoding("decode-style: t", *options))
        return run("peek", path).out.splitlines()

    def ids(*options: str) -> list[str]:
        return re.findall(r"a\[integer\]:(\d)", "\n".join(lines(*options)))

    assert ids() == ["1", "2", "4"]
    assert ids("only-local: false") == ["1", "2", "3", "4"]
    assert ids("white-table-list: public.other") == ["2"]
    assert len(lines("white-table-list: public.other", "skip-empty-xacts: true")) == 3
    assert len(lines("white-table-list: public.other")) > 3
    assert any("origin_id: " in line for line in lines("include-originid: true"))


def test_output_ends_at_the_data_limit(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the transaction that reaches it; a gigabyte is made small here."""
    monkeypatch.setattr("gaussdecode.settings.source_sections.GIB", 100)
    server = make_gauss()
    table = orders(server)
    insert(server, table, 1, 2)
    insert(server, table, 3)
    path = configure_gauss(server, decoding("data-limit: 1", "skip-empty-xacts: true"))
    assert run("peek", path).out.count("INSERT") == 2


def test_the_server_ends_a_stream_that_it_does_not_hear(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """sender-timeout reaches the server, and statuses come often enough for it."""
    server = make_gauss()
    insert(server, orders(server), 1)
    path = configure_gauss(server, decoding("sender-timeout: 300"))
    result = run("peek", "--follow", "--seconds", "1.5", path)
    assert result.status == EX_OK, result.err
    assert result.out.count("INSERT") == 1


def test_an_order_that_peek_does_not_make_is_told(
    make_gauss: MakeGauss, configure_gauss: Configure, run: Run
) -> None:
    """An openGauss sends by commit record; the lines stay as they are."""
    server = make_gauss()
    insert(server, orders(server), 1)
    result = run("peek", configure_gauss(server, decoding("output-order: 1")))
    assert result.status == EX_OK, result.err
    assert "decoding.output-order: 1 has no effect here" in result.err
    assert "output-order" not in result.out
