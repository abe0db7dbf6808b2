"""One expression of a query in Spark's words, from its leaves up: columns, constants, casts, CASE, calls, windows.

``core/dialect`` knows the relations and asks here for everything inside them. A subquery is handed back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from lakemill.core import ducktypes as t
from lakemill.core.aggregates import AGGREGATES, LISTS, Key
from lakemill.core.algebra import Expr
from lakemill.core.casts import explicit, implicit
from lakemill.core.ducktypes import Type, quote
from lakemill.core.functions import NUMBERS, Call, Rule, struct_field, unified
from lakemill.core.literals import literal
from lakemill.core.membership import filters, known_or_null
from lakemill.core.names import fold
from lakemill.core.operators import OPERATORS, compared, truth
from lakemill.core.texts import TEXTS
from lakemill.core.times import TIMES
from lakemill.core.value import Refused, Value, cast_sql, string
from lakemill.core.windows import SKIPPING, WINDOWS, order_and_frame, whole

SCALARS: Mapping[str, Rule] = {**OPERATORS, **NUMBERS, **TEXTS, **TIMES}
FORMS = (
    "Cast",
    "TryCast",
    "Case",
    "If",
    "Bracket",
    "Dot",
    "Struct",
    "Escape",
    "Window",
    "Filter",
    "Exists",
    "Subquery",
)
"""What has a form of its own here, beside functions and operators."""
KNOWN = frozenset({*SCALARS, *AGGREGATES, *LISTS, *WINDOWS, *FORMS})
# What sqlglot notes about a node without changing what it says in DuckDB
_NOTES = {
    "typed", "safe", "coalesce", "big_int", "is_left", "position", "negate", "single_replace", "null_if_pos_overflow",
    "ignore_nulls", "date_part_boundary", "charset", "value_constructor", "copy", "nulls_first", "abbreviated",
}  # fmt: skip
_REMEDIES = {
    "First": "use min or max, or row_number() with an order that leaves no ties",
    "Last": "use min or max, or row_number() with an order that leaves no ties",
    "AnyValue": "use min or max",
    "ArgMax": "ties have no one answer: use row_number() with an order that leaves no ties",
    "ArgMin": "ties have no one answer: use row_number() with an order that leaves no ties",
    "Mode": "ties have no one answer: count, and use row_number() with an order that leaves no ties",
    "Tuple": "compare the columns one by one, with AND",
    "Collate": "compare lower(…) of both sides",
}


@dataclass(slots=True)
class Scope:
    """The columns that an expression can name: by alias of their relation, and by name alone."""

    relations: list[tuple[str, dict[str, tuple[str, Type]]]] = field(default_factory=list)
    outer: Scope | None = None
    seen: bool = False
    """Whether a column of it was found."""

    def add(self, alias: str, columns: Mapping[str, Type]) -> None:
        self.relations.append((fold(alias), {fold(name): (name, type_) for name, type_ in columns.items()}))

    def find(self, table: str, name: str) -> Value | None:
        for alias, columns in self.relations:
            if (not table or alias == fold(table)) and (known := columns.get(fold(name))) is not None:
                self.seen = True
                shown = f"{quote(alias)}.{quote(known[0])}" if table else quote(known[0])
                return Value(shown, known[1])
        found = self.outer.find(table, name) if self.outer is not None else None
        self.seen |= found is not None
        return found


def key(node: Expr) -> str:
    """The name under which an allow-list has a node."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__


