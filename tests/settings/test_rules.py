"""Tests for `gaussdecode.settings.option`, `gaussdecode.settings.options` and `gaussdecode.settings.rules`."""

from typing import NamedTuple

import pytest

from gaussdecode.settings.option import Doer, Option, Section, Support, Version
from gaussdecode.settings.options import OPTIONS
from gaussdecode.settings.rules import BY_NAME, SourceKind, refusals
from gaussdecode.settings.types import GIB, MIB, Integer

# The product's documentation, in its order: name -> (serial default, parallel default).
DOCUMENTED = {
    "include-xids": (True, True),
    "skip-empty-xacts": (False, False),
    "include-timestamp": (True, False),
    "only-local": (True, True),
    "white-table-list": ("", ""),
    "max-txn-in-memory": (0, 0),
    "max-reorderbuffer-in-memory": (0, 0),
    "desc-memory-limit": (100, 100),
    "include-user": (False, False),
    "exclude-userids": ("", ""),
    "exclude-users": ("", ""),
    "dynamic-resolution": (True, True),
    "standby-connection": (False, False),
    "sender-timeout": (None, None),
    "change-log-max-len": (4096, 4096),
    "max-decode-to-sender-cache-num": (4096, 4096),
    "enable-heartbeat": (False, False),
    "parallel-decode-num": (1, 1),
    "output-order": (0, 0),
    "auto-advance": (False, False),
    "skip-generated-columns": (False, False),
    "enable-ddl-decoding": (False, False),
    "enable-ddl-json-format": (False, False),
    "timezone-is-utc": (False, False),
    "decode-sequence": (False, False),
    "data-limit": (10, 10),
    "logical-receiver-num": (1, 1),
    "slice-id": (-1, -1),
    "start-position": ("", ""),
    "force-binary": (False, False),
    "decode-style": ("b", "b"),
    "sending-batch": (0, 0),
    "parallel-queue-size": (128, 128),
    "include-originid": (False, False),  # in openGauss's source only
}
OWN = {"include-timestamp": True, "max-txn-in-memory": 64, "sending-batch": 1}  # on GaussDB
OLD_OPTIONS = {
    "parallel-decode-num", "decode-style", "sending-batch", "include-xids", "include-timestamp",
    "skip-empty-xacts", "only-local", "white-table-list", "standby-connection",
}  # fmt: skip
LATER = {  # first openGauss that has it
    "max-txn-in-memory": (3, 0, 3),
    "max-reorderbuffer-in-memory": (3, 0, 3),
    "parallel-queue-size": (3, 0, 3),
    "sender-timeout": (3, 0, 3),
    "include-originid": (5, 0, 0),
}


class Server(NamedTuple):
    """A server's profile."""

    name: str
    version: Version
    is_commercial: bool = False


OPENGAUSS = Server("openGauss 6.0.0", (6, 0, 0))
OPENGAUSS_3 = Server("openGauss 3.0.0", (3, 0, 0))
GAUSSDB = Server("GaussDB 505.1", (6, 0, 0), True)
RANGES = {
    "max-txn-in-memory": (0, 100),
    "max-reorderbuffer-in-memory": (0, 100),
    "desc-memory-limit": (10, 1024),
    "sender-timeout": (0, 2147483647),
    "change-log-max-len": (1, 65535),
    "max-decode-to-sender-cache-num": (1, 65535),
    "parallel-decode-num": (1, 20),
    "output-order": (0, 1),
    "data-limit": (0, 100),
    "logical-receiver-num": (1, 20),
    "slice-id": (-1, 8192),
    "sending-batch": (0, 1),
    "parallel-queue-size": (2, 1024),
}


def test_every_documented_option_is_a_row() -> None:
    """The table holds the product's options, all of them, in the product's order."""
    assert [option.name for option in OPTIONS] == list(DOCUMENTED)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_defaults_are_the_products(option: Option) -> None:
    """On GaussDB the documented default holds in both modes, but for the named exceptions."""
    serial, parallel = DOCUMENTED[option.name]
    assert (option.default, option.default_parallel or option.default) == (serial, serial)
    kind = SourceKind.GAUSSDB
    assert option.effective_default(kind, is_parallel=False) == OWN.get(option.name, serial)
    assert option.effective_default(kind, is_parallel=True) == OWN.get(option.name, parallel)


