"""SQL over a target: names that mean one table, whatever the tables are called."""

import string
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.history import Column, History, Table, canon
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError
from gaussdecode.model.title import table_title
from gaussdecode.spark.apply import apply
from gaussdecode.spark.log.landing import Point
from gaussdecode.spark.log.sql_text import quoted
from gaussdecode.spark.sql.views import Meaning, Names, ask, parts_of, register
from gaussdecode.spark.target.session import beside

ODD = ("orders", "orders_history", "a-b", "a_b", "Item", "item", "select", "it's `so`", "😀.x")


def table(name: str) -> Table:
    """A table whose rows no other has."""
    columns = [Column(1, "id", pa.int32()), Column(2, "note", pa.string())]
    return Table(name, columns, (1,), full=False)


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[History, Path]:
    """Tables with names that fold into each other, applied with history."""
    root = tmp_path_factory.mktemp("views")
    source = History(root / "landing", 5, tables=[table(name) for name in ODD])
    source.with_schema_changes = False
    for each in source.tables:
        for number in range(len(each.name)):
            row = {1: number, 2: each.name}
            source.add(each, row)
            source.lsn += 10
            source.land(each, 0, "I", row, None, [])
        source.commit()
    late, source.lsn = {1: 99, 2: "orders"}, source.lsn + 10
    source.add(source.tables[0], late)
    source.land(source.tables[0], 0, "I", late, None, [])
    source.commit()
    apply(spark, root / "landing", root / "target", history=True, changelog="gd_commit_date")
    return source, root / "target"


@pytest.mark.spark
def test_every_table_is_found_by_its_name(
    spark: SparkSession, landed: tuple[History, Path]
) -> None:
    """Qualified, in one word, with columns that are qualified in turn, with an alias and without."""
    source, target = landed
    for each in source.tables:
        name = quoted(each.name)
        for text in (
            f"SELECT id, note FROM public.{name}",
            f"SELECT '😀', public.{name}.id, {name}.note FROM public.{name} WHERE {name}.id >= 0",
            f"SELECT o.id, o.note FROM {quoted(table_title('public', each.name))} AS o",
            f"WITH q AS (SELECT * FROM public.{name} o) SELECT id, note FROM q -- public.none",
        ):
            rows = [tuple(row)[-2:] for row in ask(spark, target, text).collect()]
            assert canon(rows) == each.visible(), text
    joined = "SELECT count(*) FROM public.`a-b` JOIN public.a_b USING (id)"
    assert ask(spark, target, joined).collect()[0][0] == len("a-b")


@pytest.mark.spark
def test_histories_and_short_names(spark: SparkSession, landed: tuple[History, Path]) -> None:
    """The table `orders_history` is what that name means with its schema; alone it is refused."""
    _, target = landed

    def notes(text: str) -> set[str]:
        return {row[0] for row in ask(spark, target, f"SELECT note FROM {text}").collect()}

    assert notes("public.orders_history") == {"orders_history"}
    assert notes("`public.orders.history`") == {"orders"}
    assert notes("public.a_b_history") == notes("a_b_history") == notes("A_B") == {"a_b"}
    assert "gd_to_lsn" in ask(spark, target, "SELECT * FROM a_b_history").columns
    assert notes("public.a_b_changelog") == notes("`public.a_b.changelog`") == {"a_b"}
    assert "gd_op" in ask(spark, target, "SELECT * FROM a_b_changelog").columns
    for text in ("orders_history", "ITEM", "item"):
        with pytest.raises(ConfigError, match=r"has several meanings: write `public\."):
            notes(text)
    assert notes("public.Item") == {"Item"}
    shown = {row.tableName for row in ask(spark, target, "show tables").collect()}
    assert {"public.a-b", "public.a_b", "public.item", "public.item'"} <= shown
    assert {"public.a_b.history", "public.a_b.changelog"} <= shown
    assert not any("quarantine" in name for name in shown)


