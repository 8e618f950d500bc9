"""The translator makes the same messages of every style, version and encoding."""

import decimal
import struct
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from kit.daemon import wait_until
from kit.gaussclient import Client
from kit.gaussprofile import PROFILES, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Change, Committed, StoredColumn, Values
from kit.gaussworkload import Workload

from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.catalog import GaussCatalog
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList

pytestmark = pytest.mark.integration
STYLES: tuple[tuple[str, int], ...] = (("b", 0), ("b", 1), ("t", 1), ("j", 1), ("s", 0))
ENCODINGS = ("UTF8", "GB18030", "GBK", "UTF8", "GB18030", "SQL_ASCII", "UTF8")
_WIDE = decimal.Context(prec=60)


def tuples(message: bytes) -> Mapping[str, list[str | None]]:
    """The tuples of a canonical I, U or D message by letter."""
    at, found = 5, {}
    while at < len(message):
        letter = chr(message[at])
        (count,) = struct.unpack_from(">H", message, at + 1)
        at += 3
        values: list[str | None] = []
        for _ in range(count):
            kind = message[at : at + 1]
            at += 1
            if kind == b"n":
                values.append(None)
                continue
            (size,) = struct.unpack_from(">I", message, at)
            values.append(message[at + 4 : at + 4 + size].decode())
            at += 4 + size
        found[letter] = values
    return found


def is_same(column: StoredColumn, held: object, text: str | None) -> bool:
    """Whether a text that the translator gave spells the stored value."""
    if held is None or text is None:
        return held is text
    assert isinstance(held, str)
    if held in ("NaN", "Infinity", "-Infinity"):
        return text == held
    if column.type_name == "numeric":
        return _WIDE.create_decimal(text) == _WIDE.create_decimal(held)
    if column.type_name == "double precision":
        return float(text) == float(held)
    if column.type_name == "real":
        return struct.pack("f", float(text)) == struct.pack("f", float(held))
    if column.type_name == "numeric[]":
        return text in (held, held.replace("0.", "."))
    if column.type_name in ("raw", "blob"):
        return text.lower() == held
    return text == held


def check_row(message: bytes, change: Change) -> None:
    """Assert that a message says what the WAL says."""
    assert message[:1] == change.op.encode()
    found = tuples(message)

    def compare(letter: str, values: Values, names: tuple[str, ...]) -> None:
        columns = change.table.columns
        assert len(found[letter]) == len(columns)
        for column, held, text in zip(columns, values, found[letter], strict=True):
            wanted = held if column.name in names else None
            assert is_same(column, wanted, text), f"{column}: {wanted!r} became {text!r}"

    if change.new is not None:
        compare("N", change.new, tuple(column.name for column in change.table.columns))
    if change.old is not None and change.table.identity_names:
        (letter,) = found.keys() & {"K", "O"}
        compare(letter, change.old, change.table.identity_names)


def translated(
    server: GaussServer, style: str, batch: int, wanted: list[Committed]
) -> Iterator[bytes]:
    """Stream all transactions and translate them."""
    dsn = f"host=127.0.0.1 port={server.port} dbname=shop user=replica sslmode=disable"
    catalog = GaussCatalog(SourceAddress(dsn, is_insecure_allowed=True))
    relations = GaussRelations(WhiteList(()), catalog)
    translator = Translator(style.encode(), bool(batch), server.behaviour.encoding)
    options = {"skip_empty_xacts": "true", "include_timestamp": "true"}
    if style != "s":
        options |= {"parallel_decode_num": "2", "decode_style": style, "sending_batch": str(batch)}
    left, deadline = len(wanted), time.monotonic() + 60
    with Client(server.port, replication=True, TimeZone="UTC") as client:
        client.start("s", **options)
        while left:
            assert time.monotonic() < deadline, f"{left} transactions did not come"
            got = client.receive(1)
            for lsn, payload in zip(got.headers, got.bodies, strict=True):
                for message in translator.feed_bytes(payload, lsn, relations.define):
                    left -= message[:1] == b"f"
                    yield message
    catalog.close()
    assert translator.unknown_part_count == translator.unread_time_count == 0
    assert translator.unconverted_count == 0
    wait_until(lambda: not server.slots["s"].is_active, "the slot is free")


CASES = [
    pytest.param(PROFILES[name], encoding, id=f"{name}-{encoding}")
    for name, encoding in zip(PROFILES, ENCODINGS, strict=True)
]


@pytest.mark.parametrize(("profile", "encoding"), CASES)
def test_styles_agree(
    make_gauss: Callable[..., GaussServer], profile: Profile, encoding: str
) -> None:
    """Each row of a random workload comes out the same in every style, old rows included."""
    behaviour = Behaviour(
        flush_seconds=0.03, hba="trust", replication_hba="trust", encoding=encoding
    )
    server = make_gauss(profile, behaviour=behaviour)
    server.create_slot("s")
    Workload(server.store, 50, codec=server.codec).run(20)
    wanted = [one for one in server.store.committed if one.changes]
    changes = [change for one in wanted for change in one.changes]
    for style, batch in STYLES:
        messages = list(translated(server, style, batch, wanted))
        ends = [struct.unpack_from(">QQ", m, 1) for m in messages if m[:1] == b"f"]
        assert ends == [(one.end_lsn, one.xid) for one in wanted]
        csns = [struct.unpack_from(">Q", m, 9)[0] for m in messages if m[:1] == b"g"]
        expected = [one.csn for one in wanted]
        assert csns == (expected if style != "s" else [0] * len(wanted)) or csns == expected
        rows = [message for message in messages if message[:1] in (b"I", b"U", b"D")]
        for message, change in zip(rows, changes, strict=True):
            check_row(message, change)
    assert not server.unknown_queries
