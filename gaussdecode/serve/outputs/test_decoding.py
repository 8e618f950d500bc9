"""PostgreSQL's example plug-in test_decoding: one line of text for each change."""

from typing import Final

from gaussdecode.serve.block import ServedColumn, TableSchema
from gaussdecode.serve.outputs._test_decoding import TestDecodingWriter
from gaussdecode.serve.outputs.keywords import quote_identifier, quote_qualified
from gaussdecode.serve.outputs.options import Options, boolean, refuse_others
from gaussdecode.serve.outputs.plan import Planned, TablePlan, format_type

_KNOWN: Final = frozenset(
    {
        "include-xids", "include-timestamp", "force-binary", "skip-empty-xacts", "only-local",
        "include-rewrites", "stream-changes",
    }
)  # fmt: skip


class TestDecoding(Planned):
    """test_decoding of PostgreSQL 14 to 18.

    Other bytes than the server's: a domain is spelled as its base type; a generated column is
    missing, since the stream that landed does not have it; a TRUNCATE of several tables
    is several lines, where the landing does not have the LSN of changes.

    Args:
        options: of the client.

    Raises:
        ServeError: an option is wrong.
    """

    __test__ = False  # no test of pytest's

    def __init__(self, options: Options) -> None:
        refuse_others(options, _KNOWN)
        self.is_text: bool = not boolean(options, "force-binary", default=False, bare=False)
        for ignored in ("include-rewrites", "stream-changes"):
            boolean(options, ignored, default=False)
        super().__init__(
            TestDecodingWriter(
                has_xids=boolean(options, "include-xids", default=True),
                has_times=boolean(options, "include-timestamp", default=False),
                is_lazy=boolean(options, "skip-empty-xacts", default=False),
            ),
            only_local=boolean(options, "only-local", default=False),
            has_messages=True,
        )

    def plan(self, schema: TableSchema) -> TablePlan:
        """Prepare what is written for a table."""
        name = quote_qualified(schema.schema, schema.name)
        head = f"table {name}: "
        return TablePlan(
            schema,
            is_wanted=True,
            oid=schema.oid,
            heads=lambda *_: (
                f"{head}INSERT:".encode(),
                f"{head}UPDATE:".encode(),
                f"{head}DELETE:".encode(),
                name.encode(),
                b" old-key:",
                b" new-tuple:",
            ),
            prefix=_prefix,
        )

    def heartbeat(self, lsn: int, flushed_lsn: int, time_us: int) -> bytes | None:
        """PostgreSQL has none."""
        return None


def _prefix(column: ServedColumn) -> bytes:
    return f" {quote_identifier(column.name)}[{format_type(column)}]:".encode()
