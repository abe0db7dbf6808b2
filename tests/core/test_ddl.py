"""The statements about dynamic tables: what is read, what is refused and how, and definitions there and back."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemill.core.ddl import may_be_ours, parse_definition, parse_script, to_sql
from lakemill.core.definition import (
    DOWNSTREAM,
    LONGEST_LAG,
    Definition,
    Dialect,
    Initialize,
    RefreshMode,
    TargetLag,
    parse_lag,
)
from lakemill.core.names import QualifiedName
from lakemill.core.position import Position
from lakemill.core.statement import (
    Change,
    Create,
    Describe,
    Drop,
    ExplainRefresh,
    IfExists,
    PlainSql,
    Refresh,
    Rename,
    Resume,
    Show,
    Suspend,
)
from lakemill.errors import BadStatement

T = QualifiedName("main", "t")
S = QualifiedName("s", "t")
FIVE = TargetLag(timedelta(minutes=5))


def one(text):
    (found,) = parse_script(text)
    return found


# ---------------------------------------------------------------- CREATE
def test_the_least_that_can_be_written():
    found = one("CREATE DYNAMIC TABLE t TARGET_LAG = '5 minutes' AS SELECT 1")
    assert found == Create(Position(), Definition(T, "SELECT 1", FIVE), IfExists.REFUSE, found.places)


def test_everything_in_any_order_and_case():
    found = one(
        """create or replace dynamic table s."T t" (a, "B b")
             comment = 'it''s; AS SELECT' strict=true, Refresh_Mode = 'incremental'
             -- AS SELECT 'not yet'
             PARTITION /* odd */ BY (year(d), "x, y", bucket(4, (id)))
             priority = -3 cardinality_threshold=.25 initialize = on_schedule scheduler = disable
             deduplication = true spark_profile = $$big$$ dialect = Spark target_lag = downstream
           AS WITH x AS (SELECT ';') SELECT * FROM x -- and so on
        ;"""
    )
    assert found.if_exists is IfExists.REPLACE
    assert found.definition == Definition(
        QualifiedName("s", "T t"),
        "WITH x AS (SELECT ';') SELECT * FROM x",
        DOWNSTREAM,
        columns=("a", "B b"),
        refresh_mode=RefreshMode.INCREMENTAL,
        strict=True,
        cardinality_threshold=0.25,
        initialize=Initialize.ON_SCHEDULE,
        scheduler=False,
        priority=-3,
        spark_profile="big",
        dialect=Dialect.SPARK,
        partition_by=("year(d)", '"x, y"', "bucket(4, (id))"),
        comment="it's; AS SELECT",
    )


@pytest.mark.parametrize(
    ("head", "if_exists"),
    [
        ("CREATE DYNAMIC TABLE", IfExists.REFUSE),
        ("CREATE DYNAMIC TABLE IF NOT EXISTS", IfExists.KEEP),
        ("CREATE OR REPLACE DYNAMIC TABLE", IfExists.REPLACE),
        ("CREATE OR ALTER DYNAMIC TABLE", IfExists.ALTER),
    ],
)
def test_heads(head, if_exists):
    assert one(f"{head} t TARGET_LAG = DOWNSTREAM AS SELECT 1").if_exists is if_exists


@pytest.mark.parametrize("query", ["FROM t", "(SELECT 1) UNION (SELECT 2)", "VALUES (1)", "with a as (from t) from a"])
def test_queries_start_in_many_ways(query):
    assert one(f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS {query}").definition.query == query


@pytest.mark.parametrize(
    ("text", "lag"),
    [
        ("'5 minutes'", FIVE),
        ("'1 second'", TargetLag(timedelta(seconds=1))),
        ("'1 h 30 min'", TargetLag(timedelta(minutes=90))),
        ("'1.5 MINUTES'", TargetLag(timedelta(seconds=90))),
        ("'2 Days'", TargetLag(timedelta(days=2))),
        ("$$10s$$", TargetLag(timedelta(seconds=10))),
        ("DOWNSTREAM", DOWNSTREAM),
        ("downstream", DOWNSTREAM),
        ("' Downstream '", DOWNSTREAM),
    ],
)
def test_lags(text, lag):
    assert one(f"CREATE DYNAMIC TABLE t TARGET_LAG = {text} AS SELECT 1").definition.target_lag == lag
    assert parse_lag(str(lag)) == lag


def test_places_are_those_in_the_file():
    text = "SELECT 1;\n\n  CREATE DYNAMIC TABLE t\n TARGET_LAG = '1 day'\n\tAS\n  SELECT a\n FROM b;"
    found = list(parse_script(text))[1]
    assert isinstance(found, Create)
    assert found.at == Position(text.index("CREATE"), 3, 3)
    assert found.places["TARGET_LAG"].place() == "line 4, column 2"
    query = found.places["query"]
    assert query.place("x.sql") == "x.sql:6:3"
    assert query.within(found.definition.query, 7).place() == "line 6, column 10"
    assert query.within(found.definition.query, found.definition.query.index("b")) == Position(text.rindex("b"), 7, 7)


# ---------------------------------------------------------------- the others
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER DYNAMIC TABLE s.t SUSPEND", Suspend(Position(), (S,))),
        ("alter dynamic table if exists t, S.T resume", Resume(Position(), (T, S), missing_ok=True)),
        ("ALTER DYNAMIC TABLE t REFRESH", Refresh(Position(), (T,))),
        ('ALTER DYNAMIC TABLE "t", s.t REFRESH FULL', Refresh(Position(), (T, S), full=True)),
        ("ALTER DYNAMIC TABLE t RENAME TO s.t", Rename(Position(), T, S)),
        ("ALTER DYNAMIC TABLE t SET TARGET_LAG = '5 minutes'", Change(Position(), T, {"TARGET_LAG": FIVE})),
        (
            "ALTER DYNAMIC TABLE t SET priority = 3, STRICT = TRUE comment = ''",
            Change(Position(), T, {"PRIORITY": 3, "STRICT": True, "COMMENT": ""}),
        ),
        ("ALTER DYNAMIC TABLE t UNSET COMMENT, Priority", Change(Position(), T, unset=("COMMENT", "PRIORITY"))),
        ("DROP DYNAMIC TABLE t", Drop(Position(), T)),
        ("DROP DYNAMIC TABLE IF EXISTS t CASCADE", Drop(Position(), T, missing_ok=True, cascade=True)),
        ("DROP DYNAMIC TABLE t RESTRICT", Drop(Position(), T)),
        ("SHOW DYNAMIC TABLES", Show(Position())),
        ("show dynamic tables like 'a%'", Show(Position(), "a%")),
        ("DESC DYNAMIC TABLE t", Describe(Position(), T)),
        ("DESCRIBE DYNAMIC TABLE s.t", Describe(Position(), S)),
        ("EXPLAIN REFRESH t", ExplainRefresh(Position(), T)),
    ],
)
def test_statements(text, expected):
    assert one(text) == expected
    assert one(f"{text} ; ;") == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'CREATE DYNAMIC TABLE x; AS'",
        "CREATE OR REPLACE TABLE dynamic AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CALL lake.set_option('a;b', 1)",
        "EXECUTE p('x;y')",
        "SHOW dynamic",
        "DESCRIBE dynamic",
        "DROP TABLE dynamic",
        "EXPLAIN SELECT $t$ ; $t$, /* ; /* ; */ ; */ e'\\';', \"a;b\"",
        "INSERT INTO t VALUES (1), ('x') -- ; no\n RETURNING *",
        "REFRESH t",
        "$",
    ],
)
def test_what_is_not_ours_comes_back_as_it_was(text):
    assert one(f"  {text} ;;") == PlainSql(Position(2, 1, 3), text)


def test_a_script():
    text = "SELECT 1;\n-- nothing\n;DROP DYNAMIC TABLE t;\r\n\tSHOW TABLES"
    kinds = [(type(found), found.at.line, found.at.column) for found in parse_script(text)]
    assert kinds == [(PlainSql, 1, 1), (Drop, 3, 2), (PlainSql, 4, 2)]
    assert list(parse_script(" -- nothing\n ;; /* */")) == []


def test_a_long_script_is_read_in_time():
    text = "INSERT INTO t VALUES (1, 'x;y');\n" * 5000 + "DROP DYNAMIC TABLE t"
    *_, last = parse_script(text)
    assert last.at == Position(text.index("DROP"), 5001, 1)
    assert may_be_ours(text)
    assert may_be_ours("explain /* */ refresh t")
    assert not may_be_ours("INSERT INTO t VALUES (1)")


def test_changes_give_the_next_definition():
    before = Definition(T, "SELECT 1", FIVE, comment="x", priority=4)
    change = one("ALTER DYNAMIC TABLE t SET TARGET_LAG = DOWNSTREAM, DEDUPLICATION = TRUE")
    assert change.apply(before) == replace(before, target_lag=DOWNSTREAM)
    change = one("ALTER DYNAMIC TABLE t UNSET COMMENT, PRIORITY")
    assert change.apply(before) == replace(before, comment=None, priority=0)
    full = replace(before, refresh_mode=RefreshMode.FULL)
    with pytest.raises(BadStatement, match=r"main\.t: STRICT forbids .* → write REFRESH_MODE = INCREMENTAL"):
        one("ALTER DYNAMIC TABLE t SET STRICT = TRUE").apply(full)


# ---------------------------------------------------------------- what is refused
C = "CREATE DYNAMIC TABLE t "
L = C + "TARGET_LAG = '1 day' "
A = "ALTER DYNAMIC TABLE t "


@pytest.mark.parametrize(
    ("text", "at", "told", "remedy"),
    [
        # what never ends
        (C + "COMMENT = 'x", "'x", "a string begins here and does not end", "close it"),
        ("SELECT 1;\n " + L + 'AS SELECT "x', '"x', "a quoted name begins here", "close it"),
        (L + "AS SELECT $a$ x", "$a$", r"a string in \$a\$ begins here", "close it"),
        (L + "AS /* a */ SELECT /* b /* c */", "/* b", "a comment begins here", "close it"),
        (L + "AS SELECT 1 \0", "\0", "a zero byte", "UTF-8"),
        # names
        ("CREATE DYNAMIC TABLE", None, "the table's name should stand here, not the end", "write a name"),
        ("CREATE DYNAMIC TABLE AS SELECT 1", "AS", "AS is a reserved word", '"AS" in double quotes'),
        ("CREATE DYNAMIC TABLE 'x' AS", "'x'", "should stand here, not 'x'", "write a name"),
        ("CREATE DYNAMIC TABLE a.b.c AS SELECT 1", ".b", "two parts.*this one has 3", "leave the catalog out"),
        ("CREATE DYNAMIC TABLE a. AS SELECT 1", "AS", "reserved word", "write a name"),
        (C + "(a INT) TARGET_LAG", "INT", r"a comma or \) should stand here, not 'INT'", "CAST there"),
        (C + "(a, A) TARGET_LAG", "A)", "column A stands here twice", "keep one"),
        (C + "() TARGET_LAG", ")", r"a column's name should stand here, not '\)'", "write a name"),
        # heads
        ("CREATE OR REPLACE DYNAMIC TABLE IF NOT EXISTS t", "IF", "IF NOT EXISTS and OR REPLACE", "keep one"),
        ("CREATE DYNAMIC TABLE IF EXISTS t", "EXISTS", "NOT should stand here, not 'EXISTS'", "CREATE DYNAMIC TABLE"),
        ("CREATE TRANSIENT DYNAMIC TABLE t", "TRANSIENT", "transient", "leave TRANSIENT out"),
        ("CREATE DYNAMIC ICEBERG TABLE t", "ICEBERG", "Iceberg", "leave ICEBERG out"),
        ("CREATE DYNAMIC VIEW t", "VIEW", "TABLE should stand here, not 'VIEW'", "CREATE DYNAMIC TABLE"),
        # the query
        (L, None, "AS and the query are missing", "AS SELECT"),
        (L + "AS", None, "a query should stand after AS, not the end", "AS SELECT"),
        (L + "AS INSERT INTO x", "INSERT", "a query should stand after AS, not 'INSERT'", "AS SELECT"),
        (L + "SELECT 1", "SELECT", "AS is missing before 'SELECT'", "AS SELECT"),
        (C + "AS SELECT 1", "t AS", "TARGET_LAG is missing", "TARGET_LAG = '5 minutes' or DOWNSTREAM"),
        # lags
        (C + "TARGET_LAG '1 day'", "'1 day'", "= should stand here, not '1 day'", "TARGET_LAG = '5 minutes'"),
        (C + "TARGET_LAG = AS SELECT 1", "AS", "TARGET_LAG: 'AS' is neither DOWNSTREAM", "'5 minutes'"),
        (C + "TARGET_LAG = 5 minutes AS", "5", "TARGET_LAG: 5 has no unit", "'5 minutes'"),
        (C + "TARGET_LAG = '5' AS", "'5'", "'5' is not a lag: it has no unit", "'5 minutes'"),
        (C + "TARGET_LAG = 'soon' AS", "'soon'", "not a duration", "'5 minutes'"),
        (C + "TARGET_LAG = '5 fortnights' AS", "'5", "'fortnights' is not a unit", "'5 minutes'"),
        (C + "TARGET_LAG = '0 seconds' AS", "'0", "not between 1 second and 366 days", "'5 minutes'"),
        (C + "TARGET_LAG = '500 ms' AS", "'500", "whole seconds", "'5 minutes'"),
        (C + "TARGET_LAG = '9999999999999 days' AS", "'9", "longer than", "'5 minutes'"),
        (C + "TARGET_LAG = '-1 minutes' AS", "'-1", "not a duration", "'5 minutes'"),
        (C + "TARGET_LAG = \"1 day\" AS", '"1', "TARGET_LAG: '1 day' should be in single quotes", "'5 minutes'"),
        # other properties
        (L + "REFRESH_MODE = QUICK AS", "QUICK", "QUICK is none of AUTO, INCREMENTAL, FULL, ADAPTIVE", "INCREMENTAL"),
        (L + "REFRESH_MODE = 1 AS", "1 AS", "1 is none of", "INCREMENTAL"),
        (L + "STRICT AS SELECT", "AS", "= should stand here, not 'AS'", "STRICT = TRUE"),
        (L + "STRICT = YES AS", "YES", "YES is neither TRUE nor FALSE", "STRICT = TRUE"),
        (L + "REFRESH_MODE = FULL STRICT = TRUE AS SELECT 1", "STRICT", "STRICT forbids", "leave STRICT out"),
        (L + "CARDINALITY_THRESHOLD = 30 AS", "30", "30 is not between 0 and 1", "= 0.3"),
        (L + "CARDINALITY_THRESHOLD = -.3 AS", "-.3", "-.3 is not between 0 and 1", "= 0.3"),
        (L + "CARDINALITY_THRESHOLD = 'nan' AS", "'nan'", "nan is not between", "= 0.3"),
        (L + "CARDINALITY_THRESHOLD = high AS", "high", "high is not a number", "= 0.3"),
        (L + "CARDINALITY_THRESHOLD = - AS", "AS", "a value of CARDINALITY_THRESHOLD should stand", "= 0.3"),
        (L + "CARDINALITY_THRESHOLD = ", None, "should stand here, not the end", "= 0.3"),
        (L + "PRIORITY = 1.5 AS", "1.5", "1.5 is not a whole number between -1000 and 1000", "= 10"),
        (L + "PRIORITY = 5000 AS", "5000", "5000 is not a whole number", "= 10"),
        (L + "INITIALIZE = NOW AS", "NOW", "NOW is none of ON_CREATE, ON_SCHEDULE", "ON_SCHEDULE"),
        (L + "SCHEDULER = TRUE AS", "TRUE", "TRUE is neither ENABLE nor DISABLE", "SCHEDULER = DISABLE"),
        (L + "SPARK_PROFILE = '' AS", "''", "is not a profile's name", "'batch'"),
        (L + "DIALECT = 'oracle' AS", "'oracle'", "'oracle' is none of duckdb, spark", "'spark'"),
        (L + "COMMENT = hello AS", "hello", "hello is not a string", "'what it is for'"),
        (L + "DEDUPLICATION = FALSE AS", "FALSE", "can't be switched off", "DEDUPLICATION = TRUE"),
        (L + "PRIORITY = 1 priority = 2 AS", "priority", "PRIORITY stands here twice", "keep one"),
        (L + "PARTITION (a) AS", "(a)", "BY should stand here", r"PARTITION BY \(column"),
        (L + "PARTITION BY a AS", "a AS", r"\( should stand here, not 'a'", "in brackets"),
        (L + "PARTITION BY () AS", ") AS", "should stand here, not", "leave it out"),
        (L + "PARTITION BY (a,) AS", ") AS", "should stand here", "leave it out"),
        (L + "PARTITION BY (f(a) AS SELECT 1", None, "a bracket is missing", "close it"),
        (L + "PARTITION BY (a) PARTITION BY (b) AS", "PARTITION BY (b)", "stands here twice", "keep one"),
        # words of others
        (L + "REFRESH_MOD = AUTO AS", "REFRESH_MOD ", "not 'REFRESH_MOD'", "write REFRESH_MODE"),
        (L + "REFRESH_STRATEGY = AFFECTED_KEYS AS", "REFRESH_STRATEGY", "no property", "REFRESH_MODE = AUTO, INCREM"),
        (L + "REFRESH_MODE = AFFECTED_KEYS AS", "AFFECTED_KEYS", "AFFECTED_KEYS is none of", "INCREMENTAL"),
        (L + "DEDUPLICATE = TRUE AS", "DEDUPLICATE", "no property", "minimal diff"),
        (L + "MAX_PARALLELISM = 16 AS", "MAX_PARALLELISM", "no property", "SPARK_PROFILE"),
        (L + "ALLOW_PARALLEL_REFRESH = TRUE AS", "ALLOW_P", "no property", "Spark splits"),
        (L + "WAREHOUSE = w AS", "WAREHOUSE", "no property", "SPARK_PROFILE"),
        (L + "CLUSTER BY (a) AS", "CLUSTER", "no property", "PARTITION BY"),
        # ALTER
        ("ALTER DYNAMIC TABLE t", None, "SUSPEND, RESUME.* not the end", "ALTER DYNAMIC TABLE"),
        (A + "PAUSE", "PAUSE", "SUSPEND, RESUME.* not 'PAUSE'", "ALTER DYNAMIC TABLE"),
        (A + "SUSPEND NOW", "NOW", "should end here; there is 'NOW'", "ALTER DYNAMIC TABLE"),
        (A + "REFRESH FULLY", "FULLY", "should end here", "ALTER DYNAMIC TABLE"),
        (A + "RENAME x", "x", "TO should stand here", "RENAME TO"),
        (A + "RENAME TO", None, "the new name should stand here", "write a name"),
        (A + "SET", None, "a property should stand here, not the end", "the properties are"),
        (A + "SET PRIORITY = 1,", None, "a property should stand here", "the properties are"),
        (A + "SET PRIORITY = 1 PRIORITY = 2", "PRIORITY = 2", "twice", "keep one"),
        (A + "SET DIALECT = 'spark'", "DIALECT", "ALTER can't change DIALECT", "CREATE OR ALTER"),
        (A + "SET INITIALIZE = ON_CREATE", "INITIALIZE", "ALTER can't change INITIALIZE", "CREATE OR ALTER"),
        (A + "SET PARTITION BY (a)", "PARTITION", "ALTER can't change PARTITION BY", "CREATE OR ALTER"),
        (A + "UNSET TARGET_LAG", "TARGET_LAG", "no default", "SET TARGET_LAG"),
        (A + "UNSET DEDUPLICATION", "DEDUPLICATION", "no default", "SET DEDUPLICATION"),
        (A + "UNSET", None, "a property should stand here", "the properties are"),
        ("ALTER DYNAMIC TABLE a, b SET PRIORITY = 1", "SET", "for one table at a time", "one statement for each"),
        ("ALTER DYNAMIC TABLE a, b RENAME TO c", "RENAME", "for one table at a time", "one statement for each"),
        ("ALTER DYNAMIC TABLE a, REFRESH", None, "not the end", "ALTER DYNAMIC TABLE"),
        ("ALTER DYNAMIC VIEW a REFRESH", "ALTER", "no statement about dynamic", "ALTER DYNAMIC TABLE"),
        # the rest
        ("DROP DYNAMIC TABLE a, b", ",", "for one table at a time", "one statement for each"),
        ("DROP DYNAMIC TABLE IF a", "a", "EXISTS should stand here", "DROP DYNAMIC TABLE"),
        ("DROP DYNAMIC TABLE a NOW", "NOW", "should end here", "DROP DYNAMIC TABLE"),
        ("SHOW DYNAMIC TABLE", "SHOW", "no statement about", "SHOW DYNAMIC TABLES"),
        ("SHOW DYNAMIC TABLES LIKE x", "x", "a pattern in quotes", "LIKE 'pattern'"),
        ("SHOW DYNAMIC TABLES IN s", "IN", "should end here", "SHOW DYNAMIC TABLES"),
        ("DESCRIBE DYNAMIC TABLE", None, "a table's name should stand here", "write a name"),
        ("EXPLAIN REFRESH a b", "b", "should end here", "EXPLAIN REFRESH name"),
    ],
)  # fmt: skip
def test_refusals_name_the_place_and_the_remedy(text, at, told, remedy):
    offset = len(text.rstrip()) if at is None else text.rindex(at)
    place = Position().within(text, offset).place("f.sql")
    with pytest.raises(BadStatement) as caught:
        list(parse_script(text, "f.sql"))
    error = caught.value
    assert error.place == place
    assert re.search(told, error.message), error.message
    assert re.search(remedy, error.remedy), error.remedy
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "line 1, column 1"),
        ("SELECT 1", "line 1, column 1"),
        (L + "AS SELECT 1;\nSELECT 2", "line 2, column 1"),
        ("SELECT 2;" + L + "AS SELECT 1", "line 1, column 1"),
    ],
)
def test_one_definition_is_asked_for(text, place):
    with pytest.raises(BadStatement, match="one CREATE DYNAMIC TABLE") as caught:
        parse_definition(text)
    assert caught.value.place == place


# ---------------------------------------------------------------- there and back
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
idents = texts.filter(bool) | st.sampled_from(["select", "AS", "a", "Ab", "full", "target_lag", "é", '"', "IF", "if"])
pieces = st.sampled_from(["a", "year(d)", "bucket(4, x)", '"a, b"', "coalesce(a, ')')", "a[1]", "x -- no, )\n+ 1"])
queries = st.sampled_from(
    ["SELECT 1", "FROM t", "SELECT ';', $$;$$", "WITH a AS (SELECT 1)\nSELECT *\n\tFROM a", "(VALUES (1, 'x'))"]
)
definitions = st.builds(
    Definition,
    name=st.builds(QualifiedName, idents, idents),
    query=queries,
    target_lag=st.integers(1, round(LONGEST_LAG.total_seconds())).map(lambda s: TargetLag(timedelta(seconds=s)))
    | st.just(DOWNSTREAM),
    columns=st.lists(idents, max_size=3, unique_by=lambda name: name.lower()).map(tuple),
    refresh_mode=st.sampled_from([mode for mode in RefreshMode if mode is not RefreshMode.FULL]),
    strict=st.booleans(),
    cardinality_threshold=st.floats(0, 1),
    initialize=st.sampled_from(Initialize),
    scheduler=st.booleans(),
    priority=st.integers(-1000, 1000),
    spark_profile=st.none() | texts.map(str.strip).filter(bool),
    dialect=st.sampled_from(Dialect),
    partition_by=st.lists(pieces, max_size=3).map(tuple),
    comment=st.none() | texts,
)


@settings(max_examples=300, deadline=None)
@given(definitions)
def test_a_definition_prints_and_reads_back(definition):
    text = to_sql(definition)
    found = parse_definition(f"-- {len(text)}\n{text};").definition
    assert found == definition
    assert (found.name.schema, found.name.name) == (definition.name.schema, definition.name.name)
    assert to_sql(found) == text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*L.split(), *A.split(), "SET", "(", ")", ",", "=", "'x'", ";", "1", "\n", "AS", "é"])))
def test_any_words_are_read_or_refused_with_a_place(words):
    refused = None
    try:
        list(parse_script(" ".join(words)))
    except BadStatement as error:
        refused = error
    assert refused is None or (refused.place and refused.remedy)
