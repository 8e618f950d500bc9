"""Tests for `gaussdecode.options`."""

import pytest

from gaussdecode.options import (
    BY_NAME,
    OPTIONS,
    Doer,
    Option,
    Section,
    SourceKind,
    refusals,
)
from gaussdecode.values import GIB, MIB, Integer

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
}
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
    """On GaussDB the documented default holds, in serial and in parallel decoding."""
    serial, parallel = DOCUMENTED[option.name]
    kind = SourceKind.GAUSSDB
    assert option.effective_default(kind, is_parallel=False) == serial
    assert option.effective_default(kind, is_parallel=True) == parallel


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
    """On GaussDB they apply only with output-order 1."""
    given = {name: BY_NAME[name].default}
    assert "output-order 1" in dict(refusals(given, SourceKind.GAUSSDB))[name]
    assert not dict(refusals({**given, "output-order": 1}, SourceKind.GAUSSDB))


@pytest.mark.parametrize(
    "option",
    [option for option in OPTIONS if option.postgresql.accepts is not None],
    ids=lambda option: option.name,
)
def test_what_cannot_be_had_is_refused(option: Option) -> None:
    """A possible value, or one that asks for nothing, is accepted; others get the reason."""
    assert option.postgresql.accepts is not None
    for value in option.postgresql.accepts:
        assert not dict(refusals({option.name: value}, SourceKind.POSTGRESQL))
    reason = dict(refusals({option.name: object()}, SourceKind.POSTGRESQL))[option.name]
    assert option.postgresql.how in reason


def test_refused_options_say_what_they_accept() -> None:
    """A refused option has a list of accepted values, if only an empty one."""
    for option in OPTIONS:
        for kind in SourceKind:
            support = option.support(kind)
            assert support.by is not Doer.REFUSED or support.accepts is not None
