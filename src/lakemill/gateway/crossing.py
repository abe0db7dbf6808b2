"""Types that DuckDB hands over to Arrow as something else: they cross as texts, and so keep their values.

UHUGEINT comes out as a number below zero, TIMETZ without its offset, BIT and BIGNUM as DuckDB's own bytes, VARIANT not
at all. Asked by the executor when it knows the columns; it answers the statement to run instead, around the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_TEXTS = frozenset({"uhugeint", "time with time zone", "bit", "bignum", "variant"})


def instead(text: str, columns: Sequence[tuple[str, Any]]) -> str | None:
    """What to run in place of a query with these columns (names and DuckDB's types); None: it is fine as it is.

    ``text`` has no semicolon at its end.
    """
    forms = [_form(kind) for _, kind in columns]
    if not any(forms):
        return None
    own = [f"c{number}" for number in range(len(columns))]  # a name may be there twice
    chosen = ", ".join(
        f"CAST({column} AS {form}) AS {_quoted(name)}" if form else f"{column} AS {_quoted(name)}"
        for column, form, (name, _) in zip(own, forms, columns, strict=True)
    )
    return f"SELECT {chosen} FROM ({text}\n) AS q({', '.join(own)})"


def _form(kind: Any) -> str | None:
    """The type as which it crosses; None: its own."""
    if kind.id in _TEXTS:
        return "VARCHAR"
    if kind.id not in ("list", "array", "struct", "map", "union"):
        return None
    parts = {name: part for name, part in kind.children if name}  # a union's tag has no name
    forms = {name: _form(part) for name, part in parts.items() if name != "size" or kind.id != "array"}
    if not any(forms.values()):
        return None
    of = {name: form or str(parts[name]) for name, form in forms.items()}
    match kind.id:
        case "list":
            return f"{of['child']}[]"
        case "array":
            return f"{of['child']}[{parts['size']}]"
        case "map":
            return f"MAP({of['key']}, {of['value']})"
    return f"{kind.id.upper()}({', '.join(f'{_quoted(name)} {form}' for name, form in of.items())})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
