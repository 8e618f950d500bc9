"""Thrift's compact protocol."""

import io
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gaussdecode.land import thrift
from gaussdecode.land.thrift import Items, Struct

EVERYTHING: Final[Struct] = {
    1: (thrift.TRUE, True),
    2: (thrift.FALSE, False),
    3: (thrift.BYTE, 200),
    20: (thrift.I16, -3),
    21: (thrift.I32, 1 << 30),
    22: (thrift.I64, -(1 << 62)),
    23: (thrift.DOUBLE, bytes(range(8))),
    24: (thrift.BINARY, b"x" * 300),
    400: (thrift.LIST, Items(thrift.I32, list(range(-9, 9)))),
    401: (thrift.SET, Items(thrift.TRUE, [1, 2])),
    402: (thrift.STRUCT, {1: (thrift.LIST, Items(thrift.STRUCT, [{}, {7: (thrift.I64, 0)}]))}),
    5: (thrift.I32, 5),
}


def test_what_is_written_is_read() -> None:
    """Of every type, with steps between the numbers of fields that are short, long or back."""
    data = thrift.dump(EVERYTHING)
    assert thrift.load(b"..." + data + b"...", 3) == (EVERYTHING, 3 + len(data))


def test_footer_of_a_file_is_written_as_it_was_read() -> None:
    """With fields that nobody here knows."""
    file = io.BytesIO()
    rows = pa.table({"n": [1, None], "v": ["a", "b"], "l": [[1.5], []], "b": [True, False]})
    pq.write_table(rows, file, write_page_index=True, write_page_checksum=True)
    data = file.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8]
    tree, stop = thrift.load(footer)
    assert stop == size
    assert thrift.dump(tree) == footer


@pytest.mark.parametrize("size", range(len(thrift.dump(EVERYTHING))))
def test_every_prefix_is_an_error(size: int) -> None:
    """That says where the data ends."""
    with pytest.raises(ValueError, match="Thrift data ends"):
        thrift.load(thrift.dump(EVERYTHING)[:size])


def test_unknown_type_is_an_error() -> None:
    """Its length is unknown, and so is where the next field begins."""
    with pytest.raises(ValueError, match="no type 11 of Thrift is known, before byte 1"):
        thrift.load(b"\x1b\x00")
