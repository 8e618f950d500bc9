"""Name a target's tables in a catalog.

A pattern gives each table of the source a name of parts separated by dots. ``{schema}`` and ``{table}``
in it are replaced by the source's names. Pure; needs no pyspark.
"""

import string
from collections.abc import Iterable
from urllib.parse import unquote

from gaussdecode.errors import ConfigError

_SCHEMA, _TABLE = "{schema}", "{table}"
Name = tuple[str, ...]


def full_pattern(text: str) -> str:
    """Complete a pattern: a catalog name alone uses the source's schemas as namespaces.

    Raises:
        ConfigError: the pattern does not tell tables apart; the text says what is allowed.
    """
    if _SCHEMA not in text and _TABLE not in text:
        text += f".{_SCHEMA}.{_TABLE}" if "." not in text else f".{_SCHEMA}_{_TABLE}"
    parts = text.split(".")
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError:
        fields = ["?"]
    if len(parts) < 2 or not all(parts) or set(fields) - {"schema", "table"}:
        raise ConfigError(
            f"catalog {text!r} is no name of tables: give CATALOG, CATALOG.NAMESPACE, or a pattern such "
            "as lake.cdc.{schema}_{table}"
        )
    if "table" not in fields or any(field in parts[0] for field in (_SCHEMA, _TABLE)):
        raise ConfigError(
            f"catalog {text!r}: {_TABLE} is missing, or stands in the name of the catalog itself"
        )
    return text


def name_of(pattern: str, directory: str) -> Name:
    """The name of a table, part by part.

    Args:
        pattern: result of `full_pattern`.
        directory: the table's in the landing and in the target.
    """
    schema, table = (unquote(part, errors="surrogateescape") for part in directory.split("."))
    return tuple(part.format(schema=schema, table=table) for part in pattern.split("."))


def positions_name(pattern: str) -> Name:
    """The name of the table of positions: that of a table in a schema ``gd`` of the source.

    Args:
        pattern: result of `full_pattern`.
    """
    table = "positions" if _SCHEMA in pattern else "gd_positions"
    return tuple(part.format(schema="gd", table=table) for part in pattern.split("."))


def check_apart(pattern: str, directories: Iterable[str], beside: str = "") -> None:
    """Check that no two tables get the same name; many catalogs ignore case.

    Args:
        pattern: result of `full_pattern`.
        directories: directories of the tables.
        beside: suffix of a second table that each has; empty for none.

    Raises:
        ConfigError: two tables would get the same name.
    """
    positions = tuple(part.casefold() for part in positions_name(pattern))
    found: dict[Name, str] = {positions: "of positions, which gaussdecode keeps,"}
    of_all = [(directory, name_of(pattern, directory)) for directory in sorted(directories)]
    if beside:
        of_all += [(directory, (*n[:-1], f"{n[-1]}_{beside}")) for directory, n in of_all]
    for directory, name in of_all:
        other = found.setdefault(tuple(part.casefold() for part in name), directory)
        if other != directory:
            raise ConfigError(
                f"catalog {pattern!r}: tables {unquote(other)} and {unquote(directory)} would both be "
                f"{'.'.join(name)}; begin a new target with a pattern that tells them apart, or choose "
                "one of them with --tables"
            )
