"""Names of tables, as people and as SQL write them."""

from __future__ import annotations

import duckdb
import pytest

from lakemill.core.names import RESERVED, QualifiedName, parse_name
from lakemill.errors import BadArgument


@pytest.mark.parametrize(
    ("text", "schema", "name", "printed"),
    [
        ("orders", "main", "orders", "main.orders"),
        (" Sales.Orders ", "Sales", "Orders", "Sales.Orders"),
        ('"a.b"."c ""d"""', "a.b", 'c "d"', '"a.b"."c ""d"""'),
        ("my table", "main", "my table", 'main."my table"'),
        ("select", "main", "select", 'main."select"'),
        ("ä.1a", "ä", "1a", '"ä"."1a"'),
    ],
)
def test_names(text, schema, name, printed):
    found = parse_name(text)
    assert (found.schema, found.name, str(found)) == (schema, name, printed)
    assert parse_name(str(found)) == found


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", '"a', 'a"b', '""'])
def test_what_is_no_name(text):
    with pytest.raises(BadArgument, match="is not a table name → write table or schema"):
        parse_name(text)


def test_case_does_not_count_but_is_kept():
    assert parse_name("Orders") == parse_name("ORDERS")
    assert {parse_name("Orders"): 1}[parse_name("main.orders")] == 1
    assert str(parse_name("Orders")) == "main.Orders"
    assert parse_name("Ä") != parse_name("ä"), "DuckDB folds ASCII only"
    assert QualifiedName("a", "b") != "a.b"


def test_reserved_words_are_those_of_duckdb():
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
        ).fetchall()
    assert {row[0] for row in rows} == RESERVED
