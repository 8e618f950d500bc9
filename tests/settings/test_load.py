"""Tests for `gaussdecode.settings.load`, the sections that it reads, and `gaussdecode.settings.yamlfile`."""

import dataclasses
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.errors import EX_CONFIG, ConfigError
from gaussdecode.settings.landing_sections import FIRST_LANES, MOST_LANES
from gaussdecode.settings.load import SECTIONS, load
from gaussdecode.settings.option import AUTO
from gaussdecode.settings.rules import BY_NAME, SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import MOST_CHOSEN, DecodingConfig
from gaussdecode.settings.types import GIB, MIB, Address
from gaussdecode.settings.yamlfile import MAX_BYTES

ROOT = Path(__file__).parents[2]
SOURCE = "source: {kind: postgresql, dsn: host=db dbname=d user=u, publication: [p]}"
LANDING = "landing: {root: /l}"
GOOD = f"slot: orders\n{SOURCE}\n{LANDING}\n"


def write(directory: Path, text: str) -> Path:
    """Make a configuration that others may read."""
    path = directory / "orders.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def problems(directory: Path, text: str) -> list[str]:
    """Load what is wrong and give the lines of the complaint."""
    with pytest.raises(ConfigError) as refused:
        load(write(directory, text), memory_bytes=8 * GIB)
    assert refused.value.exit_status == EX_CONFIG
    return str(refused.value).splitlines()


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_examples_are_right(path: Path) -> None:
    """Every example that is shipped can be used as it is."""
    config = load(path, memory_bytes=8 * GIB)
    assert config.name == path.stem
    assert sum(config.memory_budget().values()) < 2 * GIB


def test_defaults(tmp_path: Path) -> None:
    """A file with what is required only gets the documented defaults."""
    config = load(write(tmp_path, GOOD))
    assert config.decoding == DecodingConfig.of(SourceKind.POSTGRESQL)
    assert config.landing.target_file_size == 128 * MIB
    assert config.landing.max_commit_interval == 30.0
    assert config.landing.retention is None
    assert config.ring.raw_ring_bytes == 4 * MIB
    assert config.ring.decoded_ring_bytes == 16 * MIB
    assert config.monitoring.listen == Address("127.0.0.1", 19187)


def test_decoding_defaults_are_those_of_the_options_table(tmp_path: Path) -> None:
    """The section and the table cannot disagree."""
    config = load(write(tmp_path, GOOD))
    for field in dataclasses.fields(DecodingConfig):
        if field.name not in {"given", "parallel_decode_num", "chooses_decoders"}:
            option = BY_NAME[field.name.replace("_", "-")]
            expected = option.effective_default(config.source.kind, is_parallel=True)
            assert getattr(config.decoding, field.name) == expected


@pytest.mark.parametrize(
    ("kind", "said", "chooses", "count", "most"),
    [
        (SourceKind.POSTGRESQL, {}, True, 1, MOST_CHOSEN),
        (SourceKind.POSTGRESQL, {"parallel-decode-num": AUTO}, True, 1, MOST_CHOSEN),
        (SourceKind.POSTGRESQL, {"parallel-decode-num": 1}, False, 1, 1),
        (SourceKind.POSTGRESQL, {"parallel-decode-num": 3}, False, 3, 3),
        (SourceKind.GAUSSDB, {}, False, 1, 1),
        (SourceKind.GAUSSDB, {"parallel-decode-num": 4}, False, 4, 4),
        (SourceKind.CAPTURE, {}, False, 1, 1),
    ],
)
def test_the_number_of_decoders_is_chosen_for_postgresql(
    kind: SourceKind, said: dict[str, object], chooses: bool, count: int, most: int
) -> None:
    """Only there it is left to the daemon where nothing is said; it begins with one."""
    decoding = DecodingConfig.of(kind, said)
    found = decoding.chooses_decoders, decoding.parallel_decode_num, decoding.most_decoders
    assert found == (chooses, count, most)


def test_a_chosen_number_takes_options_of_both_ways(tmp_path: Path) -> None:
    """What applies to several decoders may be said, for there may come to be several."""
    path = write(tmp_path, f"{GOOD}decoding: {{parallel-queue-size: 64}}\n")
    assert load(path).decoding.parallel_queue_size == 64


