"""Names as rows spell them."""

import pytest

from gaussdecode.errors import WireError
from gaussdecode.model.shape import Shape, ShapeColumn
from gaussdecode.protocol.gaussdb.names import shape_of, unquote


def tables(style: str, head: bytes, op: str = "I") -> tuple[tuple[str, str], ...]:
    """Read the head of a row without columns."""
    return shape_of(style, op, head, [], None, bytes.decode).tables


@pytest.mark.parametrize(
    ("style", "head", "expected"),
    [
        ("b", b"\0\1s\0\3t x", [("s", "t x")]),
        ("t", b"public t", [("public", "t")]),
        ("t", b"a b c", [("a", "b c"), ("a b", "c")]),
        ("j", b"public.t", [("public", "t")]),
        ("j", b'\\"My Schema\\".\\"T\\"\\"x\\"', [("My Schema", 'T"x')]),
        ("j", b'\\"a\\\\b\\".t', [("a\\b", "t")]),
        ("q", b'"A.b".t', [("A.b", "t")]),
        ("s", b"public.t:", [("public", "t")]),
        ("s", b"Public.T:", [("Public", "T")]),
        ("s", b"a.B.c:", [("a", "B.c"), ("a.B", "c")]),
    ],
)
def test_tables(style: str, head: bytes, expected: list[tuple[str, str]]) -> None:
    """Quoted where the style quotes; all readings where it does not."""
    assert tables(style, head) == tuple(expected)


@pytest.mark.parametrize(
    ("style", "head"), [("t", b"public"), ("t", b" x"), ("j", b"t"), ("q", b"")]
)
def test_heads_that_name_no_table(style: str, head: bytes) -> None:
    """A head of one name is no table's."""
    with pytest.raises(WireError, match="cannot be read"):
        tables(style, head)


def test_columns() -> None:
    """Each style's spelling gives the same names; types as far as it tells."""
    expected = ['a"b', "date", "x"]
    binary = [
        (b'\0\6"a""b"\0\0\0\x17', b""),
        (b'\0\6"date"\0\0\0\x19', b""),
        (b"\0\1x\0\0\x04\x13", b""),
    ]
    text = [(b'"a""b"[integer]:', b""), (b'"date"[text]:', b""), (b"x[integer[]]:", b"")]
    json = [(b'\\"a\\"\\"b\\"', b"integer"), (b'\\"date\\"', b"text"), (b"x", b"integer[]")]
    sql = [(b'"a""b"', b""), (b'"date"', b""), (b"x", b"")]
    heads = {"b": b"\0\1s\0\1t", "t": b"s t", "j": b"s.t", "q": b"s.t"}
    found: dict[str, Shape] = {
        style: shape_of(style, "I", heads[style], spans, None, bytes.decode)
        for style, spans in {"b": binary, "t": text, "j": json, "q": sql}.items()
    }
    for shape in found.values():
        assert [column.name for column in shape.new or ()] == expected
    assert [c.type_oid for c in found["b"].new or ()] == [23, 25, 1043]
    names = ["integer", "text", "integer[]"]
    assert [c.type_name for c in found["t"].new or ()] == names
    assert [c.type_name for c in found["j"].new or ()] == names
    assert found["q"].new == tuple(ShapeColumn(name) for name in expected)


@pytest.mark.parametrize(
    ("name", "expected"), [(b"a", b"a"), (b'"a"', b"a"), (b'"a""b"', b'a"b'), (b'""""', b'"')]
)
def test_unquote(name: bytes, expected: bytes) -> None:
    """Quotes go, doubled ones become one."""
    assert unquote(name) == expected


@pytest.mark.parametrize("name", [b'"', b'"a', b'"a"b"', b'"a""'])
def test_quotes_in_pairs(name: bytes) -> None:
    """Any other quotes are an error."""
    with pytest.raises(WireError, match="in pairs"):
        unquote(name)


@pytest.mark.parametrize("raw", [rb"\q", rb"\ud83d", rb"\u00"])
def test_escapes_in_names(raw: bytes) -> None:
    """A JSON escape that is none is an error."""
    with pytest.raises(WireError, match="unknown escape"):
        shape_of("j", "I", b"s.t", [(raw, b"text")], None, bytes.decode)
