"""Run SQL over the tables of a target; a name never means two tables.

============================ ==========================================================
name                         is
============================ ==========================================================
``sales.orders``             the table of the source, as it is called there
```sales.orders.history```   its history; one name, in backticks, that no table can have
```sales.orders.quarantine`` its rows that failed a test of data; the same
```sales.orders.changelog`` its changes; the same
``sales.orders_history``     its history, unless the source has a table of that name
``orders``, ``orders_history`` the same, where no other table or history has that name
============================ ==========================================================

As for Spark, upper and lower case are one where that leaves no doubt. A view of a table is made when
a query names it, so that ten thousand tables cost no query anything: Spark says which name it
does not know, and where that stands.

SQL is not parsed here: another parser would have another grammar than the engine that runs the
query. Spark names the relation that it does not know.
"""

import logging
import re
from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from gaussdecode.errors import ConfigError
from gaussdecode.model.title import split_title
from gaussdecode.spark.log.landing import Point
from gaussdecode.spark.log.place import Given
from gaussdecode.spark.log.sql_text import quoted
from gaussdecode.spark.query import changelog, current, history, kept_beside, quarantine, titles
from gaussdecode.spark.sql.column_pruning import named_columns
from gaussdecode.spark.target.session import beside, check_classic
from gaussdecode.spark.target.state_file import CHANGELOG, HISTORY, QUARANTINE

BESIDE: Final = (HISTORY, QUARANTINE, CHANGELOG)
_SHOWN: Final = 10  # names in an error; arbitrary
_LOGGER: Final = "SQLQueryContextLogger"  # of pyspark
_UNKNOWN: Final = "TABLE_OR_VIEW_NOT_FOUND"
_COLUMN: Final = "UNRESOLVED_COLUMN"
_OURS: Final = "gaussdecode:"  # views of one query, beside those that somebody has registered
_PART: Final = re.compile(r"`((?:[^`]|``)*)`")

_CHANGES: Final = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(INSERT|UPDATE|DELETE|MERGE|CREATE|DROP|ALTER|TRUNCATE|REPLACE|OPTIMIZE|VACUUM|RESTORE|LOAD|CALL)\b",
    re.IGNORECASE | re.DOTALL,
)
"""A statement that is no query, comments before it or none."""

Parts = tuple[str, ...]


class Meaning(NamedTuple):
    """The table that a name refers to.

    Attributes:
        table: title of the table, as in the source.
        beside: product of the table: empty for its rows, or one of `BESIDE`.
    """

    table: str
    beside: str = ""

    @property
    def view(self) -> str:
        """Its unambiguous name."""
        return f"{self.table}.{self.beside}" if self.beside else self.table


class Names:
    """All names of the tables of a target; pure.

    Args:
        tables: table titles.
    """

    def __init__(self, tables: Iterable[str]) -> None:
        self.tables = [Meaning(table) for table in sorted(tables)]
        self._exact: dict[Parts, Meaning] = {}
        self._folded: dict[Parts, list[Meaning]] = {}
        for meaning in self.tables:
            self._exact[split_title(meaning.table)] = self._exact[meaning.view,] = meaning
        for meaning in self.tables:
            schema, name = split_title(meaning.table)
            self._folded.setdefault(_fold((name,)), []).append(meaning)
            for word in BESIDE:
                of_it, also = f"{name}_{word}", Meaning(meaning.table, word)
                self._exact.setdefault((schema, of_it), also)
                self._exact[also.view,] = also
                self._folded.setdefault(_fold((of_it,)), []).append(also)
        for parts, meaning in self._exact.items():
            self._folded.setdefault(_fold(parts), []).append(meaning)

    def find(self, parts: Sequence[str]) -> Meaning | None:
        """Find the table that a name refers to; None if there is none.

        Args:
            parts: the name, split: schema and table, or one part.

        Raises:
            ConfigError: the name may mean several tables.
        """
        exact = self._exact.get(tuple(parts))
        may = [exact] if exact else list(dict.fromkeys(self._folded.get(_fold(parts), [])))
        if len(may) > 1:
            names = " or ".join(sorted(quoted(meaning.view) for meaning in may))
            raise ConfigError(f"{'.'.join(parts)} has several meanings: write {names}")
        return may[0] if may else None

    def listed(self, wanted: Sequence[str]) -> str:
        """List table names for an error message, those similar to a wanted one first."""
        word = wanted[-1].casefold()
        near = sorted(self.tables, key=lambda meaning: word not in meaning.table.casefold())
        more = f" and {len(near) - _SHOWN} more" if len(near) > _SHOWN else ""
        return ", ".join(meaning.table for meaning in near[:_SHOWN]) + more


def _fold(parts: Sequence[str]) -> Parts:
    return tuple(part.casefold() for part in parts)


def parts_of(spelled: str) -> Parts:
    """Split a name from one of Spark's messages, which has each part in backticks."""
    return tuple(part.replace("``", "`") for part in _PART.findall(spelled))


