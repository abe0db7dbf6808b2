"""SUSPEND and RESUME, and what else halts a table or lets it go: the states that those who read it wait in.

For ``runtime/statements``, for ``runtime/dynamic`` when a table is declared, and for a worker whose refreshes keep
failing. Nothing is refreshed here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lakemill.core.graph import Graph
from lakemill.core.names import QualifiedName
from lakemill.core.refresh import State
from lakemill.store import definitions, work
from lakemill.store.definitions import DynamicTable

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

_STOPPED = frozenset({State.SUSPENDED, State.SUSPENDED_DUE_TO_ERRORS})
_WAITING = frozenset({State.UPSTREAM_SUSPENDED, State.UPSTREAM_FAILED})
_GOING = frozenset({State.ACTIVE, State.PENDING_INIT})


def suspend(lake: Lake, names: Sequence[QualifiedName], *, missing_ok: bool = False) -> tuple[QualifiedName, ...]:
    """Those whose state changed: these, and all that read them, which wait as UPSTREAM_SUSPENDED."""
    tables = [table for name in names if (table := found_or_none(lake, name, missing_ok=missing_ok))]
    changed = _stop(lake, tables, State.SUSPENDED, "by hand", State.UPSTREAM_SUSPENDED, "is suspended")
    return tuple(table.name for table in definitions.list_all(lake.conn) if table.id in changed)


def suspend_failing(lake: Lake, dynamic_id: int, reason: str) -> None:
    """Its refreshes keep failing: it waits for somebody to resume it, and all that read it wait for that."""
    table = definitions.by_id(lake.conn, dynamic_id)
    failing = State.SUSPENDED_DUE_TO_ERRORS
    _stop(lake, [table], failing, reason, State.UPSTREAM_FAILED, "keeps failing", only=_GOING)


def _stop(
    lake: Lake,
    tables: Sequence[DynamicTable],
    state: State,
    reason: str,
    waiting: State,
    why: str,
    only: Collection[State] | None = None,
) -> frozenset[int]:
    """These are in this state, those that read them wait, and nothing of them is due; the ids of all that changed."""
    graph = definitions.graph(lake.conn)
    ids = {table.name: table.id for table in definitions.list_all(lake.conn)}
    below = {name for table in tables for name in graph.dependents(table.name)} - {table.name for table in tables}
    told = f"{', '.join(str(table.name) for table in tables)} {why}"
    with lake.conn.transaction():
        changed = definitions.set_state(lake.conn, [table.id for table in tables], state, reason, only=only)
        changed |= definitions.set_state(lake.conn, [ids[name] for name in below], waiting, told, only=_GOING)
        work.withdraw(lake.conn, changed)
    return changed


def resume(lake: Lake, names: Sequence[QualifiedName], *, missing_ok: bool = False) -> tuple[QualifiedName, ...]:
    """Those whose state changed: these, and what waited for them and for nobody else.

    One that reads a table which is still suspended is no longer so itself, but waits for that.
    """
    tables = [table for name in names if (table := found_or_none(lake, name, missing_ok=missing_ok))]
    graph = definitions.graph(lake.conn)
    by_name = {table.name: table for table in definitions.list_all(lake.conn)}
    resumed = {table.name for table in tables}
    stopped = {name: one.state for name, one in by_name.items() if one.state in _STOPPED and name not in resumed}
    below = {name for table in tables for name in graph.dependents(table.name)} - resumed
    changed: frozenset[int] = frozenset()
    with lake.conn.transaction():
        for table in tables:
            changed |= definitions.set_state(lake.conn, [table.id], *_awaited(graph, stopped, table.name))
        for name in below:  # others wait on, and say for whom
            state, reason = _awaited(graph, stopped, name)
            moved = definitions.set_state(lake.conn, [by_name[name].id], state, reason, only=_WAITING)
            changed |= moved if state is State.ACTIVE else frozenset()
        work.recovered(lake.conn, changed)
        work.tell(lake.conn, work.DECLARED)
    return tuple(name for name, table in by_name.items() if table.id in changed)


def _awaited(graph: Graph, stopped: Mapping[QualifiedName, State], name: QualifiedName) -> tuple[State, str | None]:
    """The state of a table that nobody suspended itself, and why: it waits while what it comes from is stopped."""
    found = [one for one in graph.ancestors(name) if one in stopped]
    if failed := [one for one in found if stopped[one] is State.SUSPENDED_DUE_TO_ERRORS]:
        return State.UPSTREAM_FAILED, f"{', '.join(map(str, failed))} keeps failing"
    if found:
        return State.UPSTREAM_SUSPENDED, f"{', '.join(map(str, found))} is suspended"
    return State.ACTIVE, None


def wait_or_go(lake: Lake, name: QualifiedName) -> None:
    """A table that was declared anew, and those that read it, wait for what it reads by now, and for nothing else."""
    graph = definitions.graph(lake.conn)
    by_name = {table.name: table for table in definitions.list_all(lake.conn)}
    stopped = {name: table.state for name, table in by_name.items() if table.state in _STOPPED}
    with lake.conn.transaction():
        for one in (name, *graph.dependents(name)):
            state, reason = _awaited(graph, stopped, one)
            only = _WAITING if state is State.ACTIVE else _GOING | _WAITING
            definitions.set_state(lake.conn, [by_name[one].id], state, reason, only=only)


def found_or_none(lake: Lake, name: QualifiedName, *, missing_ok: bool) -> DynamicTable | None:
    return definitions.find(lake.conn, name) if missing_ok else definitions.get(lake.conn, name)