@pytest.mark.spark
def test_views_that_were_registered_stand_for_no_table(
    spark: SparkSession, landed: tuple[History, Path]
) -> None:
    """Spark folds `public.item` and `public.Item`; a query takes the table that it names."""
    source, target = landed
    views = register(spark, target)
    assert len(views) == len(ODD)
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for name in ("Item", "item"):
            rows = ask(spark, target, f"SELECT * FROM `public.{name}`").select("id", "note")
            (each,) = (table for table in source.tables if table.name == name)
            assert canon([tuple(row) for row in rows.collect()]) == each.visible()
        assert ask(spark, target, "SELECT current_timezone()").collect()[0][0] == "Asia/Tokyo"
        spark.conf.set(
            "spark.sql.catalog.shop.warehouse", "/srv"
        )  # one that Spark has no entry for
        assert beside(spark).conf.get("spark.sql.catalog.shop.warehouse") == "/srv"
    finally:
        spark.conf.unset("spark.sql.catalog.shop.warehouse")
        spark.conf.set("spark.sql.session.timeZone", zone)
        for view in views:
            spark.sql(f"DROP VIEW {quoted(view)}")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "SELECT * FROM public.order_",
            "names public.order_, and there is no such table; there are: public",
        ),
        ("SELECT * FROM nowhere.x.y", "requires a single-part namespace"),
        ("SELECT nothing FROM public.orders", "`nothing` cannot be resolved"),
        ("SELECT nowhere.orders.id FROM public.orders", "cannot be resolved"),
        ("CHOOSE 1", "Syntax error at or near 'CHOOSE'"),
        ("SELECT * FROM public.orders o p q", "Syntax error"),
        ("delete FROM public.orders", "DELETE would change a table, which only spark apply does"),
        ("-- of all\n /* them */ DROP TABLE public.orders", "DROP would change a table"),
    ],
)
def test_mistakes_are_one_line(
    text: str, words: str, spark: SparkSession, landed: tuple[History, Path]
) -> None:
    """What is wrong, without plans and stacks."""
    with pytest.raises(ConfigError, match=words) as caught:
        ask(spark, landed[1], text)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


WORDS = st.text(st.sampled_from(string.ascii_letters + '._"`é😀-'), min_size=1, max_size=4)


@given(st.sets(st.tuples(WORDS, WORDS | WORDS.map("{}_history".format)), max_size=6))
def test_no_name_means_two(tables: set[tuple[str, str]]) -> None:
    """Each table by its schema and name, each history by its own; others are found or refused."""
    titles = {table_title(*parts): parts for parts in tables}
    names = Names(titles)
    for title, parts in titles.items():
        assert names.find(parts) == names.find((title,)) == Meaning(title)
        assert names.find((f"{title}.history",)) == Meaning(title, "history")
        try:
            found = names.find(parts[1:])
        except ConfigError as error:
            assert "several meanings" in str(error)
        else:
            assert found == Meaning(title) or (found and found.view == parts[1])
    assert names.find(("no schema", "no table")) is None


@pytest.mark.spark
def test_queries_know_nothing_of_each_other(
    spark: SparkSession, landed: tuple[History, Path]
) -> None:
    """The same full name at two points, the answer read later than the next question is asked."""
    _, target = landed
    spark.sql("DROP VIEW IF EXISTS `public.orders`")
    text = "SELECT count(*) FROM `public.orders`"
    now, past = ask(spark, target, text), ask(spark, target, text, at=Point(n=3))
    counts = [frame.collect()[0][0] for frame in (now, past)]
    assert counts == [len("orders") + 1, len("orders")]
    left = [row.tableName for row in spark.sql("SHOW TABLES").collect()]
    assert not [name for name in left if name == "public.orders" or ":" in name]


@example(["a`.`b", "`"])
@given(st.lists(WORDS, min_size=1, max_size=3))
def test_quoted_names_are_read_back(parts: list[str]) -> None:
    """As Spark's messages spell them."""
    assert parts_of(".".join(map(quoted, parts))) == tuple(parts)
