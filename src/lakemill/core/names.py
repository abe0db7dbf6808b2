"""Names of tables: schema and table, as users write them and as SQL takes them.

One type for what a statement, a command or a stored row calls a table. As in DuckDB, letters keep their case and it
does not count: ASCII letters only, ``Ä`` is not ``ä``. Whether a table of that name exists is not asked here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lakemill.errors import BadArgument

MAIN = "main"
HIDDEN = "_lakemill"
"""The lake's schema of what Lakemill keeps for itself: nobody else's."""
_PART = r'"(?:[^"]|"")+"|[^".]+'
_QUALIFIED = re.compile(rf"(?:({_PART})\.)?({_PART})")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDED = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")

# What DuckDB takes as a name only in quotes (a test compares it with duckdb_keywords()).
_RESERVED = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check
collate collation column columns concurrently constraint create cross default deferrable desc describe distinct do
else end except false fetch for foreign freeze from full generated glob group having ilike in initially inner
intersect into is isnull join lambda lateral leading left like limit map natural not notnull null offset on only or
order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify references returning right
select semi show similar some struct summarize symmetric table tablesample then to trailing true try_cast union
unique unpack unpivot using variadic verbose when where window with
"""
RESERVED = frozenset(_RESERVED.split())


def fold(name: str) -> str:
    """What two spellings of one name have in common."""
    return name.translate(_FOLDED)


def quote(name: str) -> str:
    """A name as SQL takes it: in quotes only where it must be."""
    if _PLAIN.fullmatch(name) and fold(name) not in RESERVED | {"if"}:  # IF EXISTS, IF NOT EXISTS
        return name
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True, eq=False)
class QualifiedName:
    schema: str
    name: str
    key: tuple[str, str] = field(init=False, repr=False)
    """What equal names have in common; kept, because every lookup needs it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (fold(self.schema), fold(self.name)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QualifiedName) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: QualifiedName) -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"


def parse_name(text: str) -> QualifiedName:
    """``orders`` or ``sales.orders``; parts in double quotes may hold dots, and quotes written twice."""
    match = _QUALIFIED.fullmatch(text.strip())
    if match is None or "\0" in text:
        raise BadArgument(f"{text!r} is not a table name", remedy="write table or schema.table")
    schema, name = (part and (part[1:-1].replace('""', '"') if part[0] == '"' else part) for part in match.groups())
    return QualifiedName(schema or MAIN, name)
