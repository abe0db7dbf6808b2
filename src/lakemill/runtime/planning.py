"""What a refresh stands on and what it will do: the window of its sources, the query's shape over it, the plan.

Lines 6 and 7 of a refresh, and all of ``explain``. A definition whose sources have another shape by now is declared
again on the way. Nothing is computed here, and nothing is published.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp

from lakemill.core.definition import Dialect, RefreshMode
from lakemill.core.names import quote
from lakemill.core.parts import stable_columns
from lakemill.core.plan import Plan, Reason, ResolvedMode, Shape, decide, wanted_states
from lakemill.core.profile import Thresholds, require_profile, with_profile
from lakemill.core.refresh import Action
from lakemill.core.scan import Snapshot
from lakemill.core.shape import NotIncremental
from lakemill.core.sparksql import NO_DELTAS, SparkQuery, read
from lakemill.core.state import keep, plain
from lakemill.errors import HistoryError, OutputChanged, SnapshotGone, StrictRefused, of_code
from lakemill.runtime import recording
from lakemill.runtime.analyse import shape_of
from lakemill.runtime.declaring import declare, meant_now
from lakemill.runtime.window import STATE_LOST, Window, look, states_fit
from lakemill.store import definitions, versions
from lakemill.store.definitions import DynamicTable, Source, SourceKind
from lakemill.telemetry import tracing

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

_LOADED_ANEW = "nothing is to be done: it is loaded anew, and goes on from there"
_NO_STATES = Reason(STATE_LOST.code, "it has no hidden states so far, by which it is refreshed in its mode", None)
_CURES = {SnapshotGone.code: "refresh it more often, or keep snapshots for longer"}


@dataclass(slots=True)
class Planning:
    """One table, on its way to data snapshot ``b``; ``t`` is what now() means there."""

    lake: Lake
    table: DynamicTable
    sources: tuple[Source, ...]
    b: Snapshot
    t: datetime
    full: bool = field(default=False, kw_only=True)
    frontier: versions.Frontier | None = field(default=None, kw_only=True)
    window: Window | None = field(default=None, init=False)
    """That the last plan stands on; None before the first."""
    _shape: Shape | None = field(default=None, init=False)
    _phases: dict[str, float] = field(default_factory=dict, init=False)
    _open: dict[str, float] = field(default_factory=dict, init=False)
    """Phases that are not over, and when they began."""

    @property
    def clocked(self) -> bool:
        return self.table.resolved.clocked

    def planned(self) -> tuple[Plan, Window]:
        """The plan, with the window that it stands on."""
        plan, window = self._decided()
        return self.profiled(plan, window), window

    def profiled(self, plan: Plan, window: Window) -> Plan:
        """The plan, with the profile that Spark has for it; one that the settings define no more is refused."""
        declared, spark = self.table.definition.spark_profile, self.lake.settings.spark
        if plan.action is not Action.NO_DATA:
            require_profile(declared, spark.profiles)
        above = Thresholds(spark.batch_keys, spark.staged_keys)
        divisible = not isinstance(self.shape, NotIncremental) and bool(stable_columns(self.shape))
        sizes = [source.size for source in window.sources]
        return with_profile(plan, declared, sizes, above, divisible=divisible)

    def _decided(self) -> tuple[Plan, Window]:
        window = self._look()
        strict = self.table.definition.strict and not self.full
        if strict and window.lost is not None and not self._declared_so(window.lost):
            raise StrictRefused(f"{window.lost.text}, and it is STRICT")
        if (window.lost is not None or self.frontier is None) and self._declared_again():
            window = replace(self._look(), lost=window.lost)
        sizes = dict(enumerate([*(s.size for s in window.sources), *(s.size for s in window.states)]))
        whole = sum(source.size.bytes for source in window.sources)
        if self.frontier is None:
            reason = Reason("FIRST_LOAD", "it was never loaded")
            return Plan(Action.INITIALIZE, reason, full_bytes=whole), window
        if window.lost is not None:
            return Plan(Action.REINITIALIZE, window.lost, full_bytes=whole), window
        if self.full:
            reason = Reason("REQUESTED", "FULL was asked for")
            return Plan(Action.FULL, reason, full_bytes=whole, states=not self._given_up), window
        definition = self.table.definition
        mode = ResolvedMode(definition.refresh_mode, self.table.resolved.mode, self._mode_reason())
        moved = self.clocked and self.frontier.version.t != self.t
        stateful = bool(wanted_states(self.shape))
        with tracing.span("plan"):
            plan = decide(
                self.shape,
                mode,
                sizes,
                threshold=definition.cardinality_threshold,
                strict=definition.strict,
                clock_moved=moved,
                experience=recording.experience(self.lake, self.table, stateful=stateful) if self._adaptive else None,
                given_up=self._given_up,
            )
        return plan, window

    def _declared_so(self, lost: Reason) -> bool:
        """Whether it was declared so that its past is of no use: by another query, or as one that has states now."""
        return lost.code == "DEFINITION_CHANGED" or lost is _NO_STATES

    def _look(self) -> Window:
        """The window, and the query's shape over it, with the states that it should have."""
        with self.phase("look"):
            window = look(self.lake, self.table, self.sources, self.frontier, self.b, self.t)
            self._shape, self.window = self._shaped(window), window
        if window.lost is not None and issubclass(of_code(window.lost.code), HistoryError):
            # a delta's reader would be told to read all of the table: that is what is done
            window = replace(window, lost=replace(window.lost, remedy=_CURES.get(window.lost.code, _LOADED_ANEW)))
        if self.frontier is None or window.lost is not None or self._given_up or states_fit(self._shape, window):
            return window
        return replace(window, lost=STATE_LOST if self.frontier.states else _NO_STATES)

    @property
    def _adaptive(self) -> bool:
        return self.table.definition.refresh_mode is RefreshMode.ADAPTIVE

    @property
    def _given_up(self) -> bool:
        """Whether it has no states, though its shape has some: under ADAPTIVE that is a choice, and no loss."""
        none = self.frontier is not None and not self.frontier.states
        return none and self._adaptive and bool(wanted_states(self.shape))

    @property
    def shape(self) -> Shape:
        assert self._shape is not None  # noqa: S101  (a plan stands on it)
        return self._shape

    @property
    def without_states(self) -> Shape:
        """What is computed where states are given up: the query alone."""
        assert self.window is not None  # noqa: S101  (a plan stands on it)
        found = self._tree()
        return found if isinstance(found, NotIncremental) else plain(found, [s.types for s in self.window.sources])

    def _shaped(self, window: Window) -> Shape:
        found, types = self._tree(), [source.types for source in window.sources]
        if isinstance(found, NotIncremental):
            return found
        return plain(found, types) if self.table.resolved.mode is RefreshMode.FULL else keep(found, types)

    def _tree(self) -> Shape:
        query = self.query
        if isinstance(query, SparkQuery):
            return NO_DELTAS
        tables = tuple(source for source in self.sources if source.kind is not SourceKind.VIEW)
        return shape_of(query, tables, {source.key: dict.fromkeys(source.columns, "") for source in tables})

    @property
    def query(self) -> exp.Query | SparkQuery:
        text, dialect = self.table.resolved.query, self.table.definition.dialect
        parsed = cast("exp.Query", sqlglot.parse_one(text, dialect=dialect.value))
        return parsed if dialect is Dialect.DUCKDB else read(text, parsed)

    def _mode_reason(self) -> Reason:
        code, _, text = self.table.resolved.mode_reason.partition(": ")
        text, _, remedy = text.partition(" → ")
        return Reason(code, text, remedy or None)

    def _declared_again(self) -> bool:
        """Whether the definition means something else by now; what is loaded must still have these columns."""
        found = meant_now(self.lake, self.table)
        if (found.resolved, found.sources) == (self.table.resolved, self.sources):
            return False
        if self.frontier is not None and found.resolved.columns != self.table.resolved.columns:
            had, has = (
                [f"{quote(column.name)} {column.type}" for column in resolved.columns]
                for resolved in (self.table.resolved, found.resolved)
            )
            gone, new = ([one for one in mine if one not in others] for mine, others in ((had, has), (has, had)))
            told = f"{', '.join(gone) or 'nothing'} would be {', '.join(new) or 'gone'}"
            raise OutputChanged(f"the query of {self.table.name} has other columns by now: {told}")
        self.table = declare(self.lake, self.table, self.table.definition, found.resolved, found.sources)
        self.sources = definitions.sources(self.lake.conn, self.table)
        self._shape = None
        return True

    # ------------------------------------------------------------ how long it takes
    def taken(self) -> dict[str, float]:
        """By phase; the one that saves the record counts up to here."""
        now = time.monotonic()
        return self._phases | {name: self._phases.get(name, 0.0) + now - began for name, began in self._open.items()}

    @property
    def doing(self) -> str | None:
        """The phase that is under way, the innermost; asked by another thread."""
        return next(reversed(list(self._open)), None)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = self._open[name] = time.monotonic()
        try:
            with tracing.span(name):
                yield
        finally:
            self._open.pop(name, None)
            self._phases[name] = self._phases.get(name, 0.0) + time.monotonic() - started
