"""Parse a file of data tests: conditions that rows of a table must fulfil, and what happens if they fail.

Given the text of a YAML file; promises tests by table, or one error that names every mistake with its
line. Pure; knows neither rows nor Spark, see `data_check` for those.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from gaussdecode.errors import ConfigError
from gaussdecode.settings.yamlfile import Entry, Problem, Section, YamlError, parse
from gaussdecode.spark.log.schema import TableSchema

_NAME: Final = "name"
_COLUMN: Final = "column"
_ON_FAILURE: Final = "on-failure"


class OnFailure(enum.StrEnum):
    """The action for rows that fail."""

    WARN = "warn"
    QUARANTINE = "quarantine"
    STOP = "stop"


class Kind(enum.StrEnum):
    """The kind of condition."""

    NOT_NULL = "not-null"
    UNIQUE = "unique"
    ACCEPTED = "accepted-values"
    EXPRESSION = "expression"


@dataclasses.dataclass(frozen=True, slots=True)
class DataTest:
    """One test of a table.

    Attributes:
        name: name of the test, unique in the table.
        kind: kind of condition.
        columns: column names in the target; several if they must be unique together.
        values: texts of accepted values.
        expression: expression of Spark's SQL; a row fails if it is false.
        on_failure: action for rows that fail.
    """

    name: str
    kind: Kind
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    expression: str = ""
    on_failure: OnFailure = OnFailure.WARN


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """The result of a test on the rows that it looked at.

    Attributes:
        table: ``schema.name``.
        test: name of the test.
        rows: number of rows that fail.
        on_failure: action for rows that fail.
    """

    table: str
    test: str
    rows: int
    on_failure: OnFailure


Tests = Mapping[str, Sequence[DataTest]]
"""Tests by ``schema.name``."""


def load_tests(path: Path) -> Tests:
    """Read a file of tests.

    Raises:
        ConfigError: the file cannot be read or has mistakes; the text names every line.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"--tests {path} cannot be read: {why}") from None
    problems: list[Problem] = []
    try:
        found = _tables(parse(text), problems)
    except YamlError as error:
        problems = error.problems
    if problems:
        told = "; ".join(f"line {line}: {what}" if line else what for line, what in problems)
        raise ConfigError(f"--tests {path}: {told}")
    return found


def _tables(top: Section, problems: list[Problem]) -> dict[str, list[DataTest]]:
    _refuse_unknown(top, ("tables", _ON_FAILURE), problems)
    usual = _on_failure(top.get(_ON_FAILURE), OnFailure.WARN, problems)
    entry = top.get("tables", Entry(0, None))
    if not isinstance(entry.value, Mapping) or not entry.value:
        problems.append((entry.line, "tables: give schema.table: and a list of tests for each"))
        return {}
    return {
        title: list(_tests(title, tests, usual, problems)) for title, tests in entry.value.items()
    }


def _tests(
    title: str, entry: Entry, usual: OnFailure, problems: list[Problem]
) -> Iterator[DataTest]:
    items = entry.value if isinstance(entry.value, list) else []
    if not items or not all(isinstance(item, Mapping) for item in items):
        problems.append((entry.line, f"{title}: give a list, each item of which is a test"))
        return
    taken: set[str] = set()
    for item in items:
        for test in _test(item, usual, problems):
            if test.name in taken:
                line = min(entry.line for entry in item.values())
                problems.append((line, f"{title}: two tests are {test.name!r}; give each a name"))
            taken.add(test.name)
            yield test


