"""DuckDB's types as values: which one two of them have in common, and what Spark calls each.

``core/dialect`` gives every expression the type that DuckDB gives it, so that nothing is left to Spark's own rules for
mixing types. Spark's names are those of the form that a scan shows (``core/schema``): unsigned integers one size up,
HUGEINT as DECIMAL(38,0), UUID as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlglot import exp
from sqlglot.errors import ParseError

MOST_DIGITS = 38
_IN_64_BITS = 18  # digits: DuckDB stays in 64 bits where both operands do, and checks


@dataclass(frozen=True, slots=True)
class Type:
    """``width`` and ``scale`` are a decimal's; ``fields`` a struct's by name, a list's one, a map's two."""

    name: str
    width: int = 0
    scale: int = 0
    fields: tuple[tuple[str, Type], ...] = ()

    def __str__(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.width},{self.scale})"
        if self.name == "LIST":
            return f"{self.element}[]"
        if self.fields:
            return f"{self.name}({', '.join(f'{name} {type_}'.strip() for name, type_ in self.fields)})"
        return self.name

    @property
    def element(self) -> Type:
        return self.fields[0][1]


BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ = Type("BOOLEAN"), Type("DATE"), Type("TIMESTAMP"), Type("TIMESTAMPTZ")
TINYINT, INTEGER, BIGINT, HUGEINT = Type("TINYINT"), Type("INTEGER"), Type("BIGINT"), Type("HUGEINT")
FLOAT, DOUBLE, VARCHAR, NULL, INTERVAL = Type("FLOAT"), Type("DOUBLE"), Type("VARCHAR"), Type("NULL"), Type("INTERVAL")
STRING_LITERAL = Type("STRING_LITERAL")
"""A text constant, which takes the type of what it stands beside."""

# name → (Spark's name, digits, smallest, largest)
_INTEGERS = {
    "TINYINT": ("TINYINT", 3, -(2**7), 2**7 - 1),
    "SMALLINT": ("SMALLINT", 5, -(2**15), 2**15 - 1),
    "INTEGER": ("INT", 10, -(2**31), 2**31 - 1),
    "BIGINT": ("BIGINT", 19, -(2**63), 2**63 - 1),
    "HUGEINT": ("DECIMAL(38,0)", 38, -(10**38) + 1, 10**38 - 1),
    "UTINYINT": ("SMALLINT", 3, 0, 2**8 - 1),
    "USMALLINT": ("INT", 5, 0, 2**16 - 1),
    "UINTEGER": ("BIGINT", 10, 0, 2**32 - 1),
    "UBIGINT": ("DECIMAL(20,0)", 20, 0, 2**64 - 1),
}
SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_OTHERS = {
    "BOOLEAN": "BOOLEAN",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "VARCHAR": "STRING",
    "STRING_LITERAL": "STRING",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMPTZ": "TIMESTAMP",
    "TIME": "TIME(6)",
    "BLOB": "BINARY",
    "UUID": "STRING",
    "JSON": "STRING",
    "NULL": "VOID",
}
_PARSED = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "INT128": "HUGEINT",
    "UTINYINT": "UTINYINT",
    "USMALLINT": "USMALLINT",
    "UINT": "UINTEGER",
    "UBIGINT": "UBIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "TEXT": "VARCHAR",
    "VARCHAR": "VARCHAR",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMPNTZ": "TIMESTAMP",
    "TIMESTAMP_S": "TIMESTAMP",  # what is stored coarser is shown, and computed with, as a TIMESTAMP
    "TIMESTAMP_MS": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMPTZ",
    "TIME": "TIME",
    "VARBINARY": "BLOB",
    "UUID": "UUID",
    "JSON": "JSON",
    "INTERVAL": "INTERVAL",
    "NULL": "NULL",
}
_COMPARED = frozenset({*_INTEGERS, *_OTHERS, "DECIMAL"} - {"JSON"})


def decimal(width: int, scale: int) -> Type:
    return Type("DECIMAL", width, scale)


def list_of(element: Type) -> Type:
    return Type("LIST", fields=(("", element),))


def parse(text: str) -> Type | None:
    """A type as DuckDB writes it; None for one that the two engines don't share."""
    try:
        return of(exp.DataType.build(text, dialect="duckdb"))
    except ParseError:
        return None


def of(parsed: exp.DataType) -> Type | None:
    name = parsed.this.value
    if name == "DECIMAL":
        digits = [int(part.this.this) for part in parsed.expressions] or [18, 3]
        return decimal(digits[0], digits[1] if len(digits) > 1 else 0)
    if name in ("ARRAY", "LIST") and not parsed.args.get("values") and len(parsed.expressions) == 1:
        element = of(parsed.expressions[0])
        return element and list_of(element)
    if name == "STRUCT":
        fields = [(part.name, of(part.args["kind"])) for part in parsed.expressions if isinstance(part, exp.ColumnDef)]
        if len(fields) != len(parsed.expressions) or any(type_ is None for _, type_ in fields):
            return None
        return Type("STRUCT", fields=cast("tuple[tuple[str, Type], ...]", tuple(fields)))
    if name == "MAP":
        inner = [of(part) for part in parsed.expressions]
        return Type("MAP", fields=tuple(("", part) for part in inner if part)) if all(inner) else None
    return Type(_PARSED[name]) if name in _PARSED else None


