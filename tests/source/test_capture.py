"""Recording a stream, and reading the recording."""

import dataclasses
import struct
from pathlib import Path
from typing import Any

import pytest
from kit import wire
from kit.postgres import Database

from gaussdecode.errors import ConfigError, IdentityError, WireError
from gaussdecode.ipc.control import Word
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, MonitoringConfig, RingConfig
from gaussdecode.settings.source_sections import DecodingConfig, SourceConfig
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.capture import MAGIC, Capture, CaptureHeader, CaptureWriter, Limits
from gaussdecode.source.postgresql.capture import reached, record
from gaussdecode.source.settings import ReaderSettings

HEADER = CaptureHeader(
    identity=SourceIdentity("postgresql", "77", "shop", "orders", "pgoutput"),
    server_version=150018,
    timeline=1,
    encoding="UTF8",
    start_lsn=Lsn(0x100),
    options={"proto_version": "1"},
    created_time=1.5,
)
FRAMES = [
    wire.xlog_data(0x110, wire.begin()),
    wire.xlog_data(0x2030, wire.commit()),
    wire.keepalive(0x3000),
]


def write(path: Path, frames: list[bytes]) -> Path:
    """A finished capture."""
    writer = CaptureWriter(path, HEADER)
    for frame in frames:
        writer.add(frame)
    writer.finish()
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Header, counts and frames."""
    capture = Capture(write(tmp_path / "c", FRAMES))
    assert capture.header == HEADER
    assert list(capture) == FRAMES
    assert capture.frame_count == 3
    capture.close()


def test_every_cut_is_refused(tmp_path: Path) -> None:
    """A file that was not copied whole is never landed in part."""
    whole = write(tmp_path / "whole", FRAMES).read_bytes()
    for size in range(len(whole)):
        path = tmp_path / "cut"
        path.write_bytes(whole[:size])
        with pytest.raises((WireError, ConfigError)):
            Capture(path)


def test_unfinished_recording_is_refused(tmp_path: Path) -> None:
    """The message says what to do."""

    def record_and_fail() -> None:
        with CaptureWriter(tmp_path / "c", HEADER) as writer:
            writer.add(FRAMES[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_and_fail()
    with pytest.raises(WireError, match="record or copy it again"):
        Capture(tmp_path / "c")


def test_values_in_binary_are_refused(tmp_path: Path) -> None:
    """Recorded when an option asked for them: nothing is damaged, and nothing lands."""
    text = HEADER.to_bytes()[len(MAGIC) + 4 :]
    text = text[:-1] + b', "formats": {}}'
    path = tmp_path / "c"
    path.write_bytes(MAGIC + struct.pack("<I", len(text)) + text)
    with pytest.raises(ConfigError, match="in binary, which is not read any more; record it again"):
        Capture(path)


def test_damaged_size_is_refused(tmp_path: Path) -> None:
    """A frame that reaches past the end stops the reading there."""
    path = write(tmp_path / "c", FRAMES)
    data = bytearray(path.read_bytes())
    at = data.index(FRAMES[2]) - 4
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    capture = Capture(path)
    with pytest.raises(WireError, match="past the end"):
        list(capture)
    capture.close()


@pytest.mark.parametrize("content", [b"", b"PAR1" * 20])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    """By name."""
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(ConfigError, match="capture"):
        Capture(tmp_path / "c")


def test_existing_file_is_kept(tmp_path: Path) -> None:
    """A recording never overwrites another."""
    write(tmp_path / "c", FRAMES)
    with pytest.raises(ConfigError, match="exists"):
        CaptureWriter(tmp_path / "c", HEADER)


def test_reached_looks_at_commits_and_keepalives() -> None:
    """Other messages say nothing about what is complete."""
    assert [reached(frame) for frame in FRAMES] == [0, 0x2030, 0x3000]


def test_reader_replays_a_capture(tmp_path: Path, make_reader: Any) -> None:
    """Messages, then the end entries, then exit 0 when main is done."""
    main = make_reader(_settings(write(tmp_path / "c", FRAMES)))
    facts = main.facts()
    assert facts["identity"] == {
        **dataclasses.asdict(HEADER.identity),
        "kind": "capture",
        "slot": "replayed",
    }
    assert (facts["start_lsn"], facts["timeline"]) == (0x100, 1)
    main.go()
    main.wait(lambda: main.ends == main.decoder_count, "the end")
    assert main.messages() == [wire.begin(), wire.commit()]
    assert [b.keepalive_lsn for b in main.batches if b.keepalive_lsn] == [0x3000]
    assert main.finish() == 0


def test_reader_refuses_a_capture_with_a_damaged_frame(tmp_path: Path, make_reader: Any) -> None:
    """What stands before the damage is delivered; the status says that bytes were wrong."""
    path = write(tmp_path / "c", FRAMES)
    data = bytearray(path.read_bytes())
    at = data.index(FRAMES[2]) - 4
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    main = make_reader(_settings(path))
    main.go()
    assert isinstance(main.error(), WireError)
    assert main.finish() == WireError.exit_status
    assert main.messages() == [wire.begin(), wire.commit()]


def test_reader_says_where_the_stream_breaks_the_protocol(tmp_path: Path, make_reader: Any) -> None:
    """Position of the message and the open transaction, whatever found the error."""
    begin = [wire.xlog_data(lsn, wire.begin(xid=735)) for lsn in (0x3000, 0x3001)]
    main = make_reader(_settings(write(tmp_path / "c", begin)))
    main.go()
    assert str(main.error()).endswith("near 0/3001, in transaction 735")
    assert main.finish() == WireError.exit_status


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"system_identifier": "78"}, "'78'"),
        ({"database": "bank"}, "'bank'"),
        ({"lsn": 0xFF}, "0/FF"),
    ],
)
def test_capture_of_another_landing_is_refused(
    tmp_path: Path, make_reader: Any, changes: dict[str, Any], word: str
) -> None:
    """Another source, or a hole between log and capture."""
    log = {
        "system_identifier": "77",
        "timeline": 1,
        "database": "shop",
        "slot": "replayed",
        "plugin": "pgoutput",
        "lsn": 0x100,
        **changes,
    }
    main = make_reader({**_settings(write(tmp_path / "c", FRAMES)), "log": log})
    error = main.error()
    assert isinstance(error, IdentityError)
    assert word in str(error)


def _settings(path: Path) -> dict[str, Any]:
    return ReaderSettings(
        kind=SourceKind.CAPTURE,
        address=SourceAddress(""),
        file=str(path),
        slot="replayed",
        publications=(),
        messages=True,
        receiver_timeout=60.0,
        desc_directory="/nowhere",
        config_name="replayed.yaml",
        ha_port=None,
        plugin="",
        decoding=DecodingConfig.of(SourceKind.CAPTURE),
        max_message_bytes=1 << 30,
        max_row_bytes=1 << 30,
        defers_large_rows=False,
        log=None,
    ).to_record()


def config_of(database: Database) -> Config:
    """What a file would say of it."""
    publications = (database.publication,)
    source = SourceConfig(kind=SourceKind.POSTGRESQL, dsn=database.dsn, publication=publications)
    return Config(
        path=Path("c.yaml"),
        slot=database.slot,
        source=source,
        decoding=DecodingConfig.of(SourceKind.POSTGRESQL),
        landing=LandingConfig(root=Path("/nowhere")),
        ring=RingConfig(),
        monitoring=MonitoringConfig(),
    )


@pytest.mark.integration
def test_recording_confirms_nothing_and_replays_the_same(
    database: Database, address: SourceAddress, tmp_path: Path, make_main: Any, make_reader: Any
) -> None:
    """The slot stays where it was; replay and live stream bring the same messages."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 5000) i")
    database.execute("UPDATE t SET v = 'y' WHERE id < 10")
    before = database.slot_positions()
    limits = Limits(lsn=database.wal_end())

    writer = record(config_of(database), address, tmp_path / "c", limits, lambda: False)

    assert writer.frame_count > 5000
    assert database.slot_positions() == before
    replayed = make_reader(_settings(tmp_path / "c"))
    replayed.go()
    replayed.wait(lambda: replayed.ends == replayed.decoder_count, "the end")
    live = make_main(database)
    live.go()
    live.wait_for_commits(2)
    assert live.stop() == 0
    assert replayed.messages() == live.messages()
    assert replayed.control.get(Word.RECEIVED_MESSAGES) > 5000
    assert replayed.finish() == 0


@pytest.mark.integration
@pytest.mark.parametrize("limits", [Limits(seconds=0.0), Limits(frame_bytes=1000)])
def test_limits_end_a_recording(
    database: Database, address: SourceAddress, tmp_path: Path, limits: Limits
) -> None:
    """By time or by size, the file is finished in order."""
    database.execute("CREATE TABLE t (id int); INSERT INTO t SELECT generate_series(1, 1000)")
    record(config_of(database), address, tmp_path / "c", limits, lambda: False)
    capture = Capture(tmp_path / "c")
    assert capture.frame_count == len(list(capture))
    if limits.frame_bytes is not None:
        assert 1000 <= len(capture.frames) < 2000
    capture.close()
