"""Write the rows of a DataFrame into files, in the tasks that hold them."""

import dataclasses
import functools
import json
import secrets
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from gaussdecode.spark.log.place import Place
from gaussdecode.spark.target.frames import numbered
from gaussdecode.spark.target.state_file import StateFile, write_state

_BYTES: Final = 64 << 20  # arbitrary; of rows in memory that become one file


def write_rows(
    rows: DataFrame, schema_id: str, fields: pa.Schema, root: Place, name: str
) -> tuple[StateFile, ...]:
    """Write the rows of a frame into durable files below a directory.

    Args:
        rows: frame to write.
        schema_id: schema version of the rows.
        fields: columns and types of the files, in the order of the frame's columns.
        root: directory, on a disk that all executors share or on a store.
        name: beginning of the files' paths below `root`; they are never used again.
    """
    write = functools.partial(
        _write, schema_id=schema_id, fields=fields, root=root, name=f"{name}-{secrets.token_hex(4)}"
    )
    said = numbered(rows).mapInArrow(write, "said string").collect()
    return tuple(StateFile(**json.loads(row.said)) for row in said)


def _write(
    batches: Iterator[pa.RecordBatch], schema_id: str, fields: pa.Schema, root: Place, name: str
) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(one.nbytes for one in held) >= _BYTES:
            yield _file(held, schema_id, fields, root, name)
            held = []
    if held:
        yield _file(held, schema_id, fields, root, name)


def _file(
    batches: list[pa.RecordBatch], schema_id: str, fields: pa.Schema, root: Place, name: str
) -> pa.RecordBatch:
    rows = pa.Table.from_batches(batches)
    columns = [rows.column(i).cast(field.type) for i, field in enumerate(fields)]
    file = write_state(pa.table(columns, schema=fields), root, name, schema_id)
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(dataclasses.asdict(file))])], ["said"])