def _test(item: Section, usual: OnFailure, problems: list[Problem]) -> Iterator[DataTest]:
    """The tests in one item of a list; not-null gives one for each column."""
    kinds = [kind for kind in Kind if kind in item]
    line = min((entry.line for entry in item.values()), default=0)
    if len(kinds) != 1:
        problems.append((line, f"a test has one of {', '.join(Kind)}"))
        return
    kind = kinds[0]
    more = (_COLUMN,) if kind is Kind.ACCEPTED else ()
    _refuse_unknown(item, (kind, _NAME, _ON_FAILURE, *more), problems)
    what = _on_failure(item.get(_ON_FAILURE), usual, problems)
    said = _texts(item[kind])
    name = _text(item.get(_NAME), problems)
    if not said or (kind is Kind.EXPRESSION and len(said) > 1):
        problems.append((item[kind].line, f"{kind}: {_WANTED[kind]}"))
        return
    if kind is Kind.NOT_NULL:
        for column in said:
            own = f"{name}_{column}" if name and len(said) > 1 else name
            yield DataTest(own or f"{kind} {column}", kind, (column,), on_failure=what)
    elif kind is Kind.UNIQUE:
        yield DataTest(name or f"{kind} {', '.join(said)}", kind, tuple(said), on_failure=what)
    elif kind is Kind.EXPRESSION:
        yield DataTest(name or said[0], kind, expression=said[0], on_failure=what)
    else:
        column = _text(item.get(_COLUMN), problems)
        if not column:
            problems.append((line, f"{kind}: say of which column: {_COLUMN}: status"))
            return
        values = tuple(said)
        yield DataTest(name or f"{kind} {column}", kind, (column,), values, on_failure=what)


_WANTED: Final = {
    Kind.NOT_NULL: "give a column, or a list of columns",
    Kind.UNIQUE: "give a column, or a list of columns that are unique together",
    Kind.ACCEPTED: "give a list of values",
    Kind.EXPRESSION: "give one expression of SQL, in quotes",
}


def _on_failure(entry: Entry | None, usual: OnFailure, problems: list[Problem]) -> OnFailure:
    if entry is None:
        return usual
    try:
        return OnFailure(entry.value)  # type: ignore[arg-type]  # what is none is refused
    except ValueError:
        problems.append((entry.line, f"{_ON_FAILURE}: one of {', '.join(OnFailure)}"))
        return usual


def _refuse_unknown(found: Section, known: Iterable[str], problems: list[Problem]) -> None:
    known = list(known)
    for key, entry in found.items():
        if key not in known:
            problems.append((entry.line, f"{key}: not known here; known are {', '.join(known)}"))


def _text(entry: Entry | None, problems: list[Problem]) -> str:
    if entry is None:
        return ""
    if not isinstance(entry.value, str) or not entry.value:
        problems.append((entry.line, "give a text"))
        return ""
    return entry.value


def _texts(entry: Entry) -> list[str]:
    """Scalars as texts; empty if the entry holds anything else."""
    items = entry.value if isinstance(entry.value, list) else [entry.value]
    if not all(isinstance(item, str | int | float) for item in items):
        return []
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in items]


def check_columns(schema: TableSchema, tests: Sequence[DataTest]) -> None:
    """Check that tests can run on a version of a table.

    Raises:
        ConfigError: the table lacks a column, or a value does not have the column's type.
    """
    types = {field.name: field.type for field in schema.arrow()}
    for test in tests:
        for column in test.columns:
            if column not in types:
                raise ConfigError(
                    f"test {test.name!r} of {schema.title}: there is no column {column!r}; there are: "
                    f"{', '.join(types)}"
                )
        for number, value in enumerate(test.values, 1):
            if not _fits(value, types[test.columns[0]]):
                raise ConfigError(
                    f"test {test.name!r} of {schema.title}: value {number} is no "
                    f"{types[test.columns[0]]}; write it as that type, in quotes"
                )


def _fits(value: str, of: pa.DataType) -> bool:
    try:
        pa.scalar(value).cast(of)
    except (pa.ArrowException, ValueError):
        return False
    return True


def by_directory(tests: Tests, find: Callable[[str], str]) -> dict[str, Sequence[DataTest]]:
    """Tests by the directory of their table; `find` raises for an unknown title."""
    return {find(title): found for title, found in tests.items()}
