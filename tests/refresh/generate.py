"""Random nested queries over a random schema: all operators that have a rule for deltas, and some that have none.

Every query has one right answer. Whatever depends on an order (LIMIT, row_number, lists) is ordered by everything it
can see, so that only equal rows tie. Each column has a kind, which says what may be done with it: sums of ``real``
numbers depend on the order of their parts in the last bits, so those are shown and compared, and never summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.refresh.generate_data import Schema
from tests.refresh.generate_values import CONSTANTS, KINDS, Column, Values, of_kind, same


class Query(NamedTuple):
    text: str
    columns: list[Column]


class Source(NamedTuple):
    """What stands behind FROM, and the columns that it shows."""

    text: str
    columns: list[Column]


def query(rng: Random, schema: Schema) -> str:
    """A query of a random depth, up to four blocks inside each other."""
    return _Writing(rng, schema).whole(rng.choice([0, 1, 1, 2, 2, 3])).text


def seen_inside(columns: Sequence[Column]) -> list[Column]:
    """What a subquery can name: a column of USING has no table, and would be taken for one of its own."""
    return [column for column in columns if "." in column.text] or list(columns)


@dataclass
class _Writing(Values):
    schema: Schema
    tables: int = 6
    """How many may still be read: nested joins of everything with everything take too long."""
    ctes: list[Query] = field(default_factory=list)

    # ------------------------------------------------------------ queries
    def whole(self, depth: int) -> Query:
        named = []
        for _ in range(self.rng.choice([1, 1, 2]) if self.chance(0.2) else 0):
            body, name = self.query(max(0, depth - 1)), self.fresh("cte")
            named.append(f"{name} AS ({body.text})")
            self.ctes.append(Query(name, body.columns))
        found = self.query(depth)
        return Query(f"WITH {', '.join(named)} {found.text}" if named else found.text, found.columns)

    def query(self, depth: int) -> Query:
        shapes: list[tuple[Callable[[int], Query], float]] = [
            (self.plain, 3),
            (self.grouped, 4),
            (self.grouping_sets, 0.7),
            (self.everything, 0.8),
            (self.windowed, 2),
            (self.first_of_each, 0.6),
            (self.unnested, 0.4),
        ]
        if depth > 0 or self.chance(0.3):
            shapes += [(self.set_operation, 3), (self.top, 0.5)]
        (shape,) = self.rng.choices([shape for shape, _ in shapes], [weight for _, weight in shapes])
        return shape(depth)

    def plain(self, depth: int) -> Query:
        source = self.source(depth)
        items = [self.value(source.columns) for _ in range(self.rng.randrange(1, 5))]
        if self.chance(0.15) and (scalar := self.scalar(source.columns)) is not None:
            items.append(scalar)
        if self.chance(0.07) and (exists := self.exists(source.columns)) is not None:
            items.append(Column(exists, "bool"))
        shown, columns = self.shown(items)
        word = "SELECT DISTINCT" if self.chance(0.2) else "SELECT"
        return Query(f"{word} {shown} FROM {source.text}{self.where(source)}", columns)

    def grouped(self, depth: int) -> Query:
        source = self.source(depth)
        keys = [self.key(source.columns) for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3]))]
        items = [*(key for key in keys if self.chance(0.9)), *self.aggregates(source.columns, self.rng.randrange(4))]
        items = items or [Column("count(*)", "int")]
        over = self.chance(0.1)
        if over:
            items.append(Column(f"sum(count(*)) OVER (PARTITION BY {keys[0].text})", "int"))
        shown, columns = self.shown(items)
        by = ", ".join(key.text for key in keys)
        if self.chance(0.1) and not over and all(key in items for key in keys):
            by = "ALL"
        having = f" HAVING {self.having(source.columns)}" if self.chance(0.25) else ""
        return Query(f"SELECT {shown} FROM {source.text}{self.where(source)} GROUP BY {by}{having}", columns)

    def grouping_sets(self, depth: int) -> Query:
        source = self.source(depth)
        keys = list(dict.fromkeys(self.key(source.columns, plain=True) for _ in range(3)))
        texts = [key.text for key in keys]
        by = self.rng.choice([f"ROLLUP ({', '.join(texts)})", f"CUBE ({', '.join(texts[:2])})"])
        if self.chance(0.4):
            sets = [f"({', '.join(self.rng.sample(texts, self.rng.randrange(len(texts) + 1)))})" for _ in range(2)]
            by = f"GROUPING SETS ({', '.join(sets)})" + self.rng.choice(["", f", {texts[-1]}"])
        items = [*(key for key in keys if key.text in by), *self.aggregates(source.columns, self.rng.randrange(1, 3))]
        shown, columns = self.shown(items)
        return Query(f"SELECT {shown} FROM {source.text}{self.where(source)} GROUP BY {by}", columns)

    def everything(self, depth: int) -> Query:
        source = self.source(depth)
        shown, columns = self.shown(self.aggregates(source.columns, self.rng.randrange(1, 4)))
        having = f" HAVING {self.having(source.columns)}" if self.chance(0.15) else ""
        return Query(f"SELECT {shown} FROM {source.text}{self.where(source)}{having}", columns)

    def windowed(self, depth: int) -> Query:
        source = self.source(depth)
        partition = ", ".join(key.text for key in self.some(source.columns, 2))
        other = partition if self.chance(0.85) else self.rng.choice(source.columns).text
        by = f"PARTITION BY {partition}" if self.chance(0.92) else ""
        windows = [self.window(source.columns, by)]
        if self.chance(0.4):
            windows.append(self.window(source.columns, f"PARTITION BY {other}"))
        items = [self.value(source.columns) for _ in range(self.rng.randrange(1, 4))]
        qualify = ""
        if self.chance(0.35):
            test = self.window(source.columns, by, kinds=("int",))
            qualify = f" QUALIFY {test.text} {self.rng.choice(['=', '<=', '<='])} {self.rng.randrange(1, 3)}"
            windows = windows if self.chance(0.5) else []
        shown, columns = self.shown([*items, *windows])
        return Query(f"SELECT {shown} FROM {source.text}{self.where(source)}{qualify}", columns)

    def first_of_each(self, depth: int) -> Query:
        """DISTINCT ON, in an order that leaves no ties."""
        source = self.source(depth)
        keys = [key.text for key in self.some(source.columns, 2)]
        shown, columns = self.shown(self.some(source.columns, 4))
        order = f"{', '.join(keys)}, {self.total(source.columns)}"
        text = f"SELECT DISTINCT ON ({', '.join(keys)}) {shown} FROM {source.text}{self.where(source)} ORDER BY {order}"
        return Query(text, columns)

    def unnested(self, depth: int) -> Query:
        source = self.source(depth)
        lists = of_kind(source.columns, "list") or [Column(CONSTANTS["list"][0], "list")]
        items = [self.value(source.columns), Column(f"unnest({self.rng.choice(lists).text})", "int")]
        shown, columns = self.shown(items)
        return Query(f"SELECT {shown} FROM {source.text}{self.where(source)}", columns)

    def set_operation(self, depth: int) -> Query:
        """Both sides of the same kinds, more or less: an integer beside a decimal makes a decimal."""
        left = self.query(depth - 1)
        source = self.source(depth - 1)
        items, columns = [], []
        for column in left.columns:
            wanted = "dec" if column.kind == "int" and self.chance(0.1) else column.kind
            items.append(self.of(source.columns, wanted))
            columns.append(Column(column.name, wanted))
        shown, _ = self.shown(items)
        right = f"SELECT {shown} FROM {source.text}{self.where(source)}"
        word = self.rng.choice(["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL"])
        word = self.rng.choice(["INTERSECT", "INTERSECT ALL"]) if self.chance(0.12) else word
        first = (
            f"({left.text})" if any(f" {part} " in left.text for part in ("ORDER", "UNION", "EXCEPT")) else left.text
        )
        return Query(f"{first} {word} {right}", columns)

    def top(self, depth: int) -> Query:
        inner = self.query(depth - 1)
        alias = self.fresh("a")
        shown, columns = self.shown([Column(f"{alias}.{column.name}", column.kind) for column in inner.columns])
        offset = f" OFFSET {self.rng.randrange(1, 3)}" if self.chance(0.3) else ""
        order = self.total(columns)
        limit = self.rng.randrange(1, 5)
        return Query(f"SELECT {shown} FROM ({inner.text}) AS {alias} ORDER BY {order} LIMIT {limit}{offset}", columns)

    # ------------------------------------------------------------ FROM
    def relation(self, depth: int) -> Source:
        alias = self.fresh("a")
        self.tables -= 1
        if self.ctes and self.chance(0.6):
            name, columns = self.rng.choice(self.ctes)
        elif depth > 0 and self.tables > 0 and self.chance(0.7):
            body = self.query(depth - 1)
            name, columns = f"({body.text})", body.columns
        else:
            name = self.rng.choice(list(self.schema))
            columns = [Column(column, KINDS[type_]) for column, type_ in self.schema[name].items()]
        if name in self.schema and self.chance(0.04):  # a CTE hides the table, but not from itself
            name = f"(WITH {name} AS (SELECT * FROM {name}) SELECT * FROM {name})"
        listed = [self.fresh("n") for _ in columns[: self.rng.randrange(1, 3)]] if self.chance(0.06) else []
        columns = [Column(new, old.kind) for new, old in zip(listed, columns, strict=False)] + columns[len(listed) :]
        named = f"{alias}({', '.join(listed)})" if listed else alias
        return Source(f"{name} AS {named}", [Column(f"{alias}.{column.name}", column.kind) for column in columns])

    def source(self, depth: int) -> Source:
        found = self.relation(depth)
        while self.tables > 0 and self.chance(0.38):
            found = self.join(found, self.relation(depth - 1))
        lists = of_kind(found.columns, "list")
        if lists and self.chance(0.3):
            alias, name, value = self.fresh("a"), self.fresh("e"), self.rng.choice(lists).text
            left = self.chance(0.4)
            unnest = f"UNNEST({value}) AS {alias}({name})"
            joined = f"{found.text} LEFT JOIN {unnest} ON TRUE" if left else f"{found.text}, {unnest}"
            found = Source(joined, [*found.columns, Column(f"{alias}.{name}", "int")])
        return found

    def join(self, left: Source, right: Source) -> Source:
        words = ["JOIN"] * 5 + ["LEFT JOIN"] * 3 + ["RIGHT JOIN", "FULL JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
        word = self.rng.choice(words)
        both = [*left.columns, *right.columns]
        shared = (
            {one.name: one for one in left.columns} if len({c.name for c in left.columns}) == len(left.columns) else {}
        )
        named = [other for other in right.columns if other.name in shared and same(shared[other.name], other)]
        merged = [other for other in named if "." not in shared[other.name].text]  # by a join before this one
        if word not in ("SEMI JOIN", "ANTI JOIN") and named and self.chance(0.5 if merged else 0.15):
            named = merged or named
            name = self.rng.choice(named).name
            rest = [column for column in both if column.name != name]
            return Source(f"{left.text} {word} {right.text} USING ({name})", [Column(name, shared[name].kind), *rest])
        on = self.on(left.columns, right.columns)
        if word == "JOIN" and self.chance(0.1):
            return Source(f"{left.text} CROSS JOIN {right.text}", both)
        if word in ("SEMI JOIN", "ANTI JOIN"):
            both = left.columns
        return Source(f"{left.text} {word} {right.text} ON {on}", both)

    def on(self, left: Sequence[Column], right: Sequence[Column]) -> str:
        """Mostly an equality, sometimes with a residual, sometimes only that."""
        parts = [part for part in (self.equality(left, right) for _ in range(self.rng.choice([1, 1, 2]))) if part]
        if self.chance(0.25) or not parts:
            parts.append(self.theta(left, right))
        if self.chance(0.12):
            parts.append(self.comparison(self.rng.choice([left, right])))
        if len(parts) > 1 and self.chance(0.08):
            parts = parts[1:]
        return " AND ".join(dict.fromkeys(parts))

    def equality(self, left: Sequence[Column], right: Sequence[Column]) -> str | None:
        pairs = [(one, other) for one in left for other in right if same(one, other)]
        keys = [pair for pair in pairs if pair[0].name == pair[1].name == "k"]
        if not pairs:
            return None
        one, other = self.rng.choice(keys if keys and self.chance(0.6) else pairs)
        mine = f"{one.text} + 1" if one.kind == "int" and self.chance(0.1) else one.text
        word = "IS NOT DISTINCT FROM" if self.chance(0.07) else "="
        return f"{mine} {word} {other.text}" if self.chance(0.7) else f"{other.text} {word} {mine}"

    def theta(self, left: Sequence[Column], right: Sequence[Column]) -> str:
        pairs = [(one, other) for one in left for other in right if same(one, other)]
        if not pairs:
            return self.comparison(right)
        one, other = self.rng.choice(pairs)
        return f"{one.text} {self.rng.choice(['<', '>=', '<>'])} {other.text}"

    # ------------------------------------------------------------ WHERE
    def where(self, source: Source) -> str:
        parts = [self.condition(source.columns) for _ in range(self.rng.choice([0, 0, 0, 0, 1, 1, 2]))]
        if self.tables > 0 and self.chance(0.17):
            parts.append(self.subquery(source.columns))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def subquery(self, columns: Sequence[Column]) -> str:
        columns = seen_inside(columns)
        inner = self.relation(self.rng.choice([0, 0, 1]))
        equal = self.equality(inner.columns, columns)
        where = [equal] if equal and self.chance(0.75) else []
        where += [self.theta(inner.columns, columns)] if where and self.chance(0.15) else []
        where += [self.comparison(inner.columns)] if self.chance(0.3) else []
        tail = f" WHERE {' AND '.join(where)}" if where else ""
        pairs = [(mine, theirs) for mine in columns for theirs in inner.columns if same(mine, theirs)]
        kind = self.rng.choice(["exists", "exists", "not exists", "in", "in", "not in", "scalar"])
        if kind == "scalar":
            scalar = self.scalar(columns)
            return f"{scalar.text} > 1" if scalar is not None else f"EXISTS (SELECT 1 FROM {inner.text}{tail})"
        if "in" in kind.split() and pairs:
            mine, theirs = self.rng.choice(pairs)
            tail = tail if self.chance(0.3) else ""
            text = f"{mine.text} {kind.upper()} (SELECT {theirs.text} FROM {inner.text}{tail})"
        else:
            text = f"{'NOT ' if kind.startswith('not') else ''}EXISTS (SELECT 1 FROM {inner.text}{tail})"
        return f"({text} OR {self.comparison(columns)})" if self.chance(0.2) else text

    def exists(self, columns: Sequence[Column]) -> str | None:
        columns = seen_inside(columns)
        inner = self.relation(0)
        equal = self.equality(inner.columns, columns)
        return f"EXISTS (SELECT 1 FROM {inner.text} WHERE {equal})" if equal else None

    def scalar(self, columns: Sequence[Column]) -> Column | None:
        """A number per row: an aggregate of another relation, by a key or of everything."""
        columns = seen_inside(columns)
        inner = self.relation(self.rng.choice([0, 0, 1]))
        equal = self.equality(inner.columns, columns)
        numbers = of_kind(inner.columns, "int")
        values = ["count(*)", *(f"{f}({column.text})" for column in numbers for f in ("max", "sum", "count", "min"))]
        value = self.rng.choice(values) + self.rng.choice(["", "", " + 1"])
        tail = f" WHERE {equal}" if equal and self.chance(0.8) else ""
        return Column(f"(SELECT {value} FROM {inner.text}{tail})", "int")
