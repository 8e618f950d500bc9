"""Hostile bytes for GaussDB's formats: cut, changed, made up; the plain twin is the oracle.

`GAUSSDECODE_FUZZ_CASES` multiplies how many cases there are; it may be below 1.
"""

import array
import gc
import os
import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from kit import gaussrandom as gr
from kit import gausswire as gw
from kit.gaussprofile import V6_0_0
from twins.gaussformats import PlainTranslator

from gaussdecode.errors import GaussDecodeError, LostRowError, SourceRefusedError, WireError
from gaussdecode.model.shape import Definition, Shape
from gaussdecode.source.gaussdb.relations import GaussRelations, TableCatalog
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList

TIMES: Final = float(os.environ.get("GAUSSDECODE_FUZZ_CASES", "1"))
RESIDENT_SLACK: Final = 8 << 20  # bytes; arbitrary, what the interpreter may take meanwhile
# What a text can be broken with.
SPLINTERS: Final = [
    b"'", b'"', b"\\", b" ", b"[", b"]", b":", b",", b"{", b"}", b"null", b"true", b"\0", b"\xff",
    b"(no-tuple-data)", b" new-tuple:", b" old-key:", b"unchanged-toast-datum", b" and ", b");",
    b" CSN 5", b" (at ", b" xid: 5", b" INSERT:", b" TRUNCATE:", b"\\u00e9", b"\\ud83d\\ude00",
    b"\\ud83d", b"P", b"F", b"N", b"O", b"h", b"\0\0\0\0", b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe", b"\0\0\0\x19", b"\x7f\xff\xff\xff", b"BEGIN", b"commit", b"HeartBeat: ",
]  # fmt: skip

Payload = tuple[bytes, int]
Feed = Callable[[bytes, int], list[bytes]]


def streams(seed: int, width: int = 4) -> tuple[str, int, list[Payload], TableCatalog | None]:
    """Make a short stream: style, batching, payloads, and a catalogue or none."""
    rng = random.Random(seed)
    style, batch = gr.STYLES[seed % len(gr.STYLES)]
    tables = [gr.random_table(rng, names, width) for names in gr.TABLES]
    sent = gr.random_transactions(rng, tables, 2, truncates=style == "s")
    payloads = gr.payloads_of(gr.stream_of(style, batch, gr.random_wanted(rng)), sent)
    has_catalog = style == "q" or rng.random() < 0.5
    return style, batch, payloads, gr.Tables(tables) if has_catalog else None


def fast(style: str, batch: int, catalog: TableCatalog | None, encoding: str = "UTF8") -> Feed:
    """Feed the translator; a payload is an array, which ends where its memory ends."""
    translator = Translator(style.encode(), bool(batch), encoding)
    relations = GaussRelations(WhiteList(), catalog)
    return lambda payload, lsn: translator.feed_bytes(
        array.array("B", payload), lsn, relations.define
    )


def slow(style: str, batch: int, catalog: TableCatalog | None) -> Feed:
    """Feed the twin."""
    translator = PlainTranslator(style, is_batched=bool(batch))
    relations = GaussRelations(WhiteList(), catalog)
    return lambda payload, lsn: translator.feed(payload, lsn, relations.define)


def outcome(feed: Feed, payload: bytes, lsn: int) -> str:
    """What translating gives: the messages, or class, byte and reason of the error."""
    try:
        return repr(feed(payload, lsn))
    except WireError as error:
        return f"{type(error).__name__} at {error.offset}: {error.reason}"
    except GaussDecodeError as error:
        return f"{type(error).__name__}: {error}"


def damaged(rng: random.Random, payload: bytes) -> bytes:
    """Change a payload in one place or a few."""
    data = bytearray(payload)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(6)
        if not data or kind == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at : at + rng.randrange(1, 5)]
        elif kind == 3:
            data[at:at] = rng.choice(SPLINTERS)
        elif kind == 4:
            splinter = rng.choice(SPLINTERS)
            data[at : at + len(splinter)] = splinter
        else:
            source = rng.randrange(len(data))
            data[at:at] = data[source : source + rng.randrange(1, 20)]
    return bytes(data)


def cases(first: int, count: int) -> Iterator[tuple[str, int, list[Payload], TableCatalog | None]]:
    """Give streams with one payload damaged, a few per stream."""
    for seed in range(first, first + int(count * TIMES)):
        rng = random.Random(seed)
        style, batch, payloads, catalog = streams(seed)
        for _ in range(10 if payloads else 0):
            at = rng.randrange(len(payloads))
            payload, lsn = payloads[at]
            yield style, batch, [*payloads[:at], (damaged(rng, payload), lsn)], catalog