def test_the_budget_counts_the_decoders_there_may_be(tmp_path: Path) -> None:
    """Memory is bounded whatever is chosen."""
    config = load(write(tmp_path, GOOD))
    assert config.memory_budget()["read change queues"] == MOST_CHOSEN * config.ring.raw_ring_bytes


def test_the_budget_counts_the_lanes_there_may_be(tmp_path: Path) -> None:
    """Also where it is not said how many; a number is what it says."""
    auto = load(write(tmp_path, GOOD))
    assert (auto.landing.lanes, auto.landing.most_lanes) == (FIRST_LANES, MOST_LANES)
    groups = auto.memory_budget()["row groups being encoded"]
    assert groups == (MOST_LANES + 1) * auto.landing.row_group_bytes
    landing = dataclasses.replace(auto.landing, writer_lanes=3)
    assert (landing.lanes, landing.most_lanes) == (3, 3)
    assert landing.queue_bytes == 4 * landing.row_group_bytes


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    """One line each, in the order of the file, with file, line, key, value and range."""
    text = """\
slot: Orders
source:
  kind: postgresql
  dsn: host=db dbname=d user=u
  publication: [p]
decoding:
  parallel-decode-num: 4
  parallel-queue-size: 100
  include-user: true
landing:
  target-file-size: 5
"""
    expected = """\
orders.yaml: landing.root: missing; allowed: an absolute path
orders.yaml:1: slot: Orders has the wrong form; allowed: 1 to 63 of a-z, 0-9 and _
orders.yaml:8: decoding.parallel-queue-size: 100 is not a power of two; \
allowed: 2 to 1024, a power of two
orders.yaml:9: decoding.include-user: true is not possible on postgresql: \
pgoutput does not send the user of a transaction
orders.yaml:11: landing.target-file-size: 5 is not a size with a unit, like "128MiB"; \
allowed: 1MiB to 16GiB
"""
    assert problems(tmp_path, text) == expected.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "orders.yaml: the file is empty"),
        ("- a\n", "orders.yaml: the file must hold keys and values"),
        ("a:\n\tb: 1\n", "orders.yaml:2: begins with a tab; YAML takes spaces only"),
        ("a:\n  b: 1\n \tc: 2\n", "orders.yaml:3: begins with a tab; YAML takes spaces only"),
        ("a: [\n", "orders.yaml:2: not YAML: expected the node content, but found <stream end>"),
        ("a: 1\na: 2\n", "orders.yaml:2: a: given twice, first on line 1"),
        ("a: &x 1\n", "orders.yaml:1: anchors and aliases"),
        ("a: *x\n", "orders.yaml:1: anchors and aliases"),
        ("a: !!python/object:os.system {}\n", "orders.yaml:1: tags (!) are not read"),
        ("a: 1\n---\nb: 2\n", "orders.yaml: the file holds more than one document"),
        ("a: " + "[" * 50 + "]" * 50, "orders.yaml:1: nested deeper than 8"),
        ("1: 2\n", "orders.yaml:1: top level: a key must be a text"),
        ("#" * (MAX_BYTES + 1), "orders.yaml: the file is larger than 1000000 bytes"),
        ("a: \0\n", "orders.yaml:1: holds the control character U+0000; remove it"),
    ],
    ids=[
        "empty",
        "list",
        "tab",
        "tab after spaces",
        "syntax",
        "duplicate",
        "anchor",
        "alias",
        "tag",
        "documents",
        "deep",
        "key",
        "large",
        "nul",
    ],
)
def test_refuses_what_is_not_plain_yaml(tmp_path: Path, text: str, expected: str) -> None:
    """Only plain keys and values are read, and few of them."""
    assert problems(tmp_path, text)[0].startswith(expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("slot: orders\n", ""), "orders.yaml: slot: missing"),
        (("slot: orders", "slot: 123"), "orders.yaml:1: slot: 123 is not a text; put it in"),
        ((LANDING, "landing: /l"), "orders.yaml:3: landing: must hold keys and values"),
        (("root: /l", "root: l"), "orders.yaml:3: landing.root: l is not an absolute path"),
        (("root: /l", "rooot: /l"), "landing.rooot: unknown key; did you mean root?"),
        (("root: /l", "root: {a: 1}"), "landing.root: {...} is not an absolute path"),
        (("kind: postgresql", "kind: gaussdb"), "source.publication: has no use with kind gaussdb"),
        (("[p]", "[p], ha-port: 5433"), "source.ha-port: has no use with kind postgresql"),
        (("kind: postgresql", "kind: oracle"), "source.kind: oracle is unknown"),
        (("kind: postgresql", "kind: capture"), "source.dsn: has no use with kind capture"),
        (("kind: postgresql", "kind: capture"), "source.file: missing; kind capture needs it"),
        ((", publication: [p]", ""), "source.publication: missing; kind postgresql needs it"),
        (("user=u", ""), "source.dsn: names no user; write user=..."),
        (("dbname=d", ""), "source.dsn: names no dbname; write dbname=..."),
        (("host=db ", ""), "source.dsn: names no host"),
        (("user=u", "user=u sslmode=require"), "source.dsn: asks for less than sslmode=verify"),
        (("user=u", "user=u replication=true"), "source.dsn: must not set replication"),
        (("user=u", "user=u nonsense"), "source.dsn: is not a connection string"),
        (("user=u", "user=u password=hunter2"), "source.dsn: holds a password in a file that"),
        (
            ("[p]", "[p], password: hunter2"),
            "passwords are not allowed here; use source.password-fi",
        ),
        (("[p]", "[p, p]"), "source.publication: p, p names one thing twice"),
        (("[p]", "[p], retry-first: 2min"), "source.retry-first: above source.retry-max"),
        ((LANDING, f"{LANDING}\nmonitoring: {{listen: 0.0.0.0:1}}"), "other machines, without TLS"),
        (
            (
                LANDING,
                f"{LANDING}\nmonitoring: {{listen: 0.0.0.0:1, tls-certificate-file: /c, tls-key-file: /k}}",
            ),
            "other machines, without a login",
        ),
        (
            (LANDING, f"{LANDING}\nmonitoring: {{tls-certificate-file: /c}}"),
            "tls-certificate-file: has no use without tls-key-file",
        ),
        (
            (LANDING, f"{LANDING}\nmonitoring: {{tls-key-file: /k}}"),
            "tls-key-file: has no use without tls-certificate-file",
        ),
        (
            (LANDING, f"{LANDING}\nmonitoring: {{tls-client-ca-file: /k}}"),
            "tls-client-ca-file: has no use without tls-certificate-file",
        ),
        (
            (LANDING, f"{LANDING}\ndecoding: {{parallel-decode-num: 1, decode-style: j}}"),
            "applies only with parallel",
        ),
        ((LANDING, f"{LANDING}\ndecoding: {{decode-stile: j}}"), "did you mean decode-style?"),
        ((LANDING, f"{LANDING}\ndecoding: {{parallel-decode-num: 21}}"), "allowed: 1 to 20"),
        ((LANDING, f"{LANDING}\ndecoding: {{white-table-list: t1}}"), "has the wrong form"),
        ((LANDING, f"{LANDING}\ndecoding: {{white-table-list: a.b, c.d}}"), "unknown key"),
        ((LANDING, f"{LANDING}\ndecoding: {{max-txn-in-memory: 101}}"), "allowed: 0 to 100"),
        (("root: /l", "root: /l, memory-bytes: 32MiB"), "row-group-bytes: above landing.memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_mistake_is_named(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    """One mistake in a good file gives a line that says what and where."""
    assert change[0] in GOOD
    lines = problems(tmp_path, GOOD.replace(*change))
    assert any(expected in line for line in lines), lines
    assert not any("hunter2" in line for line in lines)


def test_syntax_errors_do_not_repeat_the_line(tmp_path: Path) -> None:
    """YAML's own message would show the text around the mistake, a password perhaps."""
    lines = problems(tmp_path, 'a: "hunter2\nb: {hunter2: [hunter2\n')
    assert not any("hunter2" in line for line in lines)


@given(
    st.text(max_size=200) | st.sampled_from(GOOD.split()).map(lambda word: GOOD.replace(word, ""))
)
def test_any_text_is_a_configuration_or_a_complaint(text: str) -> None:
    """Whatever stands in the file, nothing else than ConfigError comes out."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "any.yaml")
        path.write_bytes(text.encode(errors="surrogatepass"))
        try:
            load(path, memory_bytes=8 * GIB)
        except ConfigError as error:
            assert str(error).startswith("any.yaml:")


def test_a_password_in_a_private_file_is_accepted_and_hidden(tmp_path: Path) -> None:
    """Mode 0600 is enough for the file, and the configuration does not show it."""
    path = write(tmp_path, GOOD.replace("user=u", "user=u password=hunter2"))
    path.chmod(0o600)
    config = load(path)
    assert "hunter2" in config.source.dsn
    assert "hunter2" not in repr(config)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    """The message names the file and the system's reason."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")


def test_capture_needs_a_file_only(tmp_path: Path) -> None:
    """A recording needs no server."""
    text = f"slot: s\nsource: {{kind: capture, file: /c}}\n{LANDING}\n"
    assert load(write(tmp_path, text)).source.file == Path("/c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("a.b", (("a", "b"),)),
        ("public.*,*.t3", (("public", "*"), ("*", "t3"))),
        ("a.b.c", (("a", "b.c"),)),
    ],
)
def test_white_tables(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    """Items are split at their first dot, as the server does."""
    assert (
        DecodingConfig.of(SourceKind.POSTGRESQL, {"white-table-list": text}).white_tables
        == expected
    )


def _config(tmp_path: Path, decoding: str, landing: str = "") -> Config:
    text = GOOD.replace("{root: /l}", f"{{root: /l{landing}}}")
    return load(write(tmp_path, f"{text}decoding: {{{decoding}}}\n"), memory_bytes=64 * GIB)


def test_memory_limits_are_never_off(tmp_path: Path) -> None:
    """0 means no limit of its own; landing.memory-bytes always holds."""
    config = _config(tmp_path, "max-txn-in-memory: 0, max-reorderbuffer-in-memory: 0")
    assert config.txn_memory_bytes == config.reorderbuffer_bytes == config.landing.memory_bytes
    config = _config(
        tmp_path,
        "parallel-decode-num: 2, max-txn-in-memory: 100, max-reorderbuffer-in-memory: 2",
        ", memory-bytes: 4GiB",
    )
    assert config.txn_memory_bytes == 100 * MIB
    assert config.reorderbuffer_bytes == 2 * GIB


def test_what_the_daemon_bounds_itself(tmp_path: Path) -> None:
    """Descriptions in MB; buffers by the product of both options, 16 MiB by default."""
    config = _config(tmp_path, "").decoding
    assert (config.desc_memory_bytes, config.kept_buffer_bytes) == (100 * MIB, 16 * MIB)
    options = "desc-memory-limit: 10, change-log-max-len: 1024, max-decode-to-sender-cache-num: 7"
    config = _config(tmp_path, options).decoding
    assert (config.desc_memory_bytes, config.kept_buffer_bytes) == (10 * MIB, 7 * 1024)
    assert _config(tmp_path, "").decoding.data_limit_bytes == 10 * GIB
    assert _config(tmp_path, "data-limit: 0").decoding.data_limit_bytes is None


def gauss(directory: Path, source: str = "", slot: str = "orders", decoding: str = "") -> Config:
    """Load a configuration of kind gaussdb."""
    text = (
        f"slot: {slot}\nsource: {{kind: gaussdb, dsn: 'host=db dbname=d user=u'{source}}}\n"
        f"{LANDING}\ndecoding: {{{decoding}}}\n"
    )
    return load(write(directory, text), memory_bytes=8 * GIB)


def test_a_standby_takes_no_view(tmp_path: Path) -> None:
    """It gives no transaction id, with which a view of GaussDB begins."""
    options = "parallel-decode-num: 2, skip-empty-xacts: false"
    assert gauss(tmp_path, decoding=options).snapshot_refusal is None
    refused = gauss(tmp_path, decoding=f"{options}, standby-connection: true").snapshot_refusal
    assert refused is not None
    assert "snapshot.mode: none" in refused


def test_gaussdb_has_keys_of_its_own(tmp_path: Path) -> None:
    """The HA port, the plug-in, and names of slots that only it takes."""
    config = gauss(tmp_path)
    assert (config.source.ha_port, config.source.plugin) == (None, "mppdb_decoding")
    assert config.decoding.sending_batch == 1
    assert config.decoding.include_timestamp
    config = gauss(tmp_path, ", ha-port: 8001, plugin: sql_decoding", "or-ders?.1")
    assert (config.source.ha_port, config.source.plugin) == (8001, "sql_decoding")
    assert config.slot == "or-ders?.1"
    assert "wal_sender_timeout" not in gauss(tmp_path, decoding="sender-timeout: 5000").conninfo()


@pytest.mark.parametrize(
    ("source", "slot", "decoding", "expected"),
    [
        (", ha-port: 0", "s", "", "source.ha-port: 0 is out of range; allowed: 1 to 65535"),
        (", plugin: pgoutput", "s", "", "source.plugin: pgoutput is unknown; allowed: mppdb_dec"),
        (", publication: [p]", "s", "", "source.publication: has no use with kind gaussdb"),
        (", file: /f", "s", "", "source.file: has no use with kind gaussdb"),
        ("", "gs_roach_1", "", "slot: gs_roach_1 has the wrong form; allowed: 1 to 63 of a-z"),
        ("", "..", "", "slot: .. has the wrong form"),
        ("", "or ders", "", "slot: or ders has the wrong form"),
        ("", "s", "decode-sequence: true", "decoding.decode-sequence: true is not possible"),
        ("", "s", "parallel-decode-num: auto", "auto is not possible on gaussdb: the server takes"),
        ("", "s", "decode-style: j", "decoding.decode-style: applies only with parallel-decode"),
        ("", "s", "start-position: abc", "decoding.start-position: abc has the wrong form"),
        ("", "s", "exclude-users: 'a,,b'", "decoding.exclude-users: a,,b has the wrong form"),
    ],
)
def test_mistakes_of_gaussdb_are_named(
    tmp_path: Path, source: str, slot: str, decoding: str, expected: str
) -> None:
    """With the key, the value and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        gauss(tmp_path, source, slot, decoding)
    assert expected in str(refused.value)


def test_what_our_client_cannot_do_is_refused(tmp_path: Path) -> None:
    """Keys of libpq that would be ignored are not taken."""
    source = "source: {kind: gaussdb, dsn: host=d dbname=d user=u passfile=x}"
    (line,) = problems(tmp_path, GOOD.replace(SOURCE, source))
    assert "source.dsn: sets passfile, which has no use with kind gaussdb" in line


def test_serial_decoding_has_no_read_queue(tmp_path: Path) -> None:
    """The reader decodes by itself, so nothing is budgeted for it."""
    assert _config(tmp_path, "parallel-decode-num: 1").memory_budget()["read change queues"] == 0


def test_snapshots_are_budgeted(tmp_path: Path) -> None:
    """Each worker more may hold two row groups more; a recording has no table to read."""
    text = GOOD + "snapshot: {workers: "
    few, many = (load(write(tmp_path, f"{text}{count}}}\n")) for count in (4, 8))
    more = sum(many.memory_budget().values()) - sum(few.memory_budget().values())
    assert more == 4 * 2 * few.landing.row_group_bytes


def test_every_setting_has_a_type_and_a_meaning() -> None:
    """A field without them could neither be read nor documented."""
    for cls in SECTIONS.values():
        for field in dataclasses.fields(cls):
            assert field.metadata["setting"].meaning.endswith(".")


def test_modes_of_single_tables(tmp_path: Path) -> None:
    """Patterns of tables are read with their words, and refused with what is allowed."""
    path = tmp_path / "orders.yaml"
    head = f"slot: orders\n{SOURCE}\n{LANDING}\n"
    path.write_text(f"{head}snapshot: {{tables: {{a.b: none, 'c.*': initial}}}}\n")
    config = load(path)
    assert config.snapshot.tables == (("a.b", "none"), ("c.*", "initial"))
    assert config.snapshot.mode == "initial"
    for tables, expected in (
        ("{a: none}", "a has the wrong form; allowed: schema.name, schema.*, *.name, *.*"),
        ("{a.b: never}", "never is unknown; allowed: initial, none"),
        ("{}", "{} is not a mapping with at least one key"),
        ("[a.b]", "['a.b'] is not a mapping with at least one key"),
        ("{a.b: {c: d}}", "{'c'"),
    ):
        assert expected in problems(tmp_path, f"{head}snapshot: {{tables: {tables}}}\n")[0]


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        ("{parallel-decode-num: 1}", None),
        (
            "{parallel-decode-num: 2, skip-empty-xacts: true}",
            "skip-empty-xacts: false, or snapshot.nudge",
        ),
        ("{parallel-decode-num: 2}", None),
    ],
)
def test_suspects_are_read_again_only_where_tables_can_be(
    tmp_path: Path, decoding: str, expected: str | None
) -> None:
    """on-suspect: snapshot is refused where no snapshot is possible, with what makes it so."""
    text = (
        "slot: s\nsource: {kind: gaussdb, dsn: host=db dbname=d user=u}\n"
        f"decoding: {decoding}\nlanding: {{root: /l, on-suspect: snapshot}}\n"
    )
    if expected is None:
        assert load(write(tmp_path, text), memory_bytes=8 * GIB).landing.on_suspect == "snapshot"
        return
    with pytest.raises(ConfigError) as refused:
        load(write(tmp_path, text), memory_bytes=8 * GIB)
    assert "landing.on-suspect: snapshot: " in str(refused.value)
    assert expected in str(refused.value)


def test_a_mirror_is_read_with_its_defaults(tmp_path: Path) -> None:
    """It is off where it is not set; what it holds in memory counts."""
    plain = load(write(tmp_path, GOOD))
    assert not plain.mirror.is_on
    text = GOOD.replace("{root: /l}", "{root: /l, mirror: {url: s3://lake/orders, timeout: 5s}}")
    config = load(write(tmp_path, text))
    assert config.mirror.url == "s3://lake/orders"
    assert (config.mirror.confirm, config.mirror.local_retention) == ("mirror", None)
    assert config.mirror.timeout == 5.0
    more = sum(config.memory_budget().values()) - sum(plain.memory_budget().values())
    assert more == 160 * MIB


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        ("{confirm: local}", "landing.mirror.url: missing"),
        ("s3://lake/orders", "landing.mirror: must hold keys and values"),
        (
            "{url: 's3://key:s3cret@lake/x'}",
            "landing.mirror.url: has the wrong form; allowed: s3://",
        ),
        ("{url: 'ftp://lake'}", "landing.mirror.url: has the wrong form; allowed: s3://"),
        (
            "{url: s3://lake, endpoint: 'https://me:s3cret@minio'}",
            "landing.mirror.endpoint: has the wrong form; allowed: a URL without user and password",
        ),
        (
            "{url: s3://lake, endpoint: 'http://minio:9000'}",
            "landing.mirror.endpoint: it has no TLS; allowed: https://..., or any with allow-http",
        ),
        ("{url: gs://lake, region: eu-1}", "landing.mirror.region: has a use with s3:// only"),
        (
            "{url: s3://lake, secret: s3cret}",
            "landing.mirror.secret: unknown key; passwords are not",
        ),
        ("{url: s3://lake, confirms: local}", "landing.mirror.confirms: unknown key; did you mean"),
    ],
)
def test_mirrors_that_are_refused(tmp_path: Path, mirror: str, expected: str) -> None:
    """By key, with what is allowed, and without what may be a password."""
    text = GOOD.replace("{root: /l}", f"{{root: /l, mirror: {mirror}}}")
    found = problems(tmp_path, text)
    assert any(expected in line for line in found), found
    assert "s3cret" not in "".join(found)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("{root: /l}", "{root: /}"), "landing.root: / is a directory of the system"),
        (("{root: /l}", "{root: /var/../etc/}"), "landing.root: /etc is a directory of the system"),
        (("{root: /l}", "{root: //proc/x}"), "landing.root: /proc/x is a directory of the system"),
        (
            ("{root: /l}", "{root: /l, writer-lanes: 010}"),
            "landing.writer-lanes: a number that begins with 0 is octal in YAML",
        ),
        (("slot: ", "slot: #"), "slot: has no value; allowed: 1 to 63 of"),
        (
            ("{root: /l}", "{root: /l}\ndecoding: {batch-sending: 1}"),
            "decoding.batch-sending: unknown key; did you mean sending-batch?",
        ),
        (("slot: ", "slot: \x1b"), "1: holds the control character U+001B; remove it"),
    ],
)
def test_values_that_run_could_not_use(
    tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    """They are refused when the file is read, not when the daemon runs."""
    found = problems(tmp_path, GOOD.replace(*change))
    assert any(expected in line for line in found), found


def test_a_bare_on_is_the_word(tmp_path: Path) -> None:
    """YAML 1.1 reads it as true; the pages write it without quotes."""
    for written, read in (("on", "on"), ("off", "off"), ("parallel", "parallel")):
        text = GOOD.replace("publication:", f"streaming: {written}, publication:")
        assert load(write(tmp_path, text)).source.streaming == read


# ---- variables of the environment ----------------------------------------------------------

DSN = "host=db dbname=d user=u"


def test_variables_stand_for_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole values and parts of them, in lists too; $${ is a ${ of the file's own."""
    for name, value in (("HOST", "db7"), ("LANES", "3"), ("NUMBER", "42"), ("ON", "false")):
        monkeypatch.setenv(name, value)
    text = (
        "slot: a${NUMBER}\nsource: {kind: postgresql, dsn: 'host=${HOST} dbname=d$${x} user=u', "
        "publication: ['${NUMBER}', p], messages: '${ON}'}\n"
        "landing: {root: '/l/${HOST}', writer-lanes: '${LANES}'}\n"
    )
    config = load(write(tmp_path, text))
    assert config.slot == "a42"
    assert config.source.dsn == "host=db7 dbname=d${x} user=u"
    assert config.source.publication == ("42", "p")
    assert not config.source.messages
    assert config.landing.root == Path("/l/db7")
    assert config.landing.writer_lanes == 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            (DSN, f"'{DSN} port=${{NOT_SET_HERE}}'"),
            "source.dsn: variable NOT_SET_HERE of the environment",
        ),
        ((DSN, f"'{DSN} port=${{}}'"), "source.dsn: ${ begins a variable"),
        ((DSN, f"'{DSN} port=${{A-B}}'"), "source.dsn: ${ begins a variable"),
        (("slot:", "'${HOME}':"), "${HOME}: a key cannot hold a variable"),
        (("{root: /l}", "{'${HOME}': /l}"), "landing.${HOME}: a key cannot hold a variable"),
    ],
)
def test_variables_that_are_refused(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    """By key and name."""
    text = GOOD.replace(*change)
    assert text != GOOD
    found = problems(tmp_path, text)
    assert any(expected in line for line in found), found


def test_a_secret_of_the_environment_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be read by others: the password is not in it."""
    monkeypatch.setenv("SECRET", "geheim")
    text = GOOD.replace(DSN, f"'{DSN} password=${{SECRET}}'")
    path = write(tmp_path, text)
    path.chmod(0o644)
    config = load(path)
    assert "geheim" in config.source.dsn
    assert "geheim" not in repr(config)
    monkeypatch.setenv("SECRET", "geheim nonsense")
    found = problems(tmp_path, text)
    assert any("is not a connection string" in line for line in found)
    assert "geheim" not in "".join(found)
    path.write_text(GOOD.replace(DSN, f"'{DSN} port=${{SECRET}} password=literal'"))
    path.chmod(0o644)
    monkeypatch.setenv("SECRET", "1")
    with pytest.raises(ConfigError, match="password in a file that others can read"):
        load(path)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "password-command: [vault, read]",
            "source.password-command: the program is not an absolute",
        ),
        (
            "password-command: [/bin/x], password-file: /p",
            "source.password-command: is not possible together with source.password-file",
        ),
    ],
)
def test_password_commands_that_are_refused(tmp_path: Path, source: str, expected: str) -> None:
    """Which program runs must not depend on PATH, and one secret has one place."""
    found = problems(tmp_path, GOOD.replace("publication:", f"{source}, publication:"))
    assert any(expected in line for line in found), found
