"""Schemas: the same content has the same id, renames are written down."""

import json

import pytest
from kit.landrun import Landing
from kit.simdisk import SimFiles

from gaussdecode.errors import LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.schemas import SchemaStore, fingerprint, read_schema
from gaussdecode.model.seal import hash_of

TABLE = "public.a"


def columns(*names: str) -> dict[str, object]:
    """A description whose columns have attribute numbers from 1."""
    return {
        "columns": [
            {"name": name, "attribute_number": number} for number, name in enumerate(names, 1)
        ]
    }


@pytest.fixture
def log() -> CommitLog:
    """An open, empty log."""
    return Landing(SimFiles()).open()


def test_same_content_is_not_new(log: CommitLog) -> None:
    """A table changes over when its description does, and back again."""
    store = SchemaStore(log)
    one, is_new = store.schema_id_for(TABLE, columns("id"))
    assert is_new
    assert store.schema_id_for(TABLE, columns("id")) == (one, False)
    two, is_new = store.schema_id_for(TABLE, columns("id", "name"))
    assert is_new
    assert two != one
    assert store.schema_id_for(TABLE, columns("id")) == (one, True)
    assert store.last(TABLE) == one


def test_order_of_keys_does_not_matter() -> None:
    """The fingerprint is of the content, not of how Python holds it."""
    assert fingerprint({"a": 1, "columns": [{"name": "x", "type": 1}]}) == fingerprint(
        {"columns": [{"type": 1, "name": "x"}], "a": 1}
    )


def test_rename_is_found_by_attribute_number(log: CommitLog) -> None:
    """The new file says where the column came from; its id does not depend on it."""
    store = SchemaStore(log)
    store.schema_id_for(TABLE, columns("id", "name"))
    schema_id, _ = store.schema_id_for(TABLE, columns("id", "title"))
    pending = {schema.schema_id: schema for schema in store.take_pending()}
    written = json.loads(pending[schema_id].content)
    assert written["columns"][1]["renamed_from"] == "name"
    assert "renamed_from" not in written["columns"][0]
    assert written.pop("hash") == hash_of(pending[schema_id].content)
    assert schema_id == fingerprint(columns("id", "title")) == fingerprint(written)


def test_swapped_names_are_no_rename(log: CommitLog) -> None:
    """A name that still exists was not renamed away."""
    store = SchemaStore(log)
    store.schema_id_for(TABLE, columns("a", "b"))
    schema_id, _ = store.schema_id_for(TABLE, columns("b", "a"))
    pending = {schema.schema_id: schema for schema in store.take_pending()}
    assert b"renamed_from" not in pending[schema_id].content


def test_next_session_begins_with_the_log(log: CommitLog) -> None:
    """What was never committed is new again, and what an old session still finds is its own."""
    old = SchemaStore(log)
    old.schema_id_for(TABLE, columns("id"))
    new = SchemaStore(log)
    assert new.take_pending() == ()
    old.schema_id_for(TABLE, columns("id", "late"))
    assert new.schema_id_for(TABLE, columns("id"))[1]
    assert [schema.schema_id for schema in new.take_pending()] == [fingerprint(columns("id"))]


def test_landed_schema_is_known_after_a_restart() -> None:
    """The log says which schema a table lands under; a rename across the restart is found."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    store = SchemaStore(log)
    assert not store.schema_id_for(TABLE, columns("id"))[1]
    schema_id, is_new = store.schema_id_for(TABLE, columns("key"))
    assert is_new
    (pending,) = store.take_pending()
    assert pending.schema_id == schema_id
    assert b'"renamed_from":"id"' in pending.content


def test_altered_schema_file_is_refused() -> None:
    """Its name is its fingerprint."""
    files = SimFiles()
    Landing(files).run()
    log = Landing(files, "second").open()
    schema_id = log.schemas[TABLE]
    path = f"schemas/{TABLE}/{schema_id}.json"
    content = files.read(path).replace(b'"id"', b'"ix"')
    files.unlink(path)
    handle = files.create(path)
    files.write(handle, content)
    with pytest.raises(LandingError, match="altered"):
        read_schema(log.disk, TABLE, schema_id)