def ask(
    spark: SparkSession,
    target: Given,
    text: str,
    *,
    at: Point | None = None,
    root: Given | None = None,
) -> DataFrame:
    """Run a query, with all tables at one point of the source's history.

    Args:
        spark: a running session; its settings apply, its own views are not visible.
        target: directory or URL.
        text: the query; table names as in the module's docstring.
        at: see `query.current`.
        root: see `query.current`.

    Raises:
        ConfigError: the query cannot be parsed, or names a table that does not exist.
    """
    if (change := _CHANGES.match(text)) is not None:
        raise ConfigError(
            f"{change[1].upper()} would change a table, which only spark apply does; a query reads: SELECT, WITH, "
            "SHOW TABLES, DESCRIBE, EXPLAIN"
        )
    check_classic(spark, "A query in SQL")
    spark = beside(spark)
    is_regex = spark.conf.get("spark.sql.parser.quotedRegexColumnNames") == "true"
    columns = None if is_regex else named_columns(text)
    prefix = "" if _is_list(text) else _OURS
    try:
        return _ask(text, _Tables(spark, target, at, root, prefix, columns))
    except ConfigError:
        if columns is None:
            raise
        # What is wrong is told best, with the names that were meant, where all columns are there.
        return _ask(text, _Tables(spark, target, at, root, prefix, None))


def _is_list(text: str) -> bool:
    return text.lstrip()[:4].upper() == "SHOW"


def _ask(text: str, tables: "_Tables") -> DataFrame:
    """Run a query over views of the tables that it names; raises as `ask`."""
    names, spark = Names(titles(tables.target)), tables.spark
    if _is_list(text):
        for meaning in names.tables:
            tables.make(meaning)
            for word in kept_beside(tables.target, meaning.table):
                tables.make(Meaning(meaning.table, word))
    logging.getLogger(_LOGGER).disabled = True  # Java's stacks; whoever asks gets the error
    choices = [text]
    try:
        while True:
            try:
                return spark.sql(choices[0])
            except ParseException as error:
                if len(choices) == 1:
                    raise refusal(error) from None
                del choices[0]
            except PySparkException as error:
                choices = _resolved(choices[0], error, names, tables)
    finally:
        tables.drop()  # another query may be about another point, or another target


def register(
    spark: SparkSession, target: Given, *, at: Point | None = None, root: Given | None = None
) -> list[str]:
    """Create a view of every table, all at one point, for your own queries.

    Args:
        spark: a running session.
        target: directory or URL.
        at: see `query.current`.
        root: see `query.current`.

    Returns:
        Their names, ``schema.name``; in SQL each is one name, in backticks.
    """
    tables = _Tables(spark, target, at, root, "")
    return [tables.make(meaning) for meaning in Names(titles(target)).tables]


class _Tables:
    """The views that were created.

    Args:
        spark: a running session.
        target: directory or URL.
        at: point of the log.
        root: root of the landing.
        prefix: prefix of the view names.
        columns: columns that may be needed; None for all.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: Given,
        at: Point | None,
        root: Given | None,
        prefix: str,
        columns: Container[str] | None = None,
    ) -> None:
        self._columns = columns
        self.spark, self.target, self._at, self._root = spark, target, at, root
        self._prefix = prefix
        self._made: dict[str, Meaning] = {}

    def make(self, meaning: Meaning) -> str:
        """Create a view if it does not exist; return its name, which no other view has."""
        view = self._prefix + meaning.view
        while self._made.get(view.casefold(), meaning) != meaning:
            view += "'"
        if view.casefold() not in self._made:
            self._made[view.casefold()] = meaning
            self._frame(meaning).createOrReplaceTempView(quoted(view))
        return view

    def drop(self) -> None:
        """Drop the views; queries that already use them go on."""
        for view in self._made:
            self.spark.sql(f"DROP VIEW IF EXISTS {quoted(view)}")
        self._made.clear()

    def _frame(self, meaning: Meaning) -> DataFrame:
        if meaning.beside == HISTORY:
            return history(self.spark, self.target, meaning.table, columns=self._columns)
        if meaning.beside == QUARANTINE:
            return quarantine(self.spark, self.target, meaning.table)
        if meaning.beside == CHANGELOG:
            return changelog(self.spark, self.target, meaning.table)
        return current(
            self.spark,
            self.target,
            meaning.table,
            at=self._at,
            root=self._root,
            columns=self._columns,
        )


def _resolved(text: str, error: PySparkException, names: Names, tables: _Tables) -> list[str]:
    """Replace a table name that Spark does not know by the name of its view.

    Returns:
        The query with the table's own name as an alias, by which its columns may go; and without
        it, for where none may stand or there is one.

    Raises:
        ConfigError: Spark's error has another cause.
    """
    told, places = error.getMessageParameters() or {}, error.getQueryContext()
    condition = error.getCondition() or ""
    if not places or not condition.startswith((_UNKNOWN, _COLUMN)):
        raise refusal(error) from None
    before, after = text[: places[0].startIndex()], text[places[0].stopIndex() + 1 :]
    if condition.startswith(_COLUMN):
        _, *rest = parts = parts_of(told["objectName"])
        if len(parts) < 3 or names.find(parts[:2]) is None:
            raise refusal(error) from None
        return [before + ".".join(map(quoted, rest)) + after]
    parts = parts_of(told["relationName"])
    meaning = names.find(parts)
    if meaning is None:
        raise ConfigError(
            f"the query names {'.'.join(parts)}, and there is no such table; there are: "
            f"{names.listed(parts)}"
        ) from None
    view = quoted(tables.make(meaning))
    return [f"{before}{view} AS {quoted(parts[-1])}{after}", f"{before}{view}{after}"]


def refusal(error: PySparkException) -> ConfigError:
    """Turn Spark's error into ours, without its plans and stack traces."""
    return ConfigError(f"the query cannot be answered: {str(error).strip().splitlines()[0]}")
