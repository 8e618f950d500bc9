"""What a landing knows of tables, as a daemon of kind gaussdb asks for it."""

from collections.abc import Iterator
from typing import Any

from gaussdecode.serve.landed_catalog import LandedCatalog
from gaussdecode.serve.sql import tokens_of
from gaussdecode.source.gaussdb import catalog


def record(name: str, columns: list[str]) -> dict[str, Any]:
    """A schema file's content."""
    return {
        "schema": "public", "name": name, "oid": 100, "identity": "d", "key": ["id"],
        "columns": [
            {
                "name": of, "attribute_number": number, "toastable": False, "type": "integer", "type_text": "integer",
                "type_oid": 23, "type_modifier": -1, "identity": of == "id",
            }
            for number, of in enumerate(columns, 1)
        ],
    }  # fmt: skip


class Landing:
    """Schemas in memory; none has changed since the checkpoint."""

    last_n = -1

    def __init__(self, **records: dict[str, Any]) -> None:
        self._records = {f"public.{name}": of for name, of in records.items()}

    def schemas_at_checkpoint(self) -> tuple[dict[str, str], int]:
        """As of `Landing`."""
        return dict.fromkeys(self._records, "1"), 0

    def entries(self, _first: int, _last: int) -> Iterator[Any]:
        """Likewise."""
        return iter(())

    def schema_record(self, key: str, _schema_id: str) -> dict[str, Any]:
        """Likewise."""
        return self._records[key]


def answer(landing: Landing, sql: str) -> list[Any]:
    """Rows of an answer."""
    known = LandedCatalog(landing, None).answer(  # type: ignore[arg-type]  # as far as it is used
        list(tokens_of(sql)), "me", {}, lambda _schema, _name: True
    )
    assert known is not None
    return list(known.rows)


def test_a_renamed_table_has_its_columns_of_now() -> None:
    """Its former name stays in the log, with the same OID and the columns of then."""
    landing = Landing(a=record("a", ["id", "v"]), b=record("b", ["id", "v", "w"]))
    columns = answer(landing, catalog.COLUMNS.replace("%s", "100"))
    assert [row[0] for row in columns] == ["id", "v", "w"]
    same = Landing(a=record("a", ["id"]), b=record("b", ["id"]))
    assert [row[0] for row in answer(same, catalog.COLUMNS.replace("%s", "100"))] == ["id"]
