"""Masks of the tables of an apply: the target keeps them, and they go along with each file."""

import contextlib
import dataclasses
from typing import Any

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.masks import (
    check_columns,
    check_names,
    columns_of,
    from_record,
    to_record,
)
from gaussdecode.spark.merge.options import Options
from gaussdecode.spark.merge.plan import TablePlan
from gaussdecode.spark.target.store import Target


class Masking:
    """The masks that a target keeps, and those that are wanted."""

    def __init__(self, landing: Landing, store: Target, options: Options) -> None:
        self._landing = landing
        self._store = store
        self._wanted = options.masks or {}
        self._key = options.mask_key

    def check(self) -> None:
        """Keep the wanted masks of new tables.

        Raises:
            ConfigError: the masks differ from the target's, are not possible, or need a key.
        """
        for title in self._wanted:
            self._kept(self._directory(title))

    def mask(self, table: str, planned: TablePlan) -> None:
        """Mask the files of a table's plan by the target's rules.

        Raises:
            ConfigError: the masks differ from the target's, are not possible, or need a key.
        """
        names = list(dict.fromkeys(file.table for file in planned.landed))
        is_new = self._store.newest(table) is None
        kept = self._kept(table)
        if is_new and kept is None and names:  # a renamed table has the directory of its name
            masked = (self._store.masks(name) for name in reversed(names))
            kept = next((of for of in masked if of is not None), None)
            if kept is not None:
                self._store.keep_masks(table, kept)
        for name in names:  # of a renamed table; its rows would show what the name does not
            other = self._store.masks(name)
            if other is not None and other["masks"] != (kept or {"masks": {}})["masks"]:
                raise ConfigError(
                    f"{table} is called {name} now, which has other masks, and keeps those that it was made "
                    "with: give --on-ddl rename-table=ignore, or begin a new target"
                )
        masks = from_record(table, kept, self._key, self._store.landing_id)
        if not masks:
            return
        landed = {
            i: self._landing.schema_record(name, i)
            for name in dict.fromkeys((table, *names))
            for i in self._landing.schema_ids(name)
        }
        records = {**self._store.schema_records(table), **landed}
        for part in (planned, *planned.parts.values()):
            for files in (part.passed, *(era.files for era in part.eras)):
                for at, change in enumerate(files):
                    record = records[change.file.schema_id]
                    found = columns_of(masks, change.file.schema_id, records)
                    check_columns(table, found, masks, record, is_new=is_new)
                    rules = tuple((column, masks[name]) for column, name in found.items())
                    files[at] = dataclasses.replace(change, masks=rules)

    def _directory(self, title: str) -> str:
        """Directory of a table; a table whose rows were loaded may not have landed yet.

        Raises:
            ConfigError: there is no such table.
        """
        try:
            return self._landing.find_table(title)
        except ConfigError:
            with contextlib.suppress(ConfigError):
                return self._store.find_table(title)
            raise

    def _kept(self, table: str) -> dict[str, Any] | None:  # Any: JSON
        """The masks that the target keeps for a table; the wanted ones for a new table.

        Raises:
            ConfigError: other masks are wanted, or they are not possible.
        """
        kept = self._store.masks(table)
        asked = {self._directory(title): of for title, of in self._wanted.items()}
        wanted = asked.get(table)
        if wanted is None:
            return kept
        record = to_record(wanted, self._key, self._store.landing_id)
        if kept is None and self._store.newest(table) is None:
            records = [
                self._landing.schema_record(table, i) for i in self._landing.schema_ids(table)
            ]
            check_names(table, wanted, {c["name"] for of in records for c in of["columns"]})
            self._store.keep_masks(table, record)
            return record
        if kept is None or kept["masks"] != record["masks"]:
            raise ConfigError(
                f"{table} was made with {'other masks' if kept else 'no masks'}, which it keeps: "
                "begin a new target, or leave out --mask for it"
            )
        return kept
