"""`gaussdecode replay` with a sink that drops rows where Parquet would be encoded.

Everything before it is as ever: reader, decoders, queues, collector, Arrow tables of the rows;
and so are files, syncs, entries and confirmation, only that the files hold no rows. What such
a landing says it holds is not there: it is for `replay.py` alone, and is thrown away.

    python bench/nullreplay.py RECORDING --root DIR [--decoders N] [--json]
"""

import sys

import pyarrow as pa

from gaussdecode import cli
from gaussdecode.land import writer
from gaussdecode.land.disk import Disk
from gaussdecode.land.encodings import SmallOptions
from gaussdecode.land.parquet import ParquetSink


class NullSink(ParquetSink):
    """Counts rows."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        schema: pa.Schema,
        compression: str,
        sample: pa.Table,
        _: SmallOptions,
    ) -> None:
        super().__init__(disk, path, schema, compression, sample.slice(0, 0))

    def write(self, table: pa.Table) -> None:
        """Drop a row group."""
        self.rows += table.num_rows

    def finish(self) -> tuple[int, str]:
        """Say that all rows are there: a publication counts what the footer says."""
        rows = self.rows
        done = super().finish()
        self.rows = rows
        return done


def install() -> None:
    """Put it where the writer of this process has its own."""
    writer.ParquetSink = NullSink  # type: ignore[attr-defined]


if __name__ == "__main__":
    install()
    sys.exit(cli.main(["replay", *sys.argv[1:]]))
