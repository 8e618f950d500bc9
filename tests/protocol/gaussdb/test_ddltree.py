"""Tests for `gaussdecode.protocol.gaussdb.ddltree`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.protocol.gaussdb.ddltree import command_tag, name_of, write_sql

CREATE = {
    "fmt": "CREATE %{persistence}s TABLE %{if_not_exists}s %{identity}D %{table_elements}s %{with_clause}s %{compression}s",
    "identity": {"object_name": "Orders", "schema_name": "public"},
    "compression": "NOCOMPRESS",
    "persistence": "",
    "if_not_exists": "",
    "with_clause": {
        "fmt": "WITH (%{with:, }s)",
        "with": [
            {"fmt": "%{label}s = %{value}L", "label": {"fmt": "%{label}I", "label": "orientation"}, "value": "row"},
            {"fmt": "%{label}s = %{value}L", "label": {"fmt": "%{label}I", "label": "compression"}, "value": "no"},
        ],
    },
    "table_elements": {
        "fmt": "(%{elements:, }s)",
        "elements": [
            {
                "fmt": "%{name}I %{column_type}T",
                "name": "a b",
                "column_type": {"typmod": "", "typarray": False, "type_name": "int4", "schema_name": "pg_catalog"},
            },
            {"fmt": "%{name}I", "name": "gone", "present": False},
            {
                "fmt": "%{name}I %{column_type}T",
                "name": "c",
                "column_type": {"typmod": "(3)", "typarray": True, "type_name": "kind", "schema_name": "shop"},
            },
        ],
    },
}  # fmt: skip


def test_a_table_of_the_products_page() -> None:
    """The form of the page, with a name that needs quotes, a type of its own and an absent element."""
    assert write_sql(CREATE) == (
        """CREATE TABLE public."Orders" ("a b" int4, c shop.kind(3)[]) WITH (orientation = 'row', """
        "compression = 'no') NOCOMPRESS"
    )
    assert name_of(CREATE) == ("public", "Orders")


def test_other_letters() -> None:
    """Literals, operators, roles, numbers and per cent signs; names as openGauss spells them."""
    tree = {
        "fmt": "100%% %{text}L %{op}O %{plain}O %{role}R %{count}n %{who}I %{name}D %{more:,}I",
        "text": "it's", "op": {"schemaname": "s", "objname": "+"}, "plain": {"objname": "-"},
        "role": {"rolename": "Ann"}, "count": 7, "who": 'a"b', "name": {"schemaname": "S", "objname": "t"},
        "more": ["x", "Y"],
    }  # fmt: skip
    assert write_sql(tree) == """100% 'it''s' OPERATOR(s.+) - "Ann" 7 "a""b" "S".t x,"Y\""""
    assert name_of({"identity": tree["name"]}) == ("S", "t")
    assert name_of({"identity": 1}) == name_of({}) == (None, None)


@pytest.mark.parametrize(
    "tree",
    [{}, {"fmt": 1}, {"fmt": "%{a}s"}, {"fmt": "%{a}T", "a": {}}, {"fmt": "%{a}I", "a": None}, {"fmt": "%{a}s", "a": {}},
     {"fmt": "%{a}R", "a": {}}, {"fmt": "%{a}s", "a": True}],
)  # fmt: skip
def test_a_tree_that_is_none(tree: dict[str, object]) -> None:
    """It is refused, and no part of it is guessed."""
    with pytest.raises(ValueError, match=r"DDL statement|without a value"):
        write_sql(tree)


def test_a_tree_that_is_too_deep() -> None:
    """It is refused before Python's own limit."""
    tree: dict[str, object] = {"fmt": "end"}
    for _ in range(100):
        tree = {"fmt": "%{a}s", "a": tree}
    with pytest.raises(ValueError, match="too deep"):
        write_sql(tree)


@given(
    st.recursive(
        st.text() | st.integers() | st.none() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["fmt", "a", "b"]), inner),
    )
)
def test_any_tree_is_written_or_refused(value: object) -> None:
    """With one error, whatever it holds."""
    try:
        write_sql({"fmt": "%{a}s %{a}D %{a:, }T", "a": value})
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("sql", "tag"),
    [
        ("CREATE TABLE public.t (a int4)", "CREATE TABLE"), ("create  unique index i on t (a)", "CREATE INDEX"),
        ("CREATE GLOBAL TEMP TABLE t()", "CREATE TABLE"), ("DROP MATERIALIZED VIEW v", "DROP MATERIALIZED VIEW"),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (x > 0)", "ALTER TABLE"), ("TRUNCATE TABLE t", "TRUNCATE"),
        ("ALTER INDEX i RENAME TO table2", "ALTER INDEX"), ("COMMENT ON TABLE t IS ''", "COMMENT"),
        ("CREATE USER MAPPING", "CREATE"), ("", None), ("1", None),
    ],
)  # fmt: skip
def test_tags(sql: str, tag: str | None) -> None:
    """The kind of the command, and of its object where that is one of those that GaussDB sends."""
    assert command_tag(sql) == tag
