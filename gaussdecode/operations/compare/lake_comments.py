"""Copy the source's comments to a target's tables, and report: ``gaussdecode spark comments``."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gaussdecode.errors import ConfigError
from gaussdecode.model.words import counted
from gaussdecode.operations.compare.source_comments import comments_of_config, comments_of_dsn
from gaussdecode.settings.sections import Config
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.maintain.set_comments import CommentRun, Outcome
from gaussdecode.spark.target.comments import Described
from gaussdecode.spark.target.store import Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of the command.

    Attributes:
        root: root of the landing.
        target: directory or URL.
        tables: ``schema.name`` of wanted tables; None for all of the target.
        dsn: connection string of the source, PostgreSQL; None with a configuration.
        config: configuration of the daemon; None with a connection string.
        is_insecure_allowed: allow a connection without verify-full.
        max_length: maximum length of a comment in characters; None for no limit.
        wait: longest wait for another writer to end, in seconds.
        is_dry: change nothing, only report.
    """

    root: Place
    target: Place
    tables: Collection[str] | None = None
    dsn: str | None = None
    config: Config | None = None
    is_insecure_allowed: bool = False
    max_length: int | None = None
    wait: float = 60.0
    is_dry: bool = False


class Asked(NamedTuple):
    """The source's answer.

    Attributes:
        landing: landing that the target is made from.
        store: the target.
        tables: table titles, by directory.
        described: comments by title, of tables that the source has.
    """

    landing: Landing
    store: Target
    tables: Mapping[str, str]
    described: Mapping[str, Described]


def ask(request: Request) -> Asked:
    """Ask the source for comments, before Spark is started.

    Raises:
        ConfigError: the target belongs to another landing or lacks a table, or the connection
            string cannot be used.
        SourceError: the server failed, or cannot be reached.
    """
    store = Target(request.target)
    landing = Landing(request.root)
    Target.create(store.root, landing)  # refuses another landing
    database = store.database()
    if database is None:
        raise ConfigError(f"{store.root} has no version yet: apply to it first")
    names = store.living(database)
    if request.tables is not None:
        names = sorted(database.tables.keys() & set(map(store.find_table, request.tables)))
    tables = {name: store.schema_at(database, name).title for name in names}
    if request.config is not None:
        described = comments_of_config(request.config, tables.values())
    else:
        described = comments_of_dsn(
            request.dsn or "", tables.values(), is_insecure_allowed=request.is_insecure_allowed
        )
    if request.max_length is not None:
        letters = request.max_length
        described = {title: of.shortened(letters) for title, of in described.items()}
    return Asked(landing, store, tables, described)


def update(request: Request, asked: Asked) -> list[Outcome]:
    """Set the comments that differ; see `spark.maintain.set_comments`."""
    return CommentRun(asked.landing, asked.store, request.wait, request.is_dry).run(
        asked.tables, asked.described
    )


def record(found: Sequence[Outcome], *, is_dry: bool) -> dict[str, Any]:  # Any: JSON
    """The result as JSON."""
    tables = [dataclasses.asdict(of) for of in found]
    return {"is_dry": is_dry, "changed": sum(of.is_changed for of in found), "tables": tables}


def report_lines(found: Sequence[Outcome], target: Place, *, is_dry: bool) -> Iterator[str]:
    """The report for people; names only, no comments."""
    for of in found:
        title = of.table if of.of == "current" else f"{of.table}, {of.of}"
        if of.left is not None:
            yield f"{title}: {'not changed' if of.is_failed else 'left as it is'}: {of.left}"
        elif of.is_changed:
            yield f"{title}: {'; '.join(_changes(of))}"
    changed = sum(of.is_changed for of in found)
    equal = sum(not of.is_changed and of.left is None for of in found)
    word = "would change" if is_dry else "changed"
    yield f"{target}: comments of {counted(changed, 'table')} {word}, {equal} were as they should be"


def _changes(of: Outcome) -> Iterator[str]:
    if of.is_table_changed:
        yield "the table"
    kept = [name for name in of.columns if name not in of.removed]
    if kept:
        yield f"columns {', '.join(kept)}"
    if of.removed:
        yield f"no comment any more: {', '.join(of.removed)}"
