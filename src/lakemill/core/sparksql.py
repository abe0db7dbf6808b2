"""A query in Spark's own SQL (``DIALECT = 'spark'``): where it names tables and asks for the time.

Spark runs the text as it is: sqlglot reads it only to find these places, and nothing else in it is put in other words.
Each table becomes a view of the refresh at hand, which has the columns that the table had when the query was declared,
so that a star stays what it was. Each call of the clock becomes the refresh's own time. What answers anew at every
call, or depends on the order in which rows arrive, is refused: no table could be kept equal to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from lakemill.core.names import QualifiedName, fold
from lakemill.core.position import START, Position
from lakemill.core.references import Piece, reworded, tables
from lakemill.core.schema import quote_spark
from lakemill.core.shape import NotIncremental
from lakemill.errors import BadStatement

_INSTANTS = frozenset({"now", "current_timestamp"})
_CLOCK = _INSTANTS | {"current_date", "curdate", "localtimestamp"}
_BARE = frozenset({"current_date", "current_timestamp"})
"""Of the clock's functions: those that Spark takes without brackets, too."""
_ANSWERS_ANEW = """
rand random randn randstr uniform shuffle uuid monotonically_increasing_id spark_partition_id input_file_name
input_file_block_start input_file_block_length current_user user session_user current_catalog current_database
current_schema current_timezone current_time version identifier reflect java_method try_reflect read_files
"""
_VOLATILE = frozenset(_ANSWERS_ANEW.split())
_UNORDERED = frozenset({"first", "last", "any_value", "collect_list", "collect_set", "array_agg"})
"""What depends on the order in which rows arrive: welcome in a window that has an ORDER BY."""
_LISTS = frozenset({"collect_list", "collect_set", "array_agg"})
_SORTED = frozenset({"sort_array", "array_sort", "size", "cardinality", "array_size"})
"""Around a list, they take its order away."""
_WORDS_OF_TIME = ("now", "today", "yesterday", "tomorrow")
_FUNCTIONS = frozenset(
    {"range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"}
)
"""Functions in FROM that answer the same at every call."""