@pytest.mark.parametrize(("name", "bounds"), RANGES.items())
def test_ranges_are_the_products(name: str, bounds: tuple[int, int]) -> None:
    """Both ends of a documented range are read, and nothing beyond."""
    value_type = BY_NAME[name].type
    assert isinstance(value_type, Integer)
    for value in bounds:
        assert value_type.read(value) == value
    for value in (bounds[0] - 1, bounds[1] + 1):
        with pytest.raises(ValueError, match="is out of range"):
            value_type.read(value)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("is_parallel", [False, True], ids=["serial", "parallel"])
def test_defaults_are_within_their_range(option: Option, is_parallel: bool) -> None:
    """What holds without being said could also be said, in a machine of 8 GiB."""
    for kind in SourceKind:
        default = option.effective_default(kind, is_parallel=is_parallel)
        if default is not None:
            value_type = option.range(is_parallel=is_parallel, memory_bytes=8 * GIB)
            assert value_type.read(default) == default


@pytest.mark.parametrize(
    ("name", "maximum"),
    [("max-txn-in-memory", 8 * GIB // 4 // MIB), ("max-reorderbuffer-in-memory", 4)],
)
def test_parallel_memory_limits_are_a_share_of_the_memory(name: str, maximum: int) -> None:
    """In parallel decoding the maximum is the documented part of the process memory."""
    value_type = BY_NAME[name].range(is_parallel=True, memory_bytes=8 * GIB)
    assert value_type.read(maximum) == maximum
    with pytest.raises(ValueError, match="is out of range"):
        value_type.read(maximum + 1)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_row_explains_itself(option: Option) -> None:
    """Meaning and support are sentences; a refusal always gives its reason."""
    assert option.meaning.endswith(".")
    for kind in SourceKind:
        assert len(option.support(kind).how) > len("too short")


@pytest.mark.parametrize(
    "name", [option.name for option in OPTIONS if option.section is Section.PARALLEL]
)
@pytest.mark.parametrize("kind", list(SourceKind))
def test_parallel_options_need_parallel_decoding(name: str, kind: SourceKind) -> None:
    """As in the product, serial decoding refuses them, even with their default value."""
    default = BY_NAME[name].default
    problems = dict(refusals({name: default, "parallel-decode-num": 1}, kind))
    assert "parallel-decode-num from 2 to 20" in problems[name]
    assert not dict(refusals({name: default, "parallel-decode-num": 2}, kind))


@pytest.mark.parametrize("name", ["logical-receiver-num", "slice-id"])
def test_distributed_options_need_csn_order(name: str) -> None:
    """On GaussDB they apply only with output-order 1, even with their default value."""
    given = {name: BY_NAME[name].default}
    for server in (None, GAUSSDB):
        assert "output-order 1" in dict(refusals(given, SourceKind.GAUSSDB, server))[name]
        assert not dict(refusals({**given, "output-order": 1}, SourceKind.GAUSSDB, server))


def test_the_daemon_filters_by_start_position_in_any_order() -> None:
    """What the daemon does itself does not need what the server would need for it."""
    assert not dict(refusals({"start-position": "1/2"}, SourceKind.GAUSSDB, OPENGAUSS))


def test_serial_options_need_serial_decoding() -> None:
    """force-binary is an unknown option in parallel decoding."""
    given = {"force-binary": False, "parallel-decode-num": 2}
    assert "parallel-decode-num 1" in dict(refusals(given, SourceKind.GAUSSDB))["force-binary"]


def supports(option: Option) -> dict[str, Support]:
    """Everybody who may be asked, by a name."""
    found = {"postgresql": option.postgresql, "gaussdb": option.gaussdb}
    now: Support | None = option.opengauss
    while now is not None:
        found[f"opengauss from {now.since}"] = now
        now = now.before
    return found


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_refused_options_say_what_they_accept(option: Option) -> None:
    """A refused one has a list of accepted values; one with a beginning says what was before."""
    for support in supports(option).values():
        assert support.by is not Doer.REFUSED or support.accepts is not None
        assert (support.since is None) == (support.before is None)
        assert support.range is None or support.accepts is None


PLACES = [
    ("postgresql", SourceKind.POSTGRESQL, None),
    ("capture", SourceKind.CAPTURE, None),
    ("openGauss 6.0.0", SourceKind.GAUSSDB, OPENGAUSS),
    ("openGauss 3.0.0", SourceKind.GAUSSDB, OPENGAUSS_3),
    ("GaussDB 505.1", SourceKind.GAUSSDB, GAUSSDB),
]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize(("where", "kind", "server"), PLACES, ids=[name for name, *_ in PLACES])
def test_what_cannot_be_had_is_refused(
    option: Option, where: str, kind: SourceKind, server: Server | None
) -> None:
    """A possible value, or one that asks for nothing, is accepted; others get the reason."""
    support = option.support(kind, server)
    if support.accepts is None:
        return
    for value in support.accepts:
        assert not dict(refusals({option.name: value}, kind, server))
    reason = dict(refusals({option.name: object()}, kind, server))[option.name]
    assert f"not possible on {where}: {support.how}" in reason


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_what_each_version_is_told(option: Option) -> None:
    """3.0.0 has nine options, later ones have more; the commercial ones are never passed on."""
    kind = SourceKind.GAUSSDB
    is_serial_only = option.section is Section.SERIAL
    was_known = option.support(kind, OPENGAUSS_3).is_passed_on
    assert was_known == (option.name in OLD_OPTIONS or is_serial_only)
    is_known = option.support(kind, OPENGAUSS).is_passed_on
    assert is_known == (option.name in OLD_OPTIONS | LATER.keys() or is_serial_only)
    if option.name in LATER:
        first = LATER[option.name]
        before = (first[0], first[1], first[2] - 1) if first[2] else (first[0] - 1, 9, 9)
        assert option.support(kind, Server("s", first)).is_passed_on
        assert not option.support(kind, Server("s", before)).is_passed_on


@pytest.mark.parametrize("name", ["max-txn-in-memory", "max-reorderbuffer-in-memory"])
def test_opengauss_takes_less_memory_than_gaussdb(name: str) -> None:
    """100 is its limit in parallel decoding too; the daemon alone is not bound by it."""
    given = {name: 101, "parallel-decode-num": 2}
    kind = SourceKind.GAUSSDB
    assert "takes 0 to 100" in dict(refusals(given, kind, OPENGAUSS))[name]
    for server in (None, GAUSSDB, OPENGAUSS_3):
        assert not dict(refusals(given, kind, server))


def test_before_the_server_is_known_only_the_impossible_is_refused() -> None:
    """What GaussDB can do passes a check of the file alone."""
    kind = SourceKind.GAUSSDB
    assert not dict(refusals({"include-user": True, "include-originid": True}, kind))
    assert not dict(refusals({"enable-ddl-decoding": True}, kind))
    refused = dict(refusals({"enable-ddl-decoding": True}, kind, OPENGAUSS))["enable-ddl-decoding"]
    assert "openGauss has no such option" in refused
    refused = dict(refusals({"decode-sequence": True}, kind))["decode-sequence"]
    assert refused.startswith("true is not possible")


@pytest.mark.parametrize(
    "value", ["18446744073709551616/0", "0/99999999999999999999", "1", "1/2/3", "x/1"]
)
def test_a_start_position_has_64_bits(value: str) -> None:
    """A larger one would end the daemon when it begins to stream."""
    kind = BY_NAME["start-position"].type
    with pytest.raises(ValueError, match="18446744073709551615"):
        kind.read(value)
    assert kind.read("18446744073709551615/18446744073709551615")
    assert kind.read("") == ""
