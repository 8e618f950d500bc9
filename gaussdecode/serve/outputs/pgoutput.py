"""PostgreSQL's own plug-in pgoutput, without streaming of open transactions."""

import re
import struct
from collections.abc import Hashable
from typing import Any, Final

from gaussdecode.model.types import internal_name
from gaussdecode.serve.block import MESSAGES, Block, Messages, ServedColumn, TableSchema
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.outputs._pgoutput import PgOutputWriter
from gaussdecode.serve.outputs.options import INVALID_PARAMETER_VALUE, Options, boolean
from gaussdecode.serve.outputs.plan import Columns, Planned, TablePlan, column_oid

_FEATURE_NOT_SUPPORTED: Final = "0A000"
_INTERNAL_ERROR: Final = "XX000"
_MAX_VERSION: Final = 4
_STREAMING_VERSION: Final = 2
_PARALLEL_VERSION: Final = 4
_TWO_PHASE_VERSION: Final = 3
_FIRST_TOLD_OID: Final = 10000  # FirstGenbkiObjectId: types from here on have a Type message
_UNKNOWN_OID: Final = 0xF0000000  # of tables whose OID did not land; no server gives such
_KNOWN: Final = frozenset(
    {
        "proto_version", "publication_names", "binary", "messages", "streaming", "two_phase",
        "origin",
    }
)  # fmt: skip
_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


class PgOutput(Planned):
    """pgoutput: values as text, whole transactions.

    Other than the server's: all tables of the landing are in every publication, an origin has the LSN
    0, and transactions without rows are left out, as from PostgreSQL 15 on. Protocol versions 2 to
    4 are taken: they differ where transactions are streamed or prepared, which a landing has not.

    Args:
        options: of the client.

    Raises:
        ServeError: an option is wrong.
    """

    is_text = False

    def __init__(self, options: Options) -> None:
        for name in options:
            if name not in _KNOWN:
                raise ServeError(_INTERNAL_ERROR, f"unrecognized pgoutput option: {name}")
        _check_version(options)
        if not options.get("publication_names"):
            raise ServeError(INVALID_PARAMETER_VALUE, 'option "publication_names" missing')
        for name in ("binary", "two_phase"):
            boolean(options, name, default=False)
        origin = (options.get("origin") or "any").lower()
        if origin not in {"any", "none"}:
            raise ServeError(INVALID_PARAMETER_VALUE, f'unrecognized origin value: "{origin}"')
        self._described = PgOutputWriter()
        self._numbers: dict[int | tuple[str, str], int] = {}
        super().__init__(
            self._described,
            only_local=origin == "none",
            has_messages=boolean(options, "messages", default=False),
        )

    def write(self, block: Block) -> Messages:
        """Write all messages of a block."""
        self._described.set_origins(block.transactions.origin)
        return super().write(block)

    def state(self, block: Block) -> Hashable:
        """What was written before: also which tables the client knows."""
        return super().state(block), tuple(
            (plan.oid, self._described.knows(plan.relation, plan.version))
            for plan in self._plans_of(block)
        )

    def resume(self, block: Block, state: Any) -> None:
        """Go on as if it had written a block."""
        written, told = state
        super().resume(block, written)
        for plan, (_, is_known) in zip(self._plans_of(block), told, strict=True):
            if is_known:
                self._described.tell(plan.relation, plan.version)

    def _plans_of(self, block: Block) -> list[TablePlan]:
        return [self.planned(of.schema) for of in block.tables if of.schema is not MESSAGES]

    def plan(self, schema: TableSchema) -> TablePlan:
        """Prepare what is written for a table."""
        number = self._numbers.setdefault(
            schema.oid or (schema.schema, schema.name), len(self._numbers)
        )
        oid = schema.oid or _UNKNOWN_OID + number
        return TablePlan(
            schema,
            is_wanted=True,
            oid=oid,
            heads=lambda new, _: _heads(schema, oid, new),
            prefix=lambda _: b"",
            relation=number,
            version=len(self._plans) + 1,
        )

    def heartbeat(self, lsn: int, flushed_lsn: int, time_us: int) -> bytes | None:
        """PostgreSQL has none."""
        return None


def _check_version(options: Options) -> None:
    text = options.get("proto_version")
    if text is None:
        raise ServeError(INVALID_PARAMETER_VALUE, 'option "proto_version" missing')
    if not re.fullmatch(r"\s*[0-9]{1,9}", text):
        raise ServeError(INVALID_PARAMETER_VALUE, "invalid proto_version")
    version = int(text)
    for bound, is_wrong, side in (
        (_MAX_VERSION, version > _MAX_VERSION, "lower"),
        (1, version < 1, "higher"),
    ):
        if is_wrong:
            raise ServeError(
                _FEATURE_NOT_SUPPORTED,
                f"client sent proto_version={version} but server only supports protocol {bound} or {side}",
            )
    streaming = options.get("streaming", "off")
    is_parallel = streaming is not None and streaming.lower() == "parallel"
    if is_parallel or boolean(options, "streaming", default=False):
        _need(version, _PARALLEL_VERSION if is_parallel else _STREAMING_VERSION, "streaming")
    if boolean(options, "two_phase", default=False):
        _need(version, _TWO_PHASE_VERSION, "two-phase commit")


def _need(version: int, least: int, what: str) -> None:
    if version < least:
        raise ServeError(
            _FEATURE_NOT_SUPPORTED,
            f"requested proto_version={version} does not support {what}, need {least} or higher",
        )


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _namespace(name: str) -> bytes:
    return b"\0" if name == "pg_catalog" else _text(name)


def _heads(schema: TableSchema, oid: int, columns: Columns) -> tuple[bytes, ...]:
    relation = [
        struct.pack(">cI", b"R", oid), _namespace(schema.schema), _text(schema.name),
        schema.identity.encode(), struct.pack(">H", len(columns)),
    ]  # fmt: skip
    types = []
    for column in columns:
        of = column_oid(column)
        relation += [
            bytes([column.in_identity]), _text(column.name),
            struct.pack(">Ii", of, column.type_modifier),
        ]  # fmt: skip
        if of >= _FIRST_TOLD_OID:
            told = struct.pack(">cI", b"Y", of) + _type_name(column)
            types.append(struct.pack(">I", len(told)) + told)
    old = b"O" if schema.identity == "f" else b"K"
    return (b"".join(relation), b"".join(types), b"", b"", old, b"")


def _type_name(column: ServedColumn) -> bytes:
    """Namespace and name of a type; of a domain those of its base, whose spelling landed."""
    base = internal_name(column.type)
    if base is not None:
        return b"\0" + _text(base)
    parts = [quoted.replace('""', '"') or bare for quoted, bare in _PART.findall(column.type)]
    return _namespace(parts[0] if len(parts) > 1 else "pg_catalog") + _text(parts[-1])
