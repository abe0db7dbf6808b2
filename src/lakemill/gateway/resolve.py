"""Names become tables at versions: what a query reads, planned in one transaction over the catalog.

A name that the asker may not see is unknown, in the same words as one that nobody has; so are Lakemill's own tables.
Views are taken apart by the same rules as the query itself, with the asker's eyes. The plans are those of
``lake/scan``, so they know where stock history is wrong. Nothing is read here but the catalog, and stamps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakemill.core.allowed import Allowed, Named
from lakemill.core.names import HIDDEN, MAIN, QualifiedName, fold
from lakemill.core.scan import ReadPlan, Snapshot, View
from lakemill.errors import BadArgument, QueryRefused, UnknownTable
from lakemill.gateway.excerpt import Bounds
from lakemill.gateway.question import At, Visible
from lakemill.lake.catalog import Catalog
from lakemill.lake.scan import scan_in
from lakemill.lake.stamps import Stamps
from lakemill.lake.tables import GENERATION_PREFIX

_DEEPEST_VIEW = 16


@dataclass(frozen=True, slots=True)
class Resolved:
    at: Snapshot
    """The newest snapshot that is read."""
    plans: tuple[ReadPlan, ...]
    views: tuple[View, ...]
    bounds: Mapping[int, Bounds]
    cuts_inside: bool


def chosen(catalog: Catalog, at: At) -> tuple[Snapshot, tuple[int, ...]]:
    """The snapshot that an answer names, and all that it may read."""
    if sum(given is not None for given in (at.snapshot, at.time, at.point)) > 1:
        raise BadArgument("a query has one snapshot: an id, a time or a point")
    if at.point is not None:
        snapshots = tuple(sorted(set(at.point.values())))
        if not snapshots:
            raise BadArgument("the point names no table")
        return catalog.snapshot(snapshots[-1]), snapshots
    if at.time is not None:
        found = catalog.snapshot_at(at.time)
    else:
        found = catalog.head() if at.snapshot is None else catalog.snapshot(at.snapshot)
    return found, (found.id,)


def resolve(
    catalog: Catalog,
    stamps: Stamps,
    query: Allowed,
    view_query: Callable[[View], Allowed],
    at: Snapshot,
    point: Mapping[QualifiedName, int] | None,
    visible: Visible,
) -> Resolved:
    """Everything that the query reads; ``view_query`` judges the text of a view as a query's is judged."""
    look = _Look(catalog, at, point, visible)
    todo: list[tuple[Named, tuple[View, ...]]] = [(named, ()) for named in query.tables]
    compared, cuts = set(query.compared), query.cuts_inside
    while todo:
        named, inside = todo.pop()
        view = look.up(named, inside)
        if view is not None:
            if len(inside) >= _DEEPEST_VIEW:
                raise QueryRefused(f"views are nested more than {_DEEPEST_VIEW} deep", place=named.at.place())
            found = view_query(view)
            compared |= found.compared
            cuts |= found.cuts_inside
            todo += [(Named(inner.schema, inner.name, named.at), (*inside, view)) for inner in found.tables]
    plans = tuple(
        scan_in(catalog, stamps, catalog.table(name.schema, name.name, version), catalog.snapshot(version))
        for name, version in look.tables.items()
    )
    bounds = {plan.table.id: known for plan in plans if (known := _bounds(catalog, plan, compared))}
    return Resolved(at, plans, tuple(look.views.values()), bounds, cuts)


def _bounds(catalog: Catalog, plan: ReadPlan, compared: set[str]) -> Bounds:
    """Of columns that the query compares, where there is a file to be spared; not of those whose type has changed."""
    if len(plan.files) < 2:
        return ()
    wanted = [
        c.id for c in plan.table.columns if fold(c.name) in compared and not c.nested and c.id not in plan.retyped
    ]
    return catalog.bounds(plan.table, [read.file.id for read in plan.files], wanted) if wanted else ()


class _Look:
    """Names looked up once each."""

    def __init__(
        self, catalog: Catalog, at: Snapshot, point: Mapping[QualifiedName, int] | None, visible: Visible
    ) -> None:
        self._catalog, self._at, self._point, self._visible = catalog, at, point, visible
        self.tables: dict[QualifiedName, int] = {}
        self.views: dict[QualifiedName, View] = {}

    def up(self, named: Named, inside: tuple[View, ...]) -> View | None:
        """A view that was not yet taken apart; tables are written down."""
        # as DuckDB looks: a name without schema in a view is one of the view's own schema, or of main
        schemas = [named.schema] if named.schema else list(dict.fromkeys([*(v.schema for v in inside[-1:]), MAIN]))
        for schema in schemas:
            name = QualifiedName(schema, named.name)
            if name in self.tables or name in self.views:
                return None
            if not self._seen(name):
                if self._there(name):
                    break  # a view means the same to everybody: not the next of that name, which this asker may see
                continue
            view = self._catalog.view(name.schema, name.name, self._at.id)
            if view is not None:
                self.views[name] = view
                return view
            version = self._version(name, named)
            if version is not None and self._catalog.table_id(name.schema, name.name, version) is not None:
                self.tables[name] = version
                return None
        told = QualifiedName(named.schema or MAIN, named.name)
        through = f", which the view {inside[-1].name} reads" if inside else ""
        raise UnknownTable(f"there is no table {told}{through}", place=named.at.place())

    def _seen(self, name: QualifiedName) -> bool:
        own = name.key[0] == HIDDEN or name.key[1].startswith(GENERATION_PREFIX)
        return not own and self._visible(name)

    def _there(self, name: QualifiedName) -> bool:
        at = (self._point or {}).get(name, self._at.id)
        return (
            self._catalog.view(name.schema, name.name, self._at.id) is not None
            or self._catalog.table_id(name.schema, name.name, at) is not None
        )

    def _version(self, name: QualifiedName, named: Named) -> int | None:
        if self._point is None:
            return self._at.id
        if name not in self._point and self._catalog.table_id(name.schema, name.name, self._at.id) is not None:
            raise BadArgument(f"the point does not hold {name}", place=named.at.place())
        return self._point.get(name)