@pytest.mark.parametrize(("style", "batch"), gr.STYLES)
def test_decoders_agree_on_streams(style: str, batch: int) -> None:
    """The same messages from both, whatever was sent."""
    for seed in range(gr.STYLES.index((style, batch)), max(int(160 * TIMES), 8), len(gr.STYLES)):
        _, _, payloads, catalog = streams(seed, 8)
        one, other = fast(style, batch, catalog), slow(style, batch, catalog)
        for payload, lsn in payloads:
            assert one(payload, lsn) == other(payload, lsn)


@pytest.mark.parametrize(("style", "batch"), gr.STYLES)
def test_every_prefix(style: str, batch: int) -> None:
    """Cut anywhere, both say the same; a framed payload is an error then."""
    # A batch is one long payload: few of them are many cuts.
    last = 16 if batch else 40
    is_framed = style == "b" or bool(batch)
    for seed in range(gr.STYLES.index((style, batch)), max(int(last * TIMES), 8), len(gr.STYLES)):
        _, _, payloads, catalog = streams(seed, 2 if batch else 4)
        for at, (whole, lsn) in enumerate(payloads[:3]):
            for size in range(len(whole)):
                one, other = fast(style, batch, catalog), slow(style, batch, catalog)
                for payload, position in payloads[:at]:
                    one(payload, position)
                    other(payload, position)
                said = outcome(one, whole[:size], lsn)
                assert said == outcome(other, whole[:size], lsn)
                assert not is_framed or said.startswith("TruncatedError")


def test_decoders_agree_on_damaged_bytes() -> None:
    """The same messages, or the same error at the same byte, whatever arrives."""
    said = set()
    for style, batch, payloads, catalog in cases(0, 300):
        one, other = fast(style, batch, catalog), slow(style, batch, catalog)
        for payload, lsn in payloads:
            result = outcome(one, payload, lsn)
            assert result == outcome(other, payload, lsn), (style, batch, payload)
            said.add(result[:5])
    assert {"[b'g\\", "Trunc", "WireE"} <= said


def runs(seed: int, count: int) -> tuple[list[Payload], TableCatalog | None]:
    """Give a stream in style b of rows into one table, one after the other, as most are."""
    rng = random.Random(seed)
    table = gr.random_table(rng, rng.choice(gr.TABLES), 6)
    stream = gr.stream_of("b", 1, gr.random_wanted(rng))
    changes = []
    for number in range(count):
        fields = [
            (column, gr.random_value(rng, column, is_key=index in table.key))
            for index, column in enumerate(table.columns)
        ]
        changes.append(gw.Row("I", 100 + number, table.schema, table.name, fields, None))
    sent = gw.Transaction(
        xid=7, csn=8, first_lsn=90, commit_lsn=900, end_lsn=999, commit_time_us=0, changes=changes
    )
    catalog = gr.Tables([table]) if rng.random() < 0.5 else None
    return gr.payloads_of(stream, [sent]), catalog


def test_decoders_agree_on_rows_like_the_one_before() -> None:
    """What is walked at once is what is read with care, also where it is damaged."""
    said = set()
    for seed in range(max(int(400 * TIMES), 8)):
        rng = random.Random(seed)
        payloads, catalog = runs(seed, 6)
        one, other = fast("b", 1, catalog), slow("b", 1, catalog)
        for payload, lsn in payloads:
            assert one(payload, lsn) == other(payload, lsn)
        for _ in range(10):
            ((payload, lsn),) = payloads
            half = len(payload) // 2  # the first rows are whole, and like those behind them
            broken = payload[:half] + damaged(rng, payload[half:])
            one, other = fast("b", 1, catalog), slow("b", 1, catalog)
            result = outcome(one, broken, lsn)
            assert result == outcome(other, broken, lsn), broken
            said.add(result[:5])
    assert {"[b'g\\", "Trunc", "WireE"} <= said


def test_unconverted_values_are_counted_once() -> None:
    """Of a row that begins like the one before and is another one all the same."""
    translator = Translator(b"b", True, "GBK")
    relations = GaussRelations(WhiteList())
    translator.feed_bytes(b"\0\0\0\x19" + bytes(8) + b"B" + bytes(16) + b"F")
    style = gw.BinaryStyle(gw.Wanted(), V6_0_0)
    first, second, third = (gw.Column(name, 25, "text") for name in (b"a", b"b", b"c"))

    def feed(*columns: gw.Column) -> None:
        fields = [(column, b"\xff\xff") for column in columns]
        row = gw.Row("I", 1, b"s", b"t", fields, None)
        translator.feed_bytes(style.row(row) + b"F", 0, relations.define)

    feed(first, second)
    feed(first, second)
    assert translator.unconverted_count == 4
    feed(first, third)
    assert translator.unconverted_count == 6


