"""Write the SQL of a DDL statement that GaussDB or openGauss sends as a JSON tree.

Each node of the tree has `fmt`: text with directives ``%{name}X`` or ``%{name:separator}X``, whose values stand beside
it under their names. A list is written element by element, with the separator between.

| X | a value is written as |
|---|---|
| I | an identifier, quoted where it must be |
| D | a name with its schema: `schema_name` and `object_name` (`schemaname`, `objname` in openGauss) |
| T | a type: its name with schema, modifier and ``[]`` |
| L | a literal in quotes |
| O | an operator with its schema |
| R | the name of a role |
| s, n | text as it is, or a node; a number |

A node with ``"present": false`` is nothing. ``%%`` is a per cent sign. Source: the product's page on logical decoding of DDL, and
`ddl_json.cpp` of openGauss, whose letters are those of PostgreSQL's proposed deparser.
"""

import re
from typing import Any, Final

from gaussdecode.model.sqlnames import name_as_needed, quoted_text

_DIRECTIVE: Final = re.compile(r"%(?:%|\{([^}:]+)(?::([^}]*))?\}(.))", re.DOTALL)
_WORD: Final = re.compile(r"[A-Z]+")
_MOST_DEPTH: Final = 64  # arbitrary
_OBJECTS: Final = (
    "MATERIALIZED VIEW",
    "TABLE",
    "INDEX",
    "VIEW",
    "SEQUENCE",
    "SCHEMA",
    "FUNCTION",
    "PROCEDURE",
    "TRIGGER",
    "PACKAGE",
    "TYPE",
    "DATABASE",
)

_NAME: Final = re.compile(r'("(?:[^"]|"")+"|[^".( ]+)\.("(?:[^"]|"")+"|[^".( ]+)')
_NAMED: Final = ("table", "index", "view", "sequence", "type")

_NAMES: Final = (("schema_name", "schemaname"), ("object_name", "objname"))

Tree = dict[str, Any]  # Any: JSON


def write_sql(tree: Tree) -> str:
    """Write a tree as SQL.

    Raises:
        ValueError: a directive has no value, or a value is not what its letter needs.
    """
    if not isinstance(tree.get("fmt"), str):
        _fail(tree)
    return _expand(tree, 0).strip()


def name_of(tree: Tree) -> tuple[str | None, str | None]:
    """Schema and name of the object that a tree is about; None for what it does not say."""
    identity = tree.get("identity")
    if not isinstance(identity, dict):
        spelled = _NAME.fullmatch(str(tree.get("objidentity")))  # of DROP in openGauss
        is_named = spelled is not None and tree.get("objtype") in _NAMED
        return (_plain(spelled[1]), _plain(spelled[2])) if spelled and is_named else (None, None)
    schema, name = (_first(identity, keys) for keys in _NAMES)
    return schema, name


def command_tag(sql: str) -> str | None:
    """Give the command tag of a statement by its first words, such as ``CREATE TABLE``; None without any."""
    words: list[str] = _WORD.findall(" ".join(sql.split(maxsplit=12)[:12]).upper())
    if not words:
        return None
    if words[0] in {"CREATE", "ALTER", "DROP"}:
        text = " ".join(words)
        found = [(text.find(f" {kind}"), kind) for kind in _OBJECTS if f" {kind}" in text]
        if found:
            return f"{words[0]} {min(found)[1]}"
    return words[0]


def _first(values: Tree, keys: tuple[str, ...]) -> str | None:
    given = (values.get(key) for key in keys)
    return next((value for value in given if isinstance(value, str) and value), None)


def _plain(spelled: str) -> str:
    return spelled[1:-1].replace('""', '"') if spelled.startswith('"') else spelled


def _fail(_: object) -> str:
    raise ValueError("not a tree of a DDL statement")


def _expand(node: Tree, depth: int) -> str:
    if depth > _MOST_DEPTH:
        raise ValueError("a tree of a DDL statement that is too deep")
    if node.get("present") is False:
        return ""

    text, at = "", 0
    for found in _DIRECTIVE.finditer(node["fmt"]):
        text += node["fmt"][at : found.start()]
        at = found.end()
        value = "%" if found[1] is None else _value(node, found, depth)
        text = text.removesuffix(" ") if not value else text + value  # no two spaces around nothing
    return text + str(node["fmt"])[at:]


def _value(node: Tree, directive: re.Match[str], depth: int) -> str:
    name, separator, letter = directive.groups()
    if name not in node:
        raise ValueError("a directive without a value")
    given = node[name]
    parts = [_one(each, letter, depth) for each in (given if isinstance(given, list) else [given])]
    return (separator or "").join(part for part in parts if part)


def _one(given: Any, letter: str, depth: int) -> str:  # Any: JSON
    if isinstance(given, dict) and isinstance(given.get("fmt"), str):
        return _expand(given, depth + 1)
    if letter == "D" and isinstance(given, dict):
        return ".".join(
            name_as_needed(part) for part in (_first(given, keys) for keys in _NAMES) if part
        )
    if letter == "T" and isinstance(given, dict):
        schema = _first(given, _NAMES[0])
        name = _first(given, ("type_name", "typename")) or _fail(given)
        array = "[]" if given.get("typarray") is True else ""
        prefix = "" if schema in {None, "pg_catalog"} else f"{name_as_needed(schema or '')}."
        return (
            f"{prefix}{name_as_needed(name) if prefix else name}{given.get('typmod') or ''}{array}"
        )
    if letter == "R" and isinstance(given, dict):
        return name_as_needed(_first(given, ("rolename",)) or _fail(given))
    if letter == "O" and isinstance(given, dict):
        schema = _first(given, _NAMES[0])
        name = _first(given, ("objname", "object_name")) or _fail(given)
        return name if schema is None else f"OPERATOR({name_as_needed(schema)}.{name})"
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return _fail(given)
    text = str(given)
    if letter == "I":
        return name_as_needed(text)
    if letter == "L":
        return quoted_text(text)
    return text