@dataclass(frozen=True, slots=True)
class SparkQuery:
    text: str
    _tables: tuple[tuple[exp.Table, QualifiedName], ...]
    _schemas: tuple[exp.Column, ...]
    """Columns that are written with their table's schema."""
    _calls: tuple[tuple[str, int, int], ...]
    """Of the clock: function, and from where to where."""
    _all: bool
    """Whether the query may use columns that it has no word for."""
    _words: frozenset[str]

    @property
    def clocked(self) -> bool:
        return bool(self._calls)

    @property
    def named(self) -> tuple[tuple[exp.Table, QualifiedName], ...]:
        """The tables that it names, where it does."""
        return self._tables

    def uses(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Those of a table's columns that the query may use; all are folded."""
        return tuple(name for name in columns if self._all or name in self._words)

    def pieces(self, views: Mapping[str, str], t: datetime | None = None) -> tuple[Piece, ...]:
        """What to put where: a view for each ``schema.table``, and the time, unless Spark's own will do."""
        found = [
            reworded(table, quote_spark(views[".".join(name.key)]), quote_spark(table.name))
            for table, name in self._tables
        ]
        found += [Piece(one.parts[0].meta["start"], one.parts[1].meta["start"], "") for one in self._schemas]
        if t is not None:
            found += [Piece(start, end, _literal(function, t)) for function, start, end in self._calls]
        return tuple(found)


NO_DELTAS = NotIncremental(
    "SPARK_DIALECT",
    "write it in DuckDB's SQL to have it refreshed from deltas",
    text="the query is in Spark's own SQL, which has no rules for deltas",
)


def read(text: str, parsed: exp.Query, at: Position = START, file: str | None = None) -> SparkQuery:
    """What was parsed from a text, looked through; refused with the place where no table can be kept equal to it."""

    def refused(message: str, remedy: str, offset: int | None = None) -> BadStatement:
        place = at if offset is None else at.within(text, offset)
        return BadStatement(message, remedy=remedy, place=place.place(file))

    tokens = sqlglot.tokenize(text, dialect="spark")
    calls = tuple(_clock_calls(tokens))
    for place, function in _called(tokens):
        if function in _VOLATILE or (
            function == "unix_timestamp" and tokens[place + 2].token_type is TokenType.R_PAREN
        ):
            raise refused(
                f"{function}() answers anew at every call or in every session, so no table can be kept equal to it",
                "leave it out; now(), current_timestamp() and current_date() are welcome",
                tokens[place].start,
            )
    _refuse_chance(parsed, refused)
    if len(calls) != sum(1 for _ in _clock_nodes(parsed)):
        raise refused("the clock is asked without brackets where its name means something else, too", _BRACKETS)
    found = tuple(tables(parsed))
    for table, name in found:
        if not _stands_there(text, table):  # nothing may be put in a place that is another than it seems
            raise refused(f"where {name} stands can't be told", "write the query without what stands around it")
    unaliased = {name for table, name in found if not table.alias}
    columns = [column for column in parsed.find_all(exp.Column) if len(column.parts) > 2]
    return SparkQuery(
        text,
        found,
        tuple(one for one in columns if QualifiedName(one.parts[0].name, one.parts[1].name) in unaliased),
        calls,
        _takes_all(parsed),
        frozenset(fold(found.name) for found in parsed.find_all(exp.Identifier)),
    )


def _stands_there(text: str, table: exp.Table) -> bool:
    piece = reworded(table, "", "")
    return fold(text[piece.start : piece.end]).replace("`", "").endswith(fold(table.name).replace("`", ""))


_BRACKETS = "write now(), current_timestamp() or current_date()"


def _refuse_chance(parsed: exp.Query, refused: Callable[..., BadStatement]) -> None:
    """What has more than one right answer, by its form."""
    for node in parsed.walk():
        if isinstance(node, exp.Query) and node.args.get("limit") and not node.args.get("order"):
            raise refused("which rows stay is not said", "add an ORDER BY that leaves no ties")
        if isinstance(node, exp.TableSample):
            raise refused("a sample is another one at every call", "write a condition on a column instead")
        if isinstance(node, exp.CurrentUser | exp.SessionUser | exp.CurrentTime):
            raise refused(f"{node.sql('spark')} is not decided by the data", "leave it out")
        if isinstance(node, exp.Cast | exp.TryCast) and _is_time(node):
            raise refused(f"'{node.this.name}' is another moment at every call", _BRACKETS)
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            name = node.this.name.lower() or node.this.key
            if name not in _FUNCTIONS:
                raise refused(f"{name}() in FROM is not known to answer the same at every call", "load it into a table")
        if (name := _unordered(node)) is not None:
            raise refused(
                f"{name}() depends on the order in which rows arrive",
                "write sort_array(…) around a list, min, max, or a window with an ORDER BY",
                node.meta.get("start"),
            )


def _unordered(node: exp.Expr) -> str | None:
    """The name of an aggregate that takes rows as they come."""
    name = _NODES.get(type(node)) or (node.name.lower() if isinstance(node, exp.Anonymous) else "")
    if name not in _UNORDERED or isinstance(node.this, exp.Order):
        return None
    around = node.parent
    while isinstance(around, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        if isinstance(around, exp.WithinGroup):
            return None
        around = around.parent
    if isinstance(around, exp.Window) and around.args.get("order"):
        return None
    outer = around.sql_name().lower() if isinstance(around, exp.Func) else ""
    outer = around.name.lower() if isinstance(around, exp.Anonymous) else outer
    return None if name in _LISTS and outer in _SORTED else name


_NODES: Mapping[type[exp.Expr], str] = {
    exp.First: "first",
    exp.Last: "last",
    exp.AnyValue: "any_value",
    exp.ArrayAgg: "collect_list",
    exp.ArrayUniqueAgg: "collect_set",
}


def _is_time(cast: exp.Cast | exp.TryCast) -> bool:
    """Spark reads ``TIMESTAMP 'now'`` and its kin as the time of the day."""
    text = cast.this
    return isinstance(text, exp.Literal) and text.is_string and text.name.strip().lower().startswith(_WORDS_OF_TIME)


def _takes_all(parsed: exp.Query) -> bool:
    """A star that is not count's, or a clause that means all columns without a word for them."""
    stars = any(not isinstance(star.parent, exp.Count) for star in parsed.find_all(exp.Star))
    natural = any(str(join.args.get("method") or "").upper() == "NATURAL" for join in parsed.find_all(exp.Join))
    return stars or natural or parsed.find(exp.Pivot) is not None


# ---------------------------------------------------------------- the clock
def _called(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Functions that are called by a plain name."""
    for place, token in enumerate(tokens[:-1]):
        after_dot = place > 0 and tokens[place - 1].token_type is TokenType.DOT
        if tokens[place + 1].token_type is TokenType.L_PAREN and not after_dot:
            yield place, token.text.lower()


def _clock_calls(tokens: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    for place, function in _called(tokens):
        if function in _CLOCK and place + 2 < len(tokens) and tokens[place + 2].token_type is TokenType.R_PAREN:
            yield function, tokens[place].start, tokens[place + 2].end + 1
    for place, token in enumerate(tokens):
        name = token.text.lower()
        before = tokens[place - 1].token_type if place else None
        after = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        bare = name in _BARE and token.token_type.name == name.upper()
        neighbours = (TokenType.DOT, TokenType.ALIAS), (TokenType.DOT, TokenType.L_PAREN)
        if bare and before not in neighbours[0] and after not in neighbours[1]:
            yield name, token.start, token.end + 1


def _clock_nodes(parsed: exp.Query) -> Iterator[exp.Expr]:
    kinds = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)
    for node in parsed.walk():
        if isinstance(node, kinds) or (isinstance(node, exp.Anonymous) and node.name.lower() in _CLOCK):
            yield node


def _literal(function: str, t: datetime) -> str:
    """The moment in the type that the function has; the session is in UTC."""
    moment = t.astimezone(UTC).replace(tzinfo=None)
    if function in ("current_date", "curdate"):
        return f"DATE '{moment.date().isoformat()}'"
    text = moment.isoformat(sep=" ", timespec="microseconds")
    return f"TIMESTAMP_LTZ '{text}'" if function in _INSTANTS else f"TIMESTAMP_NTZ '{text}'"
