"""Mask column values when landed files are read: drop, hash or cut them, so that no table shows them.

A rule names a table and a column. It follows the column's attribute number: columns that once had that
name stay masked under later names, and a new column that gets the name is masked too. Pure.
"""

import dataclasses
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.schema import OLD, OLD_PREFIX, RAW, RAW_TYPE

NULL, HASH, KEEP = "null", "hash", "keep"
_RULE: Final = re.compile(r"(null|hash)|keep\((\d+)\)")
_FEWEST: Final = 16
"""Fewest bytes of a key: a shorter key can be guessed."""
Json = dict[str, Any]  # decoded JSON


@dataclasses.dataclass(frozen=True, slots=True)
class Mask:
    """How the values of a column are masked.

    Attributes:
        rule: ``null``, ``hash`` or ``keep``.
        letters: number of characters that ``keep`` leaves, from the left.
        key: key for ``hash``.
    """

    rule: str
    letters: int = 0
    key: bytes = dataclasses.field(default=b"", repr=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read ``null``, ``hash`` or ``keep(3)``.

        Raises:
            ConfigError: the text is none of these.
        """
        match = _RULE.fullmatch(text)
        if match is None:
            raise ConfigError(f"mask {text!r} is none: give null, hash or keep(NUMBER)")
        return cls(match[1] or KEEP, int(match[2] or 0))

    def __str__(self) -> str:
        return f"{KEEP}({self.letters})" if self.rule == KEEP else self.rule

    def text(self, value: str) -> str | None:
        """Mask one text."""
        if self.rule == HASH:
            return hmac.new(self.key, value.encode(), hashlib.sha256).hexdigest()
        return value[: self.letters] if self.rule == KEEP else None

    def values(self, column: pa.Array) -> pa.Array:
        """Mask the values of a column; values that are not texts become NULL."""
        if self.rule == NULL or not pa.types.is_string(column.type):
            return pa.nulls(len(column), column.type)
        if self.rule == KEEP:
            return pc.utf8_slice_codeunits(column, 0, self.letters)
        coded = column.dictionary_encode()
        hashed = pa.array([self.text(value) for value in coded.dictionary.to_pylist()], pa.string())
        return hashed.take(coded.indices)


Masks = Mapping[str, Mask]
"""Masks by column."""


def read_masks(texts: Sequence[str], key: bytes = b"") -> dict[str, dict[str, Mask]]:
    """Read ``--mask`` options, each ``TABLE=COLUMN:RULE,...``.

    Args:
        texts: options.
        key: key for hashes.

    Raises:
        ConfigError: an option has the wrong form.
    """
    found: dict[str, dict[str, Mask]] = {}
    for text in texts:
        table, _, rest = text.partition("=")
        parts = [part.strip().rpartition(":") for part in rest.split(",")]
        if not table or not all(name and rule for name, _, rule in parts):
            raise ConfigError(
                f"--mask {text!r}: give TABLE=COLUMN:RULE,..., as in public.customers=email:hash,phone:null"
            )
        masks = {name: Mask.from_text(rule) for name, _, rule in parts}
        found.setdefault(table, {}).update(
            {name: dataclasses.replace(mask, key=key) for name, mask in masks.items()}
        )
    return found


def read_key(path: Path) -> bytes:
    """Read the key for hashes from a file.

    Raises:
        ConfigError: the file cannot be read, others can read it, or the key is too short.
    """
    try:
        mode = path.stat().st_mode
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"--mask-key {path} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"--mask-key {path}: others can read it; chmod 0600 {path}")
    if len(key) < _FEWEST:
        raise ConfigError(f"--mask-key {path} has {len(key)} bytes; give at least {_FEWEST}")
    return key


def to_record(masks: Masks, key: bytes, landing_id: str) -> Json:
    """Make the record that a target keeps: the rules, and a check value for the key."""
    has_hash = any(mask.rule == HASH for mask in masks.values())
    known = hmac.new(key, landing_id.encode(), hashlib.sha256).hexdigest()[:16] if has_hash else ""
    return {"masks": {name: str(mask) for name, mask in masks.items()}, "key": known}


def from_record(table: str, record: Json | None, key: bytes, landing_id: str) -> dict[str, Mask]:
    """Read the masks of a table from the target's record.

    Raises:
        ConfigError: the masks need a key, or a different key.
    """
    if record is None:
        return {}
    masks = {name: Mask.from_text(text) for name, text in record["masks"].items()}
    if record["key"] and to_record({"": Mask(HASH)}, key, landing_id)["key"] != record["key"]:
        raise ConfigError(
            f"{table} has columns that are hashed: give --mask-key, with the key that its first apply had"
        )
    return {name: dataclasses.replace(mask, key=key) for name, mask in masks.items()}


def check_names(table: str, masks: Masks, names: Collection[str]) -> None:
    """Check that a table has the columns to mask.

    Raises:
        ConfigError: the table lacks one of them.
    """
    for name in masks:
        if name not in names:
            raise ConfigError(
                f"{table} has no column {name!r} to mask; it has: {', '.join(sorted(names))}"
            )
    if any(mask.rule == HASH and not mask.key for mask in masks.values()):
        raise ConfigError(f"{table}: hash needs a key: give --mask-key FILE")


def check_columns(
    table: str, found: Mapping[str, str], masks: Masks, schema: Mapping[str, Any], *, is_new: bool
) -> None:
    """Check that masked rows can still be told apart; in a new table, that hash and keep mask texts.

    Raises:
        ConfigError: a key column would lose values, or a column is of another type.
    """
    for column in schema["columns"]:
        name = found.get(column["landed"])
        if name is None or (masks[name].rule == NULL and not _is_key(column, schema)):
            continue
        if _is_key(column, schema) and masks[name].rule != HASH:
            raise ConfigError(
                f"{table}: column {column['name']!r} is in the key, which tells rows apart: only hash can mask it"
            )
        if is_new and column["arrow"] != "string":  # later such values are left out
            raise ConfigError(
                f"{table}: column {column['name']!r} is {column['arrow']}: hash and keep are for texts, give null"
            )


def _is_key(column: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    return column["name"] in (schema["key"] or ())


def columns_of(names: Iterable[str], schema_id: str, records: Mapping[str, Json]) -> dict[str, str]:
    """Masked columns of a schema, by name in the files, with the name whose rule applies.

    Args:
        names: column names in the rules.
        schema_id: id of the schema.
        records: all schemas of the table, by id.
    """
    here = records[schema_id]
    found: dict[str, str] = {}
    for name in names:
        numbers = {
            column.get("attribute_number")
            for record in records.values()
            if record.get("oid") == here.get("oid")
            for column in record["columns"]
            if column["name"] == name
        } - {None}
        for column in here["columns"]:
            if column["name"] == name or column.get("attribute_number") in numbers:
                found.setdefault(column["landed"], name)
    return found


def masked(rows: pa.Table, masks: Sequence[tuple[str, Mask]]) -> pa.Table:
    """Mask landed rows: new values, old values, and texts in ``gd_raw``."""
    rules = dict(masks)
    for at, name in enumerate(rows.column_names):
        if name in rules:
            rows = rows.set_column(at, name, _each(rows.column(at), rules[name].values))
        elif name == OLD:
            rows = rows.set_column(at, name, _each(rows.column(at), lambda of: _old(of, rules)))
        elif name == RAW and rows.column(at).null_count < rows.num_rows:
            rows = rows.set_column(at, name, _raw(rows.column(at), rules))
    return rows


def _each(column: pa.ChunkedArray, of: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    return pa.chunked_array([of(chunk) for chunk in column.chunks], column.type)


def _old(rows: pa.StructArray, rules: Masks) -> pa.Array:
    fields = list(rows.type)
    parts = [
        rules[field.name].values(part) if field.name in rules else part
        for field, part in zip(fields, rows.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=rows.is_null())


def _raw(column: pa.ChunkedArray, rules: Masks) -> pa.ChunkedArray:
    """Mask the texts in ``gd_raw``; few rows have any."""

    def pairs(of: list[tuple[str, str]] | None) -> list[tuple[str, str | None]] | None:
        if of is None:
            return None
        found: list[tuple[str, str | None]] = []
        for name, text in of:
            rule = rules.get(name.removeprefix(OLD_PREFIX), rules.get(name))
            if rule is None:
                found.append((name, text))
            elif rule.rule != NULL:
                found.append((name, rule.text(text)))
        return found or None

    return pa.chunked_array([pa.array(map(pairs, column.to_pylist()), RAW_TYPE)])
