"""Let an operator declare how columns of two schema versions match, if the schemas do not tell; see `decided.Stop`.

Given two versions of a table and, for new column names, the earlier names; gives every column of both
versions a number. The target keeps the numbers and uses them from then on. A declaration that
contradicts a known number is refused.
"""

import dataclasses
import itertools
from collections.abc import Mapping

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.schema import TableSchema, why_unknown
from gaussdecode.spark.target.store import Target

Numbers = dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """The schema change that a table is stopped at.

    Attributes:
        table: directory of the table.
        n: entry before which the table is stopped; 0 if a reader of earlier states asks.
        old: schema version of its rows.
        new: schema version of the changes after them.
        why: reason why the columns cannot be matched.
    """

    table: str
    n: int
    old: TableSchema
    new: TableSchema
    why: str


def question_of(
    landing: Landing, store: Target, name: str, versions: tuple[str, str] | None = None
) -> Question:
    """Find the schema change of a table that needs a declaration.

    Args:
        landing: landing that the target is made from.
        store: the target.
        name: ``schema.name`` of the table, or its directory.
        versions: two schema_ids, if the table is not stopped.

    Raises:
        ConfigError: no declaration is needed, or the target is made from another landing.
    """
    store.check_landing(landing)
    database = store.database()
    renamed = {} if database is None else database.renamed
    table = store.find_table(name) if name in renamed.values() else landing.find_table(name)
    stop = None if database is None else database.stopped.get(table)
    n = 0
    if versions is None:
        if stop is None:
            raise ConfigError(f"{name} is not stopped in {store.root}: no declaration is needed")
        if stop.get("ddl"):
            raise ConfigError(f"{name}: {stop['why']}")
        if not stop["new"] or stop.get("is_suspect"):
            raise ConfigError(f"{name}: {stop['why']}; only a snapshot of it helps")
        if not stop["old"]:
            raise ConfigError(f"{name}: {stop['why']}; declaring columns does not help")
        versions, n = (stop["old"], stop["new"]), int(stop["n"]) + 1
    decided, kept = store.decided(table), store.schema_records(table)
    old, new = (
        TableSchema.from_record(
            i, kept.get(i) or landing.find_schema(table, i), decided.numbers.get(i)
        )
        for i in versions
    )
    why = why_unknown(old, new) or (None if stop is None else stop["why"])
    if why is None:
        raise ConfigError(f"{name}: the columns of these versions are known")
    return Question(table, n, old, new, why)


def answer(question: Question, was: Mapping[str, str]) -> dict[str, Numbers]:
    """Number the columns of both versions.

    Args:
        question: result of `question_of`.
        was: earlier name of each renamed column, by new name; empty for a new column. A column that
            is not listed kept its name, if the old version had it.

    Returns:
        Numbers by schema_id and name in the files.

    Raises:
        ConfigError: a name does not exist or is given twice, or the server's numbers say otherwise.
    """
    old = {column.true_name: column for column in question.old.columns}
    new = {column.true_name: column for column in question.new.columns}
    pairs = {name: was.get(name, name if name in old else "") for name in new}
    _check_names(question.new.title, was, set(old), pairs)
    known = [c.number for c in (*old.values(), *new.values()) if c.number is not None]
    fresh = itertools.count(min([0, *known]) - 1, -1)
    before: Numbers = {}
    after: Numbers = {}
    for name, column in new.items():
        partner = old.get(pairs[name])
        numbers = {c.number for c in (column, partner) if c is not None and c.number is not None}
        if len(numbers) > 1:
            raise ConfigError(
                f"{question.new.title}: {name!r} was not {pairs[name]!r}: both are known, and differ"
            )
        after[name] = numbers.pop() if numbers else next(fresh)
        if partner is not None:
            before[partner.true_name] = after[name]
    for name, column in old.items():
        if name not in before:
            before[name] = next(fresh) if column.number is None else column.number
    shared = {number for name, number in before.items() if name not in pairs.values()}
    if shared & set(after.values()) or len(set(after.values())) < len(after):
        raise ConfigError(
            f"{question.new.title}: --was calls a column new or renamed, but the schemas show that it existed; leave it out of --was"
        )
    return {
        question.old.schema_id: {old[name].name: number for name, number in before.items()},
        question.new.schema_id: {new[name].name: number for name, number in after.items()},
    }


def _check_names(
    title: str, was: Mapping[str, str], old: set[str], pairs: Mapping[str, str]
) -> None:
    for given, known in ((set(was), set(pairs)), ({name for name in was.values() if name}, old)):
        if not given <= known:
            raise ConfigError(
                f"{title} has no column {min(given - known)!r} there; it has: "
                f"{', '.join(sorted(known))}"
            )
    taken = [name for name in pairs.values() if name]
    twice = sorted({name for name in taken if taken.count(name) > 1})
    if twice:
        raise ConfigError(
            f"{title}: two columns cannot both have been {twice[0]!r}; give --was for the other one too, or NAME= for a new column"
        )


def decide(question: Question, store: Target, was: Mapping[str, str]) -> None:
    """Save a declaration in the target.

    Raises:
        ConfigError: see `answer`; or one of the versions already has other numbers.
    """
    numbers = answer(question, was)
    held = store.decided(question.table).numbers
    for schema_id, found in numbers.items():
        if schema_id in held and dict(held[schema_id]) != found:
            raise ConfigError(
                f"{question.new.title}: version {schema_id} appeared more than once, and was declared differently before; only a snapshot of the table helps"
            )
    change = (question.n, question.old.schema_id, question.new.schema_id)
    if change in store.decided(question.table).changes:
        raise ConfigError(f"{question.new.title}: this was declared before")
    store.decide(question.table, change, numbers)
