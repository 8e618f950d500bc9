"""Write an entry that says that a table was dropped at the source.

No stream reports a dropped table. So on request, and where a view of the source has no table of the name, a
snapshot entry without rows of the table lands at the position of the view. Readers that build tables from
the landing empty the table, and forget what had stopped it. A table that is created later under the name
lands as any other.
"""

from typing import Final

from gaussdecode.collect.arrow import file_schema, with_source
from gaussdecode.collect.tables import Landed
from gaussdecode.errors import SourceRefusedError
from gaussdecode.land.names import table_directory
from gaussdecode.land.schemas import SOURCE, read_schema
from gaussdecode.land.snapshots import Json
from gaussdecode.model.quarantine import DROPPED
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.model.title import split_title
from gaussdecode.snapshot.item import Progress, Wanted
from gaussdecode.snapshot.read import TableTask
from gaussdecode.snapshot.tools import Tools
from gaussdecode.source.export import PublishedTable, TableShape

REFUSED: Final = "refused"
"""In a record of the ledger, why it was not."""
EVERY_SOURCE: Final = "every_source"
"""In a request, that each of several sources was asked: one that does not have the table has not failed."""
_IS_THERE: Final = "the server has a table of this name; take a snapshot of it without --dropped"
_NEVER_LANDED: Final = "nothing of it has landed"


def let_go(tools: Tools, title: str, request: str) -> None:
    """Land that a table has no rows, because there is none of its name.

    Args:
        tools: tools of the landing.
        title: ``schema.name``.
        request: its path.

    Raises:
        SourceRefusedError: there is one, or nothing of it has landed.
        SourceError: the server failed.
        HoldLostError: the session ended, or transactions on the server ran too long.
    """
    schema, name = split_title(title)
    directory = table_directory(schema, name)
    schemas = tools.log.schemas if tools.source is None else tools.log.schemas_of(tools.source)
    schema_id = schemas.get(directory)
    record = None if schema_id is None else read_schema(tools.log.disk, directory, schema_id)
    if schema_id is None or record is None:
        raise SourceRefusedError(_NEVER_LANDED)
    table = PublishedTable(schema, name, int(record["oid"]), False, record["identity"], None)
    tools.progress.setdefault(title, Progress())
    since_n = tools.log.next_n - 1
    with tools.held({directory: ()}) as (hold, view):
        with tools.reader() as reader:
            reader.begin(view)
            is_there = reader.has_table(schema, name)
            reader.end()
        if is_there:
            raise SourceRefusedError(_IS_THERE)
        item = Wanted(table, None, request)
        output = tools.output(item, _task(table, directory, schema_id, record), view, since_n)
        output.is_dropped = True
        tools.commit(hold, view, [output], {DROPPED: True})


def _task(table: PublishedTable, directory: str, schema_id: str, record: Json) -> TableTask:
    """What there would be to read of a table that landed under a schema."""
    from gaussdecode.spark.log.schema import TableSchema  # seldom needed, and slow to import

    known = TableSchema.from_record(schema_id, record)
    identity = ReplicaIdentity(table.identity)
    relation = Relation(0, table.oid, table.schema, table.name, identity, ())
    fields = list(known.arrow())
    old = [field for field, of in zip(fields, known.columns, strict=True) if of.identity]
    schema = file_schema(fields, old)
    if SOURCE in record:
        schema = with_source(schema)
    landed = Landed(directory, schema_id, schema, (), relation, 0)
    return TableTask(TableShape(table, relation, (), (), ()), landed, None, record)
