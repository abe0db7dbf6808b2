"""What a name in FROM means: the CTE that is in sight there, or else a table of the lake.

A CTE is seen by those after it in its WITH and by the query below it, not by itself, and an inner one hides an outer
one of its name. For ``core/references``, which looks tables up, and for ``core/query``, whose trees know a CTE by its
name alone: there every CTE has a name of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from lakemill.core.names import fold

Seen = Mapping[str, exp.CTE]


def meanings(query: exp.Expr) -> list[tuple[exp.Table, exp.CTE | None]]:
    """Every table that a query names, and which CTE it is; None: a table or a view of the lake."""
    return list(_meanings(query, {}))


def _meanings(node: exp.Expr, seen: Seen) -> Iterator[tuple[exp.Table, exp.CTE | None]]:
    given = node.args.get("with_") or node.args.get("with")
    if given is not None:
        inside = dict(seen)
        for cte in given.expressions:
            own = {fold(cte.alias): cte} if given.args.get("recursive") else {}
            yield from _meanings(cte.this, {**inside, **own})
            inside[fold(cte.alias)] = cte
        seen = inside
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        yield node, None if node.db else seen.get(fold(node.name))
    for child in node.iter_expressions():
        if child is not given:
            yield from _meanings(child, seen)


def unshadowed(query: exp.Expr) -> exp.Expr:
    """The query with CTEs of one name, or of a table's name, under names of their own."""
    meant = meanings(query)
    taken = {fold(table.name) for table, cte in meant if cte is None}
    names = taken | {fold(cte.alias) for cte in query.find_all(exp.CTE)}
    for cte in query.find_all(exp.CTE):
        old = cte.alias
        if fold(old) in taken:
            new = next(name for n in range(2, len(names) + 3) if (name := f"{fold(old)}_{n}") not in names)
            names.add(new)
            _rename(cte, new, [table for table, found in meant if found is cte])
        taken.add(fold(cte.alias))
    return query


def _rename(cte: exp.CTE, new: str, readers: list[exp.Table]) -> None:
    for table in readers:
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        table.set("this", exp.to_identifier(new, quoted=True))
    cte.args["alias"].set("this", exp.to_identifier(new, quoted=True))
