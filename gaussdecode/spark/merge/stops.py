"""Tables that stop alone, while the others go on."""

import contextlib
import dataclasses
from collections.abc import Iterable

from gaussdecode.errors import ConfigError
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.on_ddl import policy_of
from gaussdecode.spark.merge.plan import Applied, Plan
from gaussdecode.spark.merge.routes import Home, by_name
from gaussdecode.spark.target.decided import Stop
from gaussdecode.spark.target.state_file import TableVersion


class Stops:
    """The stopped tables of one apply, by directory.

    Attributes:
        before: those of the database's version that the apply starts from.
        now: those that `tell` was given.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        held = {} if context.before is None else context.before.stopped
        self.before = {table: Stop(**stop) for table, stop in held.items()}
        self.now: dict[str, Stop] = {}
        self._made: dict[str, TableSchema] = {}

    def unmoved(self, to: int) -> set[str]:
        """Stopped tables whose changes need not be read again: they would stop again.

        A snapshot, a change with another schema, or an operator's declaration ends a stop.
        """
        context, before = self._context, self._context.before
        if before is None or not before.is_complete:
            return set()
        # What tables with another name miss is not below the name of their directory: it is read again.
        stops = {
            table: stop
            for table, stop in self.before.items()
            if not stop.held and not self._is_renamed(table)
        }
        policy, decided = policy_of(context.options.on_ddl), context.store.decided
        first, accepts = context.landing.first_n, context.options.accept_suspects
        found = {
            table: frozenset(stop.seen or ())
            for table, stop in stops.items()
            if not stop.may_move(decided(table), first, policy, accept_suspects=accepts)
        }
        return self._still_stopped(found, max(before.n + 1, first), to) if found else set()

    def _still_stopped(self, stops: dict[str, frozenset[str]], first: int, to: int) -> set[str]:
        """Stopped tables of which entries bring no snapshot, and no schema but those that were seen."""
        landing = self._context.landing
        for entry in landing.entries(first, min(to + 1, landing.last_n)):
            moved = {of.table for of in entry.files if of.schema_id not in stops.get(of.table, ())}
            if entry.kind is EntryKind.SNAPSHOT:
                moved |= {*entry.extra.get("snapshot", {}).get("tables", {})}
                moved |= {of.table for of in entry.files}
            for table in moved & stops.keys():
                del stops[table]
        return set(stops)

    def _is_renamed(self, table: str) -> bool:
        version = self._context.store.newest(table)
        if version is None:  # rows may be below another name than that of its directory
            return True
        schema = self._context.store.schema(table, version.schema_id)
        return self._home(table, version, schema).name != table

    def _applied(self) -> dict[str, Applied]:
        """How far each table is applied; its newest version may be ahead of the database's."""
        found: dict[str, Applied] = {}
        store = self._context.store
        for table in store.tables():
            version = store.newest(table)
            if version is None:
                continue
            n, before = version.n, self._context.before
            is_named = before is not None and before.tables.get(table) == version.v
            if before is not None and is_named and table not in self.before:
                n = max(n, before.n)
            ignored = {
                source: of.ignore_through
                for source, of in version.parts.items()
                if of.ignore_through is not None
            }
            schema = store.schema(table, version.schema_id)
            found[table] = Applied(
                n,
                schema,
                version.ignore_through,
                part=version.part if n == version.n else 0,
                ignored=ignored,
                home=self._home(table, version, schema),
            )
        return found

    def _home(self, table: str, version: TableVersion, schema: TableSchema) -> Home:
        """The table of a directory in the database's version: the entries after that are read again."""
        before, store = self._context.before, self._context.store
        if before is None or table not in before.tables:
            return dataclasses.replace(Home.of(schema, version.n), is_ahead=True)
        ahead = Home.of(schema, version.n).name
        if before.tables[table] != version.v:
            version = store.version(table, before.tables[table])
            schema = store.schema(table, version.schema_id)
        stop = self.before.get(table)
        home = Home.of(schema, max(version.n, before.n if stop is None else stop.n))
        has_lost = home.name != table and table not in before.renamed
        return dataclasses.replace(home, ahead=ahead, has_lost=has_lost)

    def directories(self, names: Iterable[str]) -> set[str]:
        """Directories of the tables that have these directories in the landing now."""
        homes = {table: of.home for table, of in self._applied().items() if of.home is not None}
        found, landing = by_name(homes), self._context.landing
        chosen = set()
        for name in names:
            chosen.add(found.get(name, name))
            if name not in found:  # its rename may not be applied yet
                ids = landing.schema_ids(name)
                oids = {int(landing.schema_record(name, of)["oid"]) for of in ids} - {0}
                chosen |= {table for table, home in homes.items() if home.oid in oids}
        return chosen

    def applied_or_stopped(self) -> dict[str, Applied]:
        """How far each table is applied or stopped, with an operator's declarations about columns."""
        applied = self._applied()
        for table in (*applied, *sorted(self.before.keys() - applied.keys())):
            state, stop = applied.get(table, Applied()), self.before.get(table)
            applied[table] = dataclasses.replace(
                state,
                n=state.n if stop is None else max(state.n, stop.n),
                decided=self._context.store.decided(table),
                is_stopped=stop is not None,
                held=() if stop is None else tuple(stop.held),
                home=state.home or _home_of(stop),
            )
        return applied

    def after(self, plan: Plan) -> dict[str, Stop]:
        """Tables that are stopped after a plan; one without new changes stays stopped."""
        found = {table: stop for table, stop in self.before.items() if table not in plan.tables}
        if self._context.options.accept_suspects:
            found = {table: stop for table, stop in found.items() if not stop.is_suspect}
        if self._context.options.tables is None:  # then all that may go on were read again
            policy = policy_of(self._context.options.on_ddl)
            found = {t: of for t, of in found.items() if not of.is_allowed(policy)}
        for of in plan.tables.values():
            self._made |= of.made
        planned = {table: planned.stop for table, planned in plan.tables.items()}
        found |= {table: stop for table, stop in planned.items() if stop is not None}
        return {table: self._holding(table, stop, plan) for table, stop in found.items()}

    def _holding(self, table: str, stop: Stop, plan: Plan) -> Stop:
        """The stop, with the names that the table got after it; the newest one comes last."""
        before = self.before.get(table)
        names = [] if before is None else [*before.held]
        names += [name for n, name in plan.moves.get(table, ()) if n > stop.n]
        held = tuple(dict.fromkeys(reversed(names)))[::-1]
        return dataclasses.replace(stop, held=held)

    def tell(self, stopped: dict[str, Stop]) -> None:
        """Put stopped tables into the summary."""
        self.now, summary = stopped, self._context.summary
        titles = {self._title(table, stop): stop for table, stop in stopped.items()}
        summary.stopped = {title: of.why for title, of in titles.items() if not of.is_gone}
        summary.gone = tuple(title for title, of in titles.items() if of.is_gone)
        summary.suspect_tables = tuple(sorted(t for t, of in titles.items() if of.is_suspect))
        summary.ddl_tables = tuple(sorted(t for t, of in titles.items() if of.ddl))

    def _title(self, table: str, stop: Stop) -> str:
        schema_id = stop.new or stop.old
        if not schema_id:
            return table
        if not stop.new:  # maybe a version after a DDL command, which no file has
            with contextlib.suppress(ConfigError):
                return self._context.store.schema(table, schema_id).title
            if schema_id in self._made:
                return self._made[schema_id].title
        record = self._context.landing.find_schema(table, schema_id, stop.held)
        return TableSchema.from_record(schema_id, record).title


def _home_of(stop: Stop | None) -> Home | None:
    """The table that stopped before its first version."""
    if stop is None or stop.home is None:
        return None
    oid, name = stop.home
    return Home(int(oid), str(name), stop.n)
