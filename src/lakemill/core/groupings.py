"""The groupings of a GROUP BY, for ``core/query``: one with all keys, or those of GROUPING SETS, ROLLUP and CUBE."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from lakemill.core.algebra import Expr
from lakemill.core.expressions import members, prefixes, subsets


def groupings(group: exp.Group | None, resolve: Callable[[Expr], Expr]) -> tuple[list[Expr], list[tuple[int, ...]]]:
    """The keys, resolved, and which of them each grouping has."""
    keys: list[Expr] = []

    def number(key: Expr) -> int:
        texts = [known.sql() for known in keys]
        resolved = resolve(key)
        if resolved.sql() not in texts:
            keys.append(resolved)
            return len(texts)
        return texts.index(resolved.sql())

    sets: list[tuple[int, ...]] = [()]
    for item in group.expressions if group is not None else ():
        if isinstance(item, exp.GroupingSets):
            options = [tuple(number(key) for key in members(part)) for part in item.expressions]
        elif isinstance(item, exp.Rollup | exp.Cube):
            parts = [tuple(number(key) for key in members(part)) for part in item.expressions]
            options = list(subsets(parts) if isinstance(item, exp.Cube) else prefixes(parts))
        else:
            options = [(number(item),)]
        sets = [(*known, *(i for i in option if i not in known)) for known in sets for option in options]
    return keys, sets
