"""SQL over the tables of a target, by names none of which can mean two tables.

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
from gaussdecode.spark.query import (
    changelog,
    current,
    history,
    kept_beside,
    quarantine,
    titles,
)
from gaussdecode.spark.sql.column_pruning import mentioned
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
    """What a name means.

    Attributes:
        table: its title, as in the source.
        beside: what of it is meant: nothing for its rows, or one of `BESIDE`.
    """

    table: str
    beside: str = ""

    @property
    def view(self) -> str:
        """Its sure name."""
        return f"{self.table}.{self.beside}" if self.beside else self.table


class Names:
    """All names of the tables of a target; pure.

    Args:
        tables: titles.
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
        """Tell what a name means; None where nothing has it.

        Args:
            parts: of the name: schema and table, or one.

        Raises:
            ConfigError: it may mean several.
        """
        exact = self._exact.get(tuple(parts))
        may = [exact] if exact else list(dict.fromkeys(self._folded.get(_fold(parts), [])))
        if len(may) > 1:
            names = " or ".join(sorted(quoted(meaning.view) for meaning in may))
            raise ConfigError(f"{'.'.join(parts)} has several meanings: write {names}")
        return may[0] if may else None

    def listed(self, wanted: Sequence[str]) -> str:
        """Names of tables for an error, those that look like a wanted one first."""
        word = wanted[-1].casefold()
        near = sorted(self.tables, key=lambda meaning: word not in meaning.table.casefold())
        more = f" and {len(near) - _SHOWN} more" if len(near) > _SHOWN else ""
        return ", ".join(meaning.table for meaning in near[:_SHOWN]) + more


def _fold(parts: Sequence[str]) -> Parts:
    return tuple(part.casefold() for part in parts)


def parts_of(spelled: str) -> Parts:
    """Take a name of Spark's messages apart, each part of which is in backticks."""
    return tuple(part.replace("``", "`") for part in _PART.findall(spelled))


def ask(
    spark: SparkSession,
    target: Given,
    text: str,
    *,
    at: Point | None = None,
    root: Given | None = None,
) -> DataFrame:
    """Ask in SQL, all tables at one point of the source's history.

    Args:
        spark: running; its settings hold, its own views are not seen.
        target: directory or URL.
        text: the query; the names of tables as told above.
        at: see `query.current`.
        root: see `query.current`.

    Raises:
        ConfigError: the query cannot be read, or names what is not there.
    """
    if (change := _CHANGES.match(text)) is not None:
        raise ConfigError(
            f"{change[1].upper()} would change a table, which only spark apply does; a query reads: SELECT, WITH, "
            "SHOW TABLES, DESCRIBE, EXPLAIN"
        )
    check_classic(spark, "A query in SQL")
    spark = beside(spark)
    is_regex = spark.conf.get("spark.sql.parser.quotedRegexColumnNames") == "true"
    columns = None if is_regex else mentioned(text)
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
    """Ask, with views of the tables that are named; raises as `ask`."""
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
    spark: SparkSession,
    target: Given,
    *,
    at: Point | None = None,
    root: Given | None = None,
) -> list[str]:
    """Make a view of every table, all of them at one point, for queries of your own.

    Args:
        spark: running.
        target: directory or URL.
        at: see `query.current`.
        root: see `query.current`.

    Returns:
        Their names, ``schema.name``; in SQL each is one name, in backticks.
    """
    tables = _Tables(spark, target, at, root, "")
    return [tables.make(meaning) for meaning in Names(titles(target)).tables]


class _Tables:
    """The views that were made.

    Args:
        spark: running.
        target: directory or URL.
        at: a point.
        root: of the landing.
        prefix: of their names.
        columns: that may be needed; None for all.
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
        """Make a view unless it is there; gives its name, which is another's in no case."""
        view = self._prefix + meaning.view
        while self._made.get(view.casefold(), meaning) != meaning:
            view += "'"
        if view.casefold() not in self._made:
            self._made[view.casefold()] = meaning
            self._frame(meaning).createOrReplaceTempView(quoted(view))
        return view

    def drop(self) -> None:
        """Take the views away; what was asked of them goes on."""
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
    """Put a view's name in the place of a table's that Spark does not know.

    Returns:
        The query with the table's own name as an alias, by which its columns may go; and without
        it, for where none may stand or there is one.

    Raises:
        ConfigError: that is not what is wrong.
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
    """Say what Spark says, without its plans and stacks."""
    return ConfigError(f"the query cannot be answered: {str(error).strip().splitlines()[0]}")
