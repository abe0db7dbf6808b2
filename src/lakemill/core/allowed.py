"""What a stranger's SQL may contain: an allow-list over the tree that DuckDB's own parser makes of it.

In comes the tree as ``json_serialize_sql`` writes it, so what is judged is what will be run, whatever quotes, comments
and letters the text has. Every node and every field must be known here; a new one is refused until somebody has looked
at it. Out come the tables that it names, outside of its own WITH, in the order of their places, and the columns that it
compares. Whether there are such tables is not asked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakemill.core.harmless import FUNCTIONS, TABLE_FUNCTIONS
from lakemill.core.names import fold
from lakemill.core.position import START, Position
from lakemill.errors import QueryRefused

CATALOG = "lake"
_SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog"})
_NOWHERE = 1 << 62  # DuckDB's word for "no place" is the largest number

# Expressions, by class.
_EXPRESSIONS = {
    "BETWEEN": "input lower upper",
    "CASE": "case_checks else_expr",
    "CAST": "cast_type child try_cast",
    "COLLATE": "child collation",
    "COLUMN_REF": "column_names",
    "COMPARISON": "left right",
    "CONJUNCTION": "children",
    "CONSTANT": "value",
    "DEFAULT": "",
    "FUNCTION": "catalog children distinct export_state filter function_name is_operator order_bys schema",
    "LAMBDA": "expr lhs syntax_type",
    "OPERATOR": "children",
    "PARAMETER": "identifier",
    "POSITIONAL_REFERENCE": "index",
    "STAR": "columns exclude_list expr qualified_exclude_list relation_name rename_list replace_list",
    "SUBQUERY": "child comparison_type subquery subquery_type",
    "WINDOW": "arg_orders catalog children default_expr distinct end end_expr exclude_clause filter_expr function_name"
    " ignore_nulls offset_expr orders partitions schema start start_expr",
}
# Tables, queries, modifiers and types, by type.
_NODES = {
    "ARRAY_TYPE_INFO": "child_type size",
    "ASCENDING": "expression null_order",
    "BASE_TABLE": "alias at_clause catalog_name column_name_alias query_location sample schema_name table_name",
    "DECIMAL_TYPE_INFO": "scale width",
    "DESCENDING": "expression null_order",
    "DISTINCT_MODIFIER": "distinct_on_targets",
    "EMPTY": "alias query_location",
    "EXPRESSION_LIST": "alias column_name_alias expected_names expected_types query_location values",
    "JOIN": "alias condition delim_flipped delim_type duplicate_eliminated_columns is_implicit join_type left"
    " query_location ref_type right sample using_columns",
    "LIMIT_MODIFIER": "limit offset",
    "LIMIT_PERCENT_MODIFIER": "limit offset",
    "LIST_TYPE_INFO": "child_type",
    "ORDER_DEFAULT": "expression null_order",
    "ORDER_MODIFIER": "orders",
    "PIVOT": "aggregates alias column_name_alias groups include_nulls pivots query_location sample source"
    " unpivot_names",
    "RECURSIVE_CTE_NODE": "aliases cte_map cte_name key_targets left modifiers right union_all",
    "SELECT_NODE": "aggregate_handling cte_map from_table group_expressions group_sets having modifiers qualify sample"
    " select_list where_clause",
    "SET_OPERATION_NODE": "children cte_map left modifiers right setop_all setop_type",
    "SHOW_REF": "alias query query_location show_type table_name",
    "STRUCT_TYPE_INFO": "child_types",
    "SUBQUERY": "alias column_name_alias query_location sample subquery",
    "TABLE_FUNCTION": "alias column_name_alias function query_location sample with_ordinality",
    "UNBOUND_TYPE_INFO": "name user_type_modifiers",
}
# What has no name of its own.
_LOOSE = (
    "aliases key_targets materialized query",
    "column",
    "entries pivot_expressions unpivot_names",
    "first second",
    "id type_info",
    "is_percentage method sample_size seed",
    "key value",
    "map",
    "named_param_map node",
    "then_expr when_expr",
    "alias star_expr values",
)
_EXPRESSION_FIELDS = {
    name: frozenset(f"alias class query_location type {f}".split()) for name, f in _EXPRESSIONS.items()
}
_NODE_FIELDS = {name: frozenset(f"type {fields}".split()) for name, fields in _NODES.items()}
_LOOSE_FIELDS = tuple(frozenset(fields.split()) for fields in _LOOSE)
_VALUE_FIELDS = frozenset({"type", "is_null", "value"})
_SHOWN = frozenset({"DESCRIBE", "SUMMARY"})


@dataclass(frozen=True, slots=True)
class Named:
    """A table as the text names it; ``schema`` is empty where none was written."""

    schema: str
    name: str
    at: Position


@dataclass(frozen=True, slots=True)
class Allowed:
    tables: tuple[Named, ...]
    compared: frozenset[str]
    """Columns, folded, that a WHERE or an ON looks at: their bounds can spare a file."""
    cuts_inside: bool
    """Whether a LIMIT or a sample stands below the outermost query."""


def allowed(tree: Mapping[str, Any], text: str) -> Allowed:
    """The tables of a statement in which there is nothing but what is known to be harmless; else ``QueryRefused``."""
    return _Walk(text).done(tree)


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._bytes = text.encode()
        self._tables: list[Named] = []
        self._compared: set[str] = set()
        self._cuts = 0
        # (what, names of WITH in reach, inside a WHERE or ON); no recursion, for texts that nest deeply
        self._stack: list[tuple[Any, frozenset[str], bool]] = []

    def done(self, tree: Mapping[str, Any]) -> Allowed:
        statements = tree.get("statements")
        if tree.get("error") or not isinstance(statements, list) or len(statements) != 1:
            raise QueryRefused("it is not one SELECT")
        self._stack.append((statements[0], frozenset(), False))
        while self._stack:
            node, scope, comparing = self._stack.pop()
            if isinstance(node, list):
                self._stack += [(item, scope, comparing) for item in node]
            elif isinstance(node, Mapping):
                self._visit(node, scope, comparing)
        outermost = statements[0].get("node", {}).get("modifiers", ())
        top = sum(str(m.get("type", "")).startswith("LIMIT") for m in outermost if isinstance(m, Mapping))
        tables = tuple(sorted(self._tables, key=lambda table: table.at.offset))
        return Allowed(tables, frozenset(self._compared), self._cuts > top)

    def _visit(self, node: Mapping[str, Any], scope: frozenset[str], comparing: bool) -> None:
        if "class" in node:
            self._expression(node, comparing)
        elif isinstance(node.get("type"), str):
            scope = self._node(node, scope)
        elif node.keys() <= _VALUE_FIELDS:
            return  # a constant: whatever is in it, it is a value
        elif not any(node.keys() <= fields for fields in _LOOSE_FIELDS):
            raise self._refusal(f"it has a part that is not known ({', '.join(sorted(node))})", node)
        self._stack += [
            (value, scope, comparing or key in ("where_clause", "condition")) for key, value in self._parts(node)
        ]

    def _parts(self, node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        if node.get("type") == "TABLE_FUNCTION":  # its function was judged as one of a table
            yield from node["function"].items()
            return
        yield from ((key, value) for key, value in node.items() if key != "cte_map")

    # ------------------------------------------------------------ expressions
    def _expression(self, node: Mapping[str, Any], comparing: bool) -> None:
        kind = node["class"]
        self._known(node, _EXPRESSION_FIELDS.get(kind), kind)
        if kind in ("FUNCTION", "WINDOW"):
            self._function(node, FUNCTIONS)
        elif kind == "COLUMN_REF" and comparing:
            self._compared |= {fold(str(name)) for name in node.get("column_names", ())}

    def _function(self, node: Mapping[str, Any], known: frozenset[str]) -> None:
        name = str(node.get("function_name", ""))
        # the parser itself writes main before some; a catalog is nobody's habit
        if node.get("catalog") or node.get("schema", "main") != "main" or fold(name) not in known:
            raise self._refusal(f"the function {name} is not one that queries may call", node)

    # ------------------------------------------------------------ tables and queries
    def _node(self, node: Mapping[str, Any], scope: frozenset[str]) -> frozenset[str]:
        kind = node["type"]
        self._known(node, _NODE_FIELDS.get(kind), kind)
        if kind == "BASE_TABLE":
            self._table(node, scope)
        elif kind == "TABLE_FUNCTION":
            function = node.get("function")
            if not isinstance(function, Mapping) or function.get("class") != "FUNCTION":
                raise self._refusal("it has a table function that is not known", node)
            self._known(function, _EXPRESSION_FIELDS["FUNCTION"], "FUNCTION")
            self._function(function, TABLE_FUNCTIONS)
        elif kind == "SHOW_REF" and (node.get("show_type") not in _SHOWN or not node.get("query")):
            raise self._refusal("SHOW is not for queries", node, remedy="DESCRIBE a table or a query")
        elif kind.startswith("LIMIT"):
            self._cuts += 1
        if node.get("sample"):
            self._cuts += 1
        return self._with(node, scope)

    def _with(self, node: Mapping[str, Any], scope: frozenset[str]) -> frozenset[str]:
        """What WITH adds: each name is known to those after it, and to itself only where it is recursive."""
        if node["type"] == "RECURSIVE_CTE_NODE":
            scope |= {fold(str(node.get("cte_name", "")))}
        named = node.get("cte_map") or {}
        if not named.keys() <= {"map"}:
            raise self._refusal("it has a WITH that is not known", node)
        for entry in named.get("map", ()):
            if not entry.keys() <= {"key", "value"}:
                raise self._refusal("it has a WITH that is not known", node)
            self._stack.append((entry["value"], scope, False))
            scope |= {fold(str(entry["key"]))}
        return scope

    def _table(self, node: Mapping[str, Any], scope: frozenset[str]) -> None:
        catalog, schema, name = (str(node.get(f"{part}_name", "")) for part in ("catalog", "schema", "table"))
        if node.get("at_clause"):
            raise self._refusal(
                "AT is not for queries", node, remedy="ask for the snapshot with the query, for all tables"
            )
        if not catalog and not schema and fold(name) in scope:
            return
        if catalog and fold(catalog) != CATALOG:
            raise self._refusal(f"there is no catalog {catalog}", node, remedy="write schema.table")
        if fold(schema) in _SYSTEM_SCHEMAS:
            raise self._refusal(
                f"the schema {schema} is the engine's own", node, remedy="ask for the list of tables instead"
            )
        self._tables.append(Named(schema, name, self._place(node)))

    # ------------------------------------------------------------ refusals
    def _known(self, node: Mapping[str, Any], fields: frozenset[str] | None, kind: str) -> None:
        if fields is None:
            raise self._refusal(f"it has a part that is not known ({kind})", node)
        if not node.keys() <= fields:
            raise self._refusal(
                f"it has a part that is not known ({kind}: {', '.join(sorted(node.keys() - fields))})", node
            )

    def _refusal(self, message: str, node: Mapping[str, Any], remedy: str | None = None) -> QueryRefused:
        return QueryRefused(message, place=self._place(node).place(), remedy=remedy)

    def _place(self, node: Mapping[str, Any]) -> Position:
        found = node.get("query_location")
        if not isinstance(found, int) or not 0 <= found < _NOWHERE:
            return START
        return START.within(self._text, len(self._bytes[:found].decode(errors="ignore")))
