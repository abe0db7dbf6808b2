"""The rows of an answer, with the values that Python has none for as the texts that DuckDB prints.

For ``cli/sql``. Python's dates know no infinity, its time spans no months and its times no nanoseconds; DuckDB's own
conversion gives the nearest ones without a word. Answers with such columns go through Arrow, which keeps them, to
another connection that casts them; they are computed once, and batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakemill.lake.duck import Connection

BATCH = 10_000
_MOMENTS = ("date", "time", "timestamp", "interval")
_NOT_IN_ARROW = ("VARIANT", "GEOMETRY")


def spelled(connection: Connection) -> Iterator[tuple[Any, ...]]:
    """The rows of what was executed last."""
    types = [column[1] for column in connection.description or []]
    wanted = [_spelled(type_) for type_ in types]
    if not any(wanted) or any(word in str(type_) for type_ in types for word in _NOT_IN_ARROW):
        while rows := connection.fetchmany(BATCH):
            yield from rows
        return
    casts = [f"CAST(#{i} AS {type_})" if type_ else f"#{i}" for i, type_ in enumerate(wanted, 1)]
    reader = connection.to_arrow_reader(BATCH)
    with connection.cursor() as other:
        for zone in {str(field.type.tz) for field in reader.schema if getattr(field.type, "tz", None)}:
            other.execute("SET TimeZone = ?", [zone])
        for batch in reader:
            named = batch.rename_columns([f"c{i}" for i in range(len(types))])
            yield from other.from_arrow(named).project(", ".join(casts)).fetchall()


def _spelled(type_: Any) -> str | None:
    """The type to cast to; None where the value can stay as it is."""
    kind = str(type_.id)
    if kind.startswith(_MOMENTS):
        return "VARCHAR"
    if kind not in ("list", "array", "struct", "map"):
        return None
    children = (
        [(name, child) for name, child in type_.children if name != "size"] if kind == "array" else type_.children
    )
    found = [(name, _spelled(child) or str(child)) for name, child in children]
    if all(spelling == str(child) for (_, spelling), (_, child) in zip(found, children, strict=True)):
        return None
    match kind:
        case "struct":
            return "STRUCT(" + ", ".join('"' + name.replace('"', '""') + f'" {inner}' for name, inner in found) + ")"
        case "map":
            return f"MAP({found[0][1]}, {found[1][1]})"
    return f"{found[0][1]}[]"
