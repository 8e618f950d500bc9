"""Keep an accumulator for each table version that the stream describes; quiet tables are packed.

The assembler asks for accumulators by relation version. Beyond a number of tables, those that were quiet
for longest are packed to a few bytes each, until rows of them come again.
"""

import json
import zlib
from collections.abc import Callable, Iterator

from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect.tables import Landed, Packed, Tables
from gaussdecode.model.landing import Position
from gaussdecode.model.relation import Relation, ReplicaIdentity

LandsFrom = Callable[[str], int]
"""Position from which rows of a directory are to land; 0 for all."""


class TableRegistry:
    """Of one session.

    Args:
        tables: directories and schemas of relation versions.
        lands_from: see `LandsFrom`.
        failed: makes the error of a table out of one that its description caused.
        errors: the errors that a description may cause.
    """

    def __init__(
        self,
        tables: Tables,
        lands_from: LandsFrom,
        failed: Callable[[Relation, Exception], Exception],
        errors: tuple[type[Exception], ...],
    ) -> None:
        self._tables = tables
        self._lands_from = lands_from
        self._failed = failed
        self._errors = errors
        self._accumulators: dict[Landed, Accumulator[Landed]] = {}  # in order of use
        self._by_directory: dict[str, list[Accumulator[Landed]]] = {}
        self._versions: dict[Landed, list[int]] = {}
        self._definitions: dict[Landed, bytes] = {}  # of the first version
        self._packed: dict[int, Packed] = {}  # by version

    # ---- called by the assembler -----------------------------------------------------

    def register(self, version: int, definition: bytes) -> Accumulator[Landed] | None:
        """Find or make the accumulator of a relation version; None when it is filtered.

        Each decoder tells of it: one that is packed by then was described before.
        """
        if version in self._packed:
            return self.recall(version)
        relation = Relation.from_record(json.loads(definition))
        assert relation.version == version
        self._tables.descriptions.note(relation)
        accumulator = self._table_of(relation, definition)
        if accumulator is not None:
            self._versions[accumulator.table].append(version)
        return accumulator

    def recall(self, version: int) -> Accumulator[Landed] | None:
        """Unpack the table of a version; None when the version was never described."""
        packed = self._packed.pop(version, None)
        if packed is None:
            return None
        landed, definition = self._tables.unpack(packed)
        for accumulator in self._by_directory.get(landed.directory, ()):
            if accumulator.table.order == landed.order:  # another version of it was unpacked before
                landed = accumulator.table
        self._versions.setdefault(landed, []).append(version)
        self._definitions.setdefault(landed, definition)
        return self.accumulator(landed)

    def definition(self, version: int, accumulator: Accumulator[Landed] | None) -> bytes:
        """What makes the table of a registered version again, its number left out of account."""
        if accumulator is not None:
            return self._definitions[accumulator.table]
        return zlib.decompress(self._packed[version].definition)

    def prepared_table(self, definition: bytes) -> Accumulator[Landed] | None:
        """Directory and schema for rows of a prepared transaction, by the description kept with it."""
        return self._table_of(Relation.from_record(json.loads(definition)), definition)

    def ddl_came(self, content: bytes, lsn: int, seq: int) -> None:
        """Learn what became of the columns of tables."""
        self._tables.ddl.take(content, Position(lsn, seq))

    def keyless(self, accumulator: Accumulator[Landed]) -> Accumulator[Landed]:
        """Directory and schema for rows of a table whose key the stream does not send, though it has one."""
        record = json.loads(self._definitions[accumulator.table])
        columns = [{**column, "is_identity": False} for column in record["columns"]]
        record |= {"identity": ReplicaIdentity.NOTHING, "columns": columns}
        found = self._table_of(Relation.from_record(record), json.dumps(record).encode())
        assert found is not None  # its rows were wanted, and are
        return found

    # ---- called by the collector -----------------------------------------------------

    def accumulator(self, landed: Landed) -> Accumulator[Landed]:
        """Find or make the accumulator of a table under a schema."""
        if landed not in self._accumulators:
            kinds, old_count = landed.kinds()
            accumulator = Accumulator(landed, kinds, old_count)
            if landed.relation is not None:
                accumulator.lands_from = self._lands_from(landed.directory)
            self._accumulators[landed] = accumulator
            self._by_directory.setdefault(landed.directory, []).append(accumulator)
        return self._accumulators[landed]

    def all(self) -> list[Accumulator[Landed]]:
        """Every accumulator, the one that was used last at the end."""
        return list(self._accumulators.values())

    def of_directory(self, directory: str) -> list[Accumulator[Landed]]:
        """The accumulators of a directory, one for each schema in use."""
        return list(self._by_directory.get(directory, ()))

    def used(self, landed: Landed) -> None:
        """Note that rows of a table were handed over."""
        self._accumulators[landed] = self._accumulators.pop(landed)

    def relations(self) -> Iterator[Relation]:
        """Every relation that was described, the packed ones after the others."""
        for landed in self._accumulators:
            if landed.relation is not None:
                yield landed.relation
        for packed in self._packed.values():
            yield Relation.from_record(json.loads(zlib.decompress(packed.definition)))

    def pack(self, most: int) -> list[int]:
        """Pack the tables that were quiet for longest, so that at most so many accumulators stay.

        Returns:
            The relation versions that are packed now.
        """
        spare = len(self._accumulators) - most
        quiet = [
            landed
            for landed, held in self._accumulators.items()
            if landed.relation is not None and not held.row_count
        ]
        versions: list[int] = []
        for landed in quiet[: max(0, spare)]:
            packed = Packed.of(landed, self._definitions.pop(landed))
            gone = self._versions.pop(landed)
            self._packed.update(dict.fromkeys(gone, packed))
            versions += gone
            accumulator = self._accumulators.pop(landed)
            beside = self._by_directory[landed.directory]
            beside.remove(accumulator)
            if not beside:
                del self._by_directory[landed.directory]
            self._tables.forget(landed)
        return versions

    def clear(self) -> None:
        """Free everything."""
        for held in (
            self._accumulators, self._by_directory, self._versions, self._definitions, self._packed
        ):  # fmt: skip
            held.clear()

    def _table_of(self, relation: Relation, definition: bytes) -> Accumulator[Landed] | None:
        """Find or make the accumulator of a described table; None when it is not wanted."""
        if relation.is_filtered or not self._tables.is_wanted(relation):
            return None
        try:
            landed = self._tables.find(relation)
        except self._errors as error:
            raise self._failed(relation, error) from error
        self._versions.setdefault(landed, [])
        self._definitions.setdefault(landed, definition)
        return self.accumulator(landed)