@dataclass(frozen=True, slots=True)
class Expressions:
    """``query`` translates a subquery: its text, and its columns."""

    scope: Scope
    query: Callable[[Expr, Scope], tuple[str, dict[str, Type]]]

    def value(self, node: Expr) -> Value:
        form = _FORMS.get(type(node))
        if form is not None:
            return form(self, node)
        if (rule := SCALARS.get(key(node))) is not None:
            return rule(self._call(node))
        if key(node) in AGGREGATES or key(node) in LISTS:
            return self._aggregate(node, "")
        raise self._unknown(node)

    def condition(self, node: Expr) -> str:
        return truth(self.value(node), Call(node, []))

    def _unknown(self, node: Expr) -> Refused:
        name = key(node.this if isinstance(node, exp.IgnoreNulls) else node)
        told = node.sql("duckdb")
        if name in WINDOWS:
            return Refused(node, f"{told} stands without OVER", "add OVER (…)")
        remedy = _REMEDIES.get(name, "write it with functions that both engines share")
        return Refused(node, f"{told}: DuckDB and Spark are not known to give the same answer for it", remedy)

    def _call(self, node: Expr, over: str = "") -> Call:
        if isinstance(node, exp.UnixToTime | exp.DateTrunc | exp.SHA2):  # the rest of these is part of the name
            return Call(node, [self.value(node.this)])
        values = []
        for name in node.arg_types:
            part = node.args.get(name)
            for each in part if isinstance(part, list) else [part]:
                if isinstance(each, exp.Var | exp.DataType | exp.Star):
                    continue
                if isinstance(each, exp.Distinct):
                    values += [self._tuple(inner) for inner in each.expressions]
                elif isinstance(each, exp.Expr):
                    values.append(self.value(each))
                elif each and name not in _NOTES and name != "this":
                    raise Refused(node, f"{node.sql('duckdb')}: {name} is not translated", "leave it out")
        return Call(node, values, over)

    def _tuple(self, node: Expr) -> Value:
        """``count(DISTINCT (a, b))``: a row is something, also where all of it is NULL."""
        if isinstance(node, exp.Tuple):
            values = [self.value(each) for each in node.expressions]
            return Value(f"struct({', '.join(value.sql for value in values)})", Type("STRUCT"))
        return self.value(node)

    # ------------------------------------------------------------ leaves
    def _column(self, node: Expr) -> Value:
        parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else [node.name]
        for split in (1, 2) if len(parts) > 1 else (1,):
            table, name, rest = (
                (parts[0], parts[1], parts[2:]) if split == 1 and len(parts) > 1 else ("", parts[0], parts[1:])
            )
            found = self.scope.find(table, name)
            if found is None and len(parts) > 2 and split == 1:  # schema.table.column
                found, rest = self.scope.find(parts[-2], parts[-1]), []
            if found is not None:
                for step in rest:
                    found = struct_field(found, step, node)
                return found
        raise Refused(node, f"there is no column {node.sql('duckdb')} here", "name a column of the query's tables")

    def _placeholder(self, node: Expr) -> Value:
        return Value(f":{node.name}", t.VARCHAR)

    # ------------------------------------------------------------ forms
    def _cast(self, node: Expr) -> Value:
        to = t.of(node.args["to"])
        if to is None or not t.shared(to) or node.args.get("format"):
            raise Refused(
                node, f"{node.args['to'].sql('duckdb')} is a type that Spark does not share", "cast to another"
            )
        inner = node.this
        if isinstance(inner, exp.Placeholder):
            return Value(cast_sql(f":{inner.name}", to), to)
        if to == t.BIGINT and isinstance(inner, exp.Sum) and not isinstance(node, exp.TryCast):
            quick = self._quick_sum(inner)
            if quick is not None:
                return quick
        # 1::INTEGER has a type of its own, other than 1, which takes that of what it stands beside
        return replace(explicit(self.value(inner), to, node, safe=isinstance(node, exp.TryCast)), constant=None)

    def _quick_sum(self, node: Expr) -> Value | None:
        """A sum of integers that is wanted as BIGINT needs no decimal on the way: weights of every delta are such."""
        if isinstance(node.this, exp.Distinct):
            return None
        value = self.value(node.this)
        if t.signed(value.type) and value.type != t.HUGEINT:
            return Value(f"sum({cast_sql(value.sql, t.BIGINT)})", t.BIGINT)
        return None

    def _case(self, node: Expr) -> Value:
        branches = node.args["ifs"]
        subject = self.value(node.this) if node.this is not None else None
        conditions = []
        for branch in branches:
            if subject is None:
                conditions.append(self.condition(branch.this))
            else:
                conditions.append(compared("=")(Call(branch, [subject, self.value(branch.this)])).sql)
        results = [self.value(branch.args["true"]) for branch in branches]
        default = node.args.get("default")
        values = unified([*results, *([self.value(default)] if default is not None else [])], node)
        return _chosen(conditions, values)

    def _if(self, node: Expr) -> Value:
        results = [self.value(node.args[part]) for part in ("true", "false") if node.args.get(part) is not None]
        return _chosen([self.condition(node.this)], unified(results, node))

    def _bracket(self, node: Expr) -> Value:
        value = self.value(node.this)
        (index,) = node.expressions if len(node.expressions) == 1 else (None,)
        if isinstance(index, exp.Literal) and index.is_string:
            return struct_field(value, index.name, node)
        number = whole(index)
        if value.type.name != "LIST" or number is None:
            raise Refused(
                node, f"{node.sql('duckdb')} is not translated", "use a constant place of a list, or substring"
            )
        place = number + 1  # sqlglot counts from zero
        if place == 0:
            return Value(f"CAST(NULL AS {t.spark(value.type.element)})", value.type.element)
        return Value(f"try_element_at({value.sql}, {place})", value.type.element)

    def _dot(self, node: Expr) -> Value:
        return struct_field(self.value(node.this), node.expression.name, node)

    def _struct(self, node: Expr) -> Value:
        parts, fields = [], []
        for part in node.expressions:
            if not isinstance(part, exp.PropertyEQ):
                raise self._unknown(node)
            value = self.value(part.expression)
            value = implicit(value, t.VARCHAR, node) if value.type == t.STRING_LITERAL else value
            parts += [string(part.this.name), value.sql]
            fields.append((part.this.name, value.type))
        return Value(f"named_struct({', '.join(parts)})", Type("STRUCT", fields=tuple(fields)))

    def _escape(self, node: Expr) -> Value:
        inner = node.this
        if not isinstance(inner, exp.Like | exp.ILike):
            raise self._unknown(node)
        call = self._call(inner)
        return SCALARS[key(inner)](Call(inner, [*call.args, self.value(node.expression)]))

    # ------------------------------------------------------------ aggregates, windows
    def _aggregate(self, node: Expr, over: str) -> Value:
        return self._listed(node, over) if key(node) in LISTS else AGGREGATES[key(node)](self._call(node, over))

    def _listed(self, node: Expr, over: str) -> Value:
        """list and string_agg, whose order is said."""
        if not isinstance(node.this, exp.Order):
            raise Refused(node, f"{node.sql('duckdb')} has no order, so no one answer", "add an ORDER BY inside")
        inner = node.this.this
        distinct = isinstance(inner, exp.Distinct)
        value = self.value(inner.expressions[0] if distinct else inner)
        keys = [
            Key(self.sortable(item.this).sql, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))
            for item in node.this.expressions
        ]
        rest = [self.value(node.args["separator"])] if node.args.get("separator") is not None else []
        return LISTS[key(node)](Call(node, [value, *rest], over), keys, distinct)

    def _filter(self, node: Expr) -> Value:
        if key(node.this) not in AGGREGATES and key(node.this) not in LISTS:
            raise self._unknown(node.this)
        return self._aggregate(node.this, f" FILTER (WHERE {self.condition(node.expression.this)})")

    def _window(self, node: Expr) -> Value:
        function, nulls = node.this, ""
        if isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
            nulls = " IGNORE NULLS" if isinstance(function, exp.IgnoreNulls) else ""
            function = function.this
        name = key(function)
        rule = WINDOWS.get(name) or AGGREGATES.get(name)
        if rule is None:
            raise self._unknown(function)
        if nulls and name not in SKIPPING:
            raise Refused(node, f"{name} with IGNORE NULLS is not known to Spark", "leave IGNORE NULLS out")
        if node.args.get("alias") is not None:
            raise Refused(node, "a named window is not translated", "write the window out")
        if isinstance(function.this, exp.Distinct):
            raise Refused(node, "DISTINCT in a window is not known to Spark", "aggregate in a subquery")
        return rule(self._call(function, f"{nulls} OVER ({self._window_parts(node, name)})"))

    def _window_parts(self, node: Expr, function: str) -> str:
        partition, order = node.args.get("partition_by"), node.args.get("order")
        parts = ["PARTITION BY " + ", ".join(self.grouped(each).sql for each in partition)] if partition else []
        ordered = [self.ordered(each) for each in order.expressions] if order is not None else []
        return " ".join([*parts, *order_and_frame(node, function, ordered)])

    # ------------------------------------------------------------ keys
    def grouped(self, node: Expr) -> Value:
        """A key of GROUP BY or PARTITION BY: of a type that both engines find equal alike."""
        value = self.value(node)
        if not t.groupable(value.type):
            raise Refused(node, f"{value.type} is not compared alike in both engines", "use its parts as keys")
        return value

    def sortable(self, node: Expr) -> Value:
        value = self.value(node)
        if not t.comparable(value.type):
            raise Refused(node, f"{value.type} is not ordered alike in both engines", "order by its parts")
        return value

    def ordered(self, node: Expr) -> str:
        """An item of ORDER BY, with the place of NULLs said: the engines' defaults differ."""
        inner = node.this if isinstance(node, exp.Ordered) else node
        direction = "DESC" if node.args.get("desc") else "ASC"
        return f"{self.sortable(inner).sql} {direction} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"

    # ------------------------------------------------------------ subqueries
    def _exists(self, node: Expr) -> Value:
        text, _ = self.query(node.this, self.scope)
        return Value(f"EXISTS ({text})", t.BOOLEAN)

    def _scalar(self, node: Expr) -> Value:
        text, columns = self.query(node.this, self.scope)
        if len(columns) != 1:
            raise Refused(node, "a subquery that stands for a value has one column", "select one column")
        return Value(f"({text})", next(iter(columns.values())))

    def _in(self, node: Expr) -> Value:
        inner = node.args.get("query")
        if inner is None:
            if node.args.get("unnest") or node.args.get("field"):
                raise self._unknown(node)
            return SCALARS["In"](Call(node, [self.value(node.this), *(self.value(each) for each in node.expressions)]))
        around = Scope(self.scope.relations, self.scope.outer)
        text, columns = self.query(inner.unnest(), around)
        value = self.value(node.this)
        ((name, type_),) = columns.items() if len(columns) == 1 else (("", t.NULL),)
        wide = t.common(value.type, type_)
        if wide is None or not t.comparable(wide):
            raise Refused(node, f"{value.type} is looked for among {type_}", "cast one of them")
        if wide != t.compared(value.type, type_):  # DuckDB rounds here, and not where they are compared by =
            raise Refused(node, f"{value.type} is looked for among {type_}, rounded", "cast both to one type")
        if wide != type_:
            among = implicit(Value(quote(name), type_), wide, node).sql
            text = " ".join(["SELECT", among, f"FROM ({text})"])
        if around.seen and not filters(node) and node.this.find(exp.AggFunc, exp.Window, exp.Query):
            told = "an aggregate, a window or a subquery is looked for in a correlated subquery"
            raise Refused(node, told, "select it in a subquery of FROM")
        mine = implicit(value, wide, node).sql
        found = f"({mine} IN ({text}))"
        return Value(found if filters(node) else known_or_null(mine, text, found, around.seen), t.BOOLEAN)