def spark(type_: Type) -> str:
    """Spark's name of a type."""
    match type_.name:
        case "DECIMAL":
            return f"DECIMAL({type_.width},{type_.scale})"
        case "LIST":
            return f"ARRAY<{spark(type_.element)}>"
        case "STRUCT":
            return f"STRUCT<{', '.join(f'{quote(name)}: {spark(inner)}' for name, inner in type_.fields)}>"
        case "MAP":
            return f"MAP<{', '.join(spark(inner) for _, inner in type_.fields)}>"
    return _INTEGERS[type_.name][0] if type_.name in _INTEGERS else _OTHERS[type_.name]


def shared(type_: Type) -> bool:
    """Whether Spark has such a type."""
    if type_.fields:
        return all(shared(inner) for _, inner in type_.fields)
    return type_.name in _INTEGERS or type_.name in _OTHERS or type_.name == "DECIMAL"


def quote(name: str) -> str:
    """A name as Spark takes it."""
    return "`" + name.replace("`", "``") + "`"


# ---------------------------------------------------------------- families
def integer(type_: Type) -> bool:
    return type_.name in _INTEGERS


def signed(type_: Type) -> bool:
    return type_.name in SIGNED


def floating(type_: Type) -> bool:
    return type_.name in ("FLOAT", "DOUBLE")


def numeric(type_: Type) -> bool:
    return integer(type_) or floating(type_) or type_.name == "DECIMAL"


def text(type_: Type) -> bool:
    return type_.name in ("VARCHAR", "STRING_LITERAL")


def comparable(type_: Type) -> bool:
    """Whether both engines order and group its values alike."""
    return type_.name in _COMPARED


def groupable(type_: Type) -> bool:
    """Whether both engines have the same values for equal, NULLs included; not which is the larger."""
    if type_.name in ("LIST", "STRUCT"):
        return all(groupable(inner) for _, inner in type_.fields)
    return comparable(type_) or type_.name == "JSON"


def literal_type(value: int) -> Type:
    """The type of an integer constant on its own."""
    for name in ("INTEGER", "BIGINT"):
        if holds(Type(name), value):
            return Type(name)
    return HUGEINT


def holds(type_: Type, value: int) -> bool:
    return _INTEGERS[type_.name][2] <= value <= _INTEGERS[type_.name][3]


def bounds(type_: Type) -> tuple[int, int]:
    return _INTEGERS[type_.name][2:]


def as_decimal(type_: Type) -> Type:
    """The decimal that DuckDB makes of an exact number."""
    return type_ if type_.name == "DECIMAL" else decimal(_INTEGERS[type_.name][1], 0)


# ---------------------------------------------------------------- two types
def common(one: Type, other: Type) -> Type | None:
    """The type that DuckDB casts both to; None where we don't say."""
    if one == other or other.name == "NULL":
        return one
    if one.name == "NULL":
        return other
    if STRING_LITERAL in (one, other):
        rest = other if one == STRING_LITERAL else one
        return rest if rest.name in _COMPARED else None
    if numeric(one) and numeric(other):
        return _common_number(one, other)
    if one == BOOLEAN and integer(other):
        return other
    if other == BOOLEAN and integer(one):
        return one
    times = ("DATE", "TIMESTAMP", "TIMESTAMPTZ")
    if one.name in times and other.name in times:
        return max(one, other, key=lambda type_: times.index(type_.name))
    if one.name == other.name == "LIST" and NULL in (one.element, other.element):  # [NULL] is a list of anything
        return other if one.element == NULL else one
    return None


def compared(one: Type, other: Type) -> Type | None:
    """The type in which DuckDB compares them: of decimals with all digits behind the point, unlike ``common``."""
    if one.name == other.name == "DECIMAL":
        scale, digits = max(one.scale, other.scale), max(one.width - one.scale, other.width - other.scale)
        return decimal(min(MOST_DIGITS, digits + scale), scale)
    return common(one, other)


def _common_number(one: Type, other: Type) -> Type:
    if floating(one) or floating(other):
        return DOUBLE if DOUBLE in (one, other) else FLOAT
    if integer(one) and integer(other):
        for name in (*SIGNED, *UNSIGNED) if signed(one) or signed(other) else UNSIGNED:
            wide = Type(name)
            if all(holds(wide, end) for each in (one, other) for end in bounds(each)):
                return wide
        return HUGEINT
    exact = one.name == other.name == "DECIMAL"
    one, other = as_decimal(one), as_decimal(other)
    scale, digits = max(one.scale, other.scale), max(one.width - one.scale, other.width - other.scale)
    if exact:  # of what does not fit, two decimals lose digits behind the point, beside an integer one before it
        scale = min(scale, MOST_DIGITS - digits)
    return decimal(min(MOST_DIGITS, digits + scale), scale)


def sum_type(one: Type, other: Type) -> Type:
    """Of ``+`` and ``-`` over decimals."""
    scale = max(one.scale, other.scale)
    digits = max(one.width - one.scale, other.width - other.scale)
    return _bounded(max(digits + scale, one.width, other.width) + 1, scale, max(one.width, other.width))


def product_type(one: Type, other: Type) -> Type | None:
    scale = one.scale + other.scale
    if scale > MOST_DIGITS:
        return None
    wide = max(one.width, other.width)
    return _bounded(one.width + other.width, scale, wide if scale < _IN_64_BITS else MOST_DIGITS)


def _bounded(width: int, scale: int, operands: int) -> Type:
    if width > _IN_64_BITS and operands <= _IN_64_BITS:
        width = _IN_64_BITS
    return decimal(min(width, MOST_DIGITS), scale)
