"""Expressions over typed columns: values, conditions, aggregates and windows, each with one right answer.

``generate`` makes queries of them. A column's kind says what may be done with it; what is only shown and compared in
both engines alike is ``real`` (an average) or ``texts``, ``dates``, … (a list of anything but integers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

KINDS = {
    "INTEGER": "int",
    "BIGINT": "int",
    "DECIMAL(10,2)": "dec",
    "VARCHAR": "text",
    "DATE": "date",
    "BOOLEAN": "bool",
    "TIMESTAMP": "ts",
    "DOUBLE": "float",
    "BIGINT[]": "list",
}
FAMILIES = {"int": "number", "dec": "number", "float": "number", "date": "time", "ts": "time"}
CONSTANTS = {
    "int": ("0", "1", "2", "3"),
    "dec": ("0.25", "1.50", "2.00"),
    "float": ("0.5::DOUBLE", "1.75::DOUBLE"),
    "real": ("1.5::DOUBLE",),
    "text": ("'x'", "'y'", "''"),
    "date": ("DATE '2026-01-03'", "DATE '2026-01-05'"),
    "bool": ("TRUE", "FALSE"),
    "ts": ("TIMESTAMP '2026-01-03 06:00:00'",),
    "list": ("[CAST(1 AS BIGINT), CAST(2 AS BIGINT)]",),
}
LISTS = (
    "list",
    "texts",
    "decs",
    "floats",
    "reals",
    "dates",
    "bools",
    "tss",
)  # of integers, which can be unnested; of others
CONSTANTS |= dict.fromkeys(LISTS[1:], ("NULL",))
UNKEYED = ("real", *LISTS)
CLOCK = {"ts": ("now() - INTERVAL 1 DAY", "localtimestamp - INTERVAL 2 DAY"), "date": ("current_date",)}


class Column(NamedTuple):
    text: str
    kind: str

    @property
    def name(self) -> str:
        return self.text.rpartition(".")[2]


def of_kind(columns: Sequence[Column], *kinds: str) -> list[Column]:
    return [column for column in columns if column.kind in kinds]


def same(one: Column, other: Column) -> bool:
    """Whether they can be compared."""
    return FAMILIES.get(one.kind, one.kind) == FAMILIES.get(other.kind, other.kind) and one.kind not in UNKEYED


@dataclass
class Values:
    rng: Random

    def __post_init__(self) -> None:
        self.count = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # ------------------------------------------------------------ columns
    def some(self, columns: Sequence[Column], most: int) -> list[Column]:
        """A few of them that can be keys."""
        plain = [column for column in columns if column.kind not in UNKEYED] or list(columns)
        return self.rng.sample(plain, min(len(plain), self.rng.randrange(1, most + 1)))

    def total(self, columns: Sequence[Column]) -> str:
        """An order by everything, in which only equal rows tie."""
        shuffled = self.rng.sample(list(columns), len(columns))
        words = ["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"]
        return ", ".join(f"{column.text}{self.rng.choice(words)}" for column in shuffled)

    def shown(self, items: Sequence[Column]) -> tuple[str, list[Column]]:
        """A SELECT list, and the columns that it gives: under their own name, or under a new one."""
        texts: list[str] = []
        columns: list[Column] = []
        for item in items:
            plain = item.text.count(".") == 1 and item.text.replace(".", "").isalnum()
            if plain and self.chance(0.4) and item.name not in {column.text for column in columns}:
                texts.append(item.text)
                columns.append(Column(item.name, item.kind))
            else:
                columns.append(Column(self.fresh("c"), item.kind))
                texts.append(f"{item.text} AS {columns[-1].text}")
        return ", ".join(texts), columns

    def of(self, columns: Sequence[Column], kind: str) -> Column:
        """A value of this kind."""
        found = of_kind(columns, kind)
        return self.rng.choice(found) if found and self.chance(0.9) else Column(self.rng.choice(CONSTANTS[kind]), kind)

    # ------------------------------------------------------------ scalars
    def value(self, columns: Sequence[Column]) -> Column:
        column = self.rng.choice(columns)
        return column if self.chance(0.6) else self.computed(column, columns)

    def key(self, columns: Sequence[Column], *, plain: bool = False) -> Column:
        (column,) = self.some(columns, 1)
        return column if plain or self.chance(0.75) else self.computed(column, columns)

    def computed(self, column: Column, columns: Sequence[Column]) -> Column:
        x, kind = column
        if self.chance(0.15):
            test = self.comparison(columns)
            return Column(f"CASE WHEN {test} THEN {x} ELSE {self.of(columns, kind).text} END", kind)
        if self.chance(0.15):
            return Column(f"coalesce({x}, {self.rng.choice(CONSTANTS[kind])})", kind)
        options = {
            "int": [
                (f"{x} + 1", "int"),
                (f"{x} % 3", "int"),
                (f"abs({x})", "int"),
                (f"{x} / 4", "real"),
                (f"nullif({x}, 2)", "int"),
                (f"CAST({x} AS VARCHAR)", "text"),
                (f"{x} > 1", "bool"),
            ],
            "dec": [
                (f"{x} - 1", "dec"),
                (f"CAST({x} AS VARCHAR)", "text"),
                (f"round({x})", "dec"),
                (f"{x} < 1", "bool"),
            ],
            "float": [(f"{x} + 0.25::DOUBLE", "float"), (f"{x} > 1", "bool")],
            "real": [(f"{x} > 1", "bool")],
            "text": [
                (f"upper({x})", "text"),
                (f"{x} || 'x'", "text"),
                (f"length({x})", "int"),
                (f"left({x}, 1)", "text"),
            ],
            "date": [(f"{x} + INTERVAL 1 DAY", "ts"), (f"extract(day FROM {x})", "int"), (f"{x} + 1", "date")],
            "ts": [
                (f"CAST({x} AS DATE)", "date"),
                (f"date_trunc('day', {x})", "ts"),
                (f"extract(hour FROM {x})", "int"),
            ],
            "bool": [(f"NOT {x}", "bool"), (f"CASE WHEN {x} THEN 1 ELSE 0 END", "int")],
            "list": [(f"len({x})", "int")],
        }
        return Column(*self.rng.choice(options.get(kind, [(x, kind)])))

    def condition(self, columns: Sequence[Column]) -> str:
        one = self.comparison(columns)
        if self.chance(0.2):
            return f"({one} {self.rng.choice(['OR', 'OR', 'AND'])} {self.comparison(columns)})"
        return f"NOT ({one})" if self.chance(0.08) else one

    def comparison(self, columns: Sequence[Column]) -> str:
        column = self.rng.choice(columns)
        if column.kind in CLOCK and self.chance(0.3):
            return f"{column.text} {self.rng.choice(['<', '>='])} {self.rng.choice(CLOCK[column.kind])}"
        if column.kind in LISTS or self.chance(0.12):
            return f"{column.text} IS {self.rng.choice(['', 'NOT ', 'NOT '])}NULL"
        values = CONSTANTS[column.kind]
        if self.chance(0.15):
            return f"{column.text} {self.rng.choice(['IN', 'NOT IN'])} ({', '.join(values)})"
        return f"{column.text} {self.rng.choice(['=', '<>', '<>', '<=', '>', '>='])} {self.rng.choice(values)}"

    def having(self, columns: Sequence[Column]) -> str:
        (aggregate,) = self.aggregates(columns, 1)
        if aggregate.kind in (*LISTS, "bool"):
            return f"count(*) {self.rng.choice(['>', '='])} {self.rng.randrange(1, 3)}"
        return f"{aggregate.text} {self.rng.choice(['>', '<=', '<>'])} {self.rng.choice(CONSTANTS[aggregate.kind])}"

    # ------------------------------------------------------------ aggregates
    def aggregates(self, columns: Sequence[Column], count: int) -> list[Column]:
        return [self.aggregate(columns) for _ in range(count)]

    def aggregate(self, columns: Sequence[Column]) -> Column:
        column = self.rng.choice(columns)
        if self.chance(0.2):
            column = self.computed(column, columns)
        x, kind = column
        options = [("count(*)", "int"), (f"count({x})", "int")]
        if kind not in LISTS:
            options += [(f"count(DISTINCT {x})", "int"), (f"min({x})", kind), (f"max({x})", kind)]
            options += [(f"list({x} ORDER BY {x})", "list" if kind == "int" else f"{kind}s")]
        if kind in ("int", "dec", "float"):
            options += [(f"sum({x})", kind)] * 3 + [(f"avg({x})", "real")] * 2
            options += [(f"sum(DISTINCT {x})", kind), (f"quantile_disc({x}, 0.25)", kind)]
        if kind in ("int", "float"):
            options += [(f"median({x})", "real"), (f"quantile_cont({x}, 0.75)", "real")]
        if kind == "int":  # Welford's sum depends on the order of rows in its last bits
            options += [(f"round(stddev({x}), 9)", "real"), (f"round(var_pop({x}), 9)", "real")]
        if kind == "text":
            order = self.rng.choice(columns).text
            options += [(f"string_agg({x}, ',' ORDER BY {order}, {x})", "text")] * 2
        if kind == "bool":
            options += [(f"bool_or({x})", "bool"), (f"bool_and({x})", "bool"), (f"count_if({x})", "int")]
        text, of = self.rng.choice(options)
        if "round" not in text and self.chance(0.12):
            text = f"{text} FILTER (WHERE {self.comparison(columns)})"
        elif of in ("int", "dec") and self.chance(0.12):
            text = f"{text} + {self.rng.choice(CONSTANTS[of])}"
        return Column(text, of)

    def window(self, columns: Sequence[Column], by: str, kinds: Sequence[str] = ()) -> Column:
        column = self.rng.choice(columns)
        x, kind = column
        total, some = self.total(columns), self.rng.choice(columns).text
        rows = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
        options = [(f"count(*) OVER ({by})", "int"), (f"row_number() OVER ({by} ORDER BY {total})", "int")]
        options += [
            (f"rank() OVER ({by} ORDER BY {some})", "int"),
            (f"dense_rank() OVER ({by} ORDER BY {some})", "int"),
        ]
        options += [(f"ntile(2) OVER ({by} ORDER BY {total})", "int")]
        for function in ("lag", "lead", "first_value"):
            options.append((f"{function}({x}) OVER ({by} ORDER BY {total})", kind))
        if kind not in LISTS:
            options.append((f"max({x}) OVER ({by})", kind))
        if kind in ("int", "dec"):
            options += [(f"sum({x}) OVER ({by})", kind), (f"sum({x}) OVER ({by} ORDER BY {some})", kind)]
            options += [(f"sum({x}) OVER ({by} ORDER BY {total} {rows})", kind), (f"avg({x}) OVER ({by})", "real")]
        return Column(*self.rng.choice([option for option in options if not kinds or option[1] in kinds]))
