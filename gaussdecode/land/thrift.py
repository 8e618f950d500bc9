"""Read and write Thrift's compact protocol, as far as Parquet's page headers and footers need it.

Bytes become a tree that gives the same bytes again: unknown fields are kept as they are. The meaning of
fields is not known here.

A struct is a dict from field number to (type, value). A value is an int, bytes, another
struct, or `Items`. True and false are types of their own, whose value stands for itself.
"""

import dataclasses
from typing import Any, Final

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12

_STOP: Final = 0
_INTEGERS: Final = frozenset({I16, I32, I64})
_LONG_LIST: Final = 15

Value = Any  # int, bytes, Struct or Items: which one, the type beside it says
Struct = dict[int, tuple[int, Value]]


@dataclasses.dataclass(slots=True)
class Items:
    """A list or a set.

    Attributes:
        kind: type of its values.
        values: values in order.
    """

    kind: int
    values: list[Value]


class _Reader:
    def __init__(self, data: bytes | bytearray | memoryview, at: int) -> None:
        self.data = data
        self.at = at

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise ValueError(f"Thrift data ends at byte {self.at}, in the middle of a field")
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError(f"Thrift data ends in the middle of {size} bytes at {self.at}")
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def value(self, kind: int) -> Value:
        if kind in _INTEGERS:
            return self.zigzag()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            head = self.byte()
            size = head >> 4
            size = self.varint() if size == _LONG_LIST else size
            return Items(head & 15, [self.value(head & 15) for _ in range(size)])
        if kind in (TRUE, FALSE, BYTE):  # of a list: a field's is in its type
            return self.byte()
        if kind == DOUBLE:
            return self.take(8)
        raise ValueError(f"no type {kind} of Thrift is known, before byte {self.at}")

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while (head := self.byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            kind = head & 15
            fields[number] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self.value(kind))
        return fields


def load(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[Struct, int]:
    """Read a struct.

    Returns:
        It, and the offset after it.

    Raises:
        ValueError: the data is cut off, or not Thrift.
    """
    reader = _Reader(data, at)
    return reader.struct(), reader.at


def dump(struct: Struct) -> bytes:
    """Write a struct."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def add(struct: Struct, number: int, amount: int) -> None:
    """Add to a field that is there and is not 0."""
    kind, value = struct.get(number, (I64, 0))
    if value:
        struct[number] = (kind, value + amount)


def varint(value: int) -> bytes:
    """Write a number that is not negative, seven bits to a byte."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in struct.items():
        if 0 < number - before <= 15:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            out += varint(number << 1)
        before = number
        if kind not in (TRUE, FALSE):
            _put(out, kind, value)
    out.append(_STOP)


def _put(out: bytearray, kind: int, value: Value) -> None:
    if kind in _INTEGERS:
        out += varint(value << 1 if value >= 0 else ~value << 1 | 1)
    elif kind == BINARY:
        out += varint(len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        size = len(value.values)
        out.append(min(size, _LONG_LIST) << 4 | value.kind)
        if size >= _LONG_LIST:
            out += varint(size)
        for one in value.values:
            _put(out, value.kind, one)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)