def _chosen(conditions: list[str], values: list[Value]) -> Value:
    parts = [f"WHEN {one} THEN {value.sql}" for one, value in zip(conditions, values, strict=False)]
    rest = f" ELSE {values[-1].sql}" if len(values) > len(conditions) else ""
    return Value(f"CASE {' '.join(parts)}{rest} END", values[0].type)


_FORMS: Mapping[type, Callable[[Expressions, Expr], Value]] = {
    exp.Column: Expressions._column,
    exp.Literal: lambda _, node: literal(node),
    exp.Null: lambda _, node: Value("NULL", t.NULL),
    exp.Boolean: lambda _, node: Value("TRUE" if node.this else "FALSE", t.BOOLEAN),
    exp.Placeholder: Expressions._placeholder,
    exp.Paren: lambda self, node: self.value(node.this),
    exp.Alias: lambda self, node: self.value(node.this),
    exp.Cast: Expressions._cast,
    exp.TryCast: Expressions._cast,
    exp.Case: Expressions._case,
    exp.If: Expressions._if,
    exp.Bracket: Expressions._bracket,
    exp.Dot: Expressions._dot,
    exp.Struct: Expressions._struct,
    exp.Escape: Expressions._escape,
    exp.Filter: Expressions._filter,
    exp.Window: Expressions._window,
    exp.Exists: Expressions._exists,
    exp.Subquery: Expressions._scalar,
    exp.In: Expressions._in,
}
