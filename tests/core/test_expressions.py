"""What the shape of a query and its translation must agree on: which functions are aggregates."""

from __future__ import annotations

from random import Random

import duckdb
import pytest
from sqlglot import exp

from lakemill.core.aggregates import AGGREGATES, LISTS
from lakemill.core.algebra import Aggregate, Node, children
from lakemill.core.expressions import SPELLINGS
from tests.core.test_delta import check, fill, tree_of

# One call of each name that ``core/aggregates`` allows, as DuckDB spells it.
CALLS = {
    "Count": "count(v)",
    "Sum": "sum(v)",
    "Avg": "avg(v)",
    "mean": "mean(v)",
    "Min": "min(v)",
    "Max": "max(v)",
    "LogicalAnd": "bool_and(v > 1)",
    "LogicalOr": "bool_or(v > 1)",
    "CountIf": "count_if(v > 1)",
    "Stddev": "stddev(v)",
    "StddevSamp": "stddev_samp(v)",
    "StddevPop": "stddev_pop(v)",
    "Variance": "variance(v)",
    "VariancePop": "var_pop(v)",
    "Median": "median(v)",
    "PercentileCont": "quantile_cont(v, 0.3)",
    "PercentileDisc": "quantile_disc(v, 0.3)",
    "Quantile": "quantile(v, 0.3)",
    "BitwiseAndAgg": "bit_and(v)",
    "BitwiseOrAgg": "bit_or(v)",
    "BitwiseXorAgg": "bit_xor(v)",
    "ArrayAgg": "list(v ORDER BY v)",
    "GroupConcat": "string_agg(name, ',' ORDER BY name)",
}


def aggregates(node: Node) -> list[Aggregate]:
    found = [node] if isinstance(node, Aggregate) else []
    return found + [inner for child in children(node) for inner in aggregates(child)]


def test_the_list_is_whole() -> None:
    assert set(CALLS) == {*AGGREGATES, *LISTS}
    for name in CALLS:
        assert name in SPELLINGS or issubclass(getattr(exp, name), exp.AggFunc)


@pytest.mark.parametrize("name", CALLS)
def test_every_aggregate_is_one_to_the_shape(name: str) -> None:
    call = CALLS[name]
    (found,) = aggregates(tree_of(f"SELECT k, {call} AS x FROM r GROUP BY k"))
    assert [type(value) for _, value in found.values] == [SPELLINGS.get(name) or getattr(exp, name)]
    (found,) = aggregates(tree_of(f"SELECT k, {call} AS x FROM r GROUP BY ALL"))
    assert len(found.keys) == 1
    (found,) = aggregates(tree_of(f"SELECT {call} AS x FROM r"))
    assert found.keys == ()


@pytest.mark.parametrize("call", ["mean(v)", "mean(DISTINCT v)", "mean(k)", "mean(v) FILTER (WHERE v > 1)"])
def test_mean_by_its_key(call: str) -> None:
    """What is inside an aggregate is a row's, also where the same is a key."""
    query = f"SELECT k, {call} AS m FROM r GROUP BY k"
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for seed in range(4):
            check(connection, query, tree_of(query), fill(connection, Random(seed)) | {0})