@pytest.mark.parametrize("encoding", ["UTF8", "GBK", "GB18030", "LATIN1"])
def test_damaged_bytes_are_messages_or_errors(encoding: str) -> None:
    """Nothing but an error of ours comes out of any bytes."""
    for style, batch, payloads, catalog in cases(1_000_000, 600):
        feed = fast(style, batch, catalog, encoding)
        for payload, lsn in payloads:
            outcome(feed, payload, lsn)


@pytest.mark.parametrize("style", ["b", "t", "j", "s", "q"])
def test_made_up_bytes(style: str) -> None:
    """Bytes that nobody wrote are refused, framed or not."""
    rng = random.Random(style)
    for _ in range(int(2000 * TIMES)):
        payload = rng.randbytes(rng.randrange(40))
        if rng.random() < 0.5:
            payload = b"".join(rng.choices(SPLINTERS, k=rng.randrange(1, 9)))
        batch = rng.randrange(2)
        one, other = fast(style, batch, None), slow(style, batch, None)
        assert outcome(one, payload, 1) == outcome(other, payload, 1)


def test_memory_does_not_grow() -> None:
    """Translators come and go, rows grow and shrink, errors happen: memory stays."""

    def work(rounds: int) -> None:
        for seed in range(rounds):
            style, batch, payloads, catalog = streams(seed % 64)
            feed = fast(style, batch, catalog)
            for payload, lsn in payloads:
                outcome(feed, payload, lsn)
                outcome(feed, payload[:-1], lsn)

    work(min(int(1500 * TIMES), 200))
    before = resident_bytes()
    work(int(1500 * TIMES))
    assert resident_bytes() - before < RESIDENT_SLACK


def test_memory_of_one_translator_does_not_grow() -> None:
    """Versions replace each other, and a huge row is not held on to."""
    translator = Translator(b"b", False, "GBK", 1 << 16)
    relations = GaussRelations(WhiteList())
    translator.feed_bytes(b"\0\0\0\x19" + bytes(8) + b"B" + bytes(16) + b"F")
    columns = [gw.Column(b"c%d" % number, 25, "text") for number in range(200)]
    style = gw.BinaryStyle(gw.Wanted(), V6_0_0)

    def work(rounds: int) -> None:
        for number in range(rounds):
            width = number % len(columns) + 1
            value = b"\xd6\xd0" * (1 << 19 if number % 50 == 0 else 4)
            fields = [(column, value) for column in columns[:width]][-3:]
            row = gw.Row("I", 1, b"s", b"t%d" % (number % 300), fields, None)
            translator.feed_bytes(style.row(row) + b"F", 0, relations.define)

    work(min(int(2000 * TIMES), 400))
    before = resident_bytes()
    work(int(2000 * TIMES))
    assert resident_bytes() - before < RESIDENT_SLACK


def test_objects_do_not_pile_up() -> None:
    """A thousand questions and errors leave nothing behind."""

    def work() -> None:
        for seed in range(min(int(200 * TIMES), 200)):
            style, batch, payloads, catalog = streams(seed % 16)
            feed = fast(style, batch, catalog)
            for payload, lsn in payloads:
                outcome(feed, payload[:-2], lsn)

    work()
    gc.collect()
    before = len(gc.get_objects())
    work()
    gc.collect()
    assert len(gc.get_objects()) - before < 500


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_errors_hold_no_values() -> None:
    """No text of a row is in any message of any error."""
    secret = b"s3cr3t-Value"
    fields = [(gw.Column(b"a", 25, "text"), secret), (gw.Column(b"b", 25, "text"), secret)]
    row = gw.Row("U", 1, b"s", b"t", fields, fields[:1])
    rng = random.Random(5)
    for style, payload in (
        ("b", gw.BinaryStyle(gw.Wanted(), V6_0_0).row(row) + b"F"),
        ("t", gw.TextStyle(gw.Wanted(), V6_0_0).row(row)),
        ("j", gw.json_row(row)),
    ):
        for _ in range(int(2000 * TIMES)):
            translator = Translator(style.encode(), False, "UTF8")
            if style == "b":
                translator.feed_bytes(b"\0\0\0\x19" + bytes(8) + b"B" + bytes(16) + b"F")
            else:
                translator.feed_bytes(b"BEGIN CSN: 1 first_lsn: 0/1")
            try:
                translator.feed_bytes(damaged(rng, payload), 1, defined_or_refused)
            except (LostRowError, SourceRefusedError):
                continue  # these name the table, which the damage may have made anything
            except GaussDecodeError as error:
                assert "s3cr3t" not in str(error)


def defined_or_refused(shape: Shape) -> Definition:
    """Define with a registry that knows nothing."""
    return GaussRelations(WhiteList()).define(shape)
