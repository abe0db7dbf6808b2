"""A refresh as lineage tells it: which tables it read, at which commits, and what it made.

Around ``Refresh.run``. It only reads what the refresh knows anyway, and asks nobody; where no lineage is wanted it does
nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lakemill.core.names import fold
from lakemill.store.definitions import SourceKind
from lakemill.telemetry import lineage
from lakemill.telemetry.lineage import Dataset, Told

if TYPE_CHECKING:
    from lakemill.runtime.refresh import Refresh
    from lakemill.store.history import RefreshRecord

Run = TypeVar("Run", bound=Callable[..., Any])


def reported(run: Run) -> Run:
    """For ``Refresh.run``: its lineage is told when it begins and when it ends."""

    @functools.wraps(run)
    def reported_run(work: Refresh) -> RefreshRecord:
        if not lineage.on():
            record: RefreshRecord = run(work)
            return record
        work.begin()  # which gives it its id; it begins again with the same
        lineage.begun(_told(work))
        try:
            record = run(work)
        except BaseException as error:
            lineage.aborted(_told(work), error)
            raise
        lineage.ended(_told(work, record.commit), record)
        return record

    return reported_run  # type: ignore[return-value]


def _told(work: Refresh, commit: int | None = None) -> Told:
    table = work.table
    tables = [source for source in work.sources if source.kind is not SourceKind.VIEW]
    windows = {found.source.key: found for found in work.window.sources} if work.window is not None else {}
    inputs = []
    for source in tables:
        found = windows.get(source.key)
        columns = tuple(found.types.items()) if found else tuple((name, "") for name in source.columns)
        spelled = {fold(column.name): column.name for column in found.table.columns} if found else {}
        named = tuple((spelled.get(name, name), type_) for name, type_ in columns)
        inputs.append(Dataset(str(source.name), named, found.b if found else None))
    output = Dataset(str(table.name), tuple((column.name, column.type) for column in table.resolved.columns), commit)
    return Told(
        _namespace(work.lake.settings.data_path),
        str(work.record.id),
        table.definition.query,
        table.resolved.query,
        table.definition.dialect.value,
        tuple(inputs),
        tuple(source.key for source in tables),
        output,
    )


def _namespace(data_path: str) -> str:
    """All that a lake's tables have in common, wherever they are read: its data path."""
    place = data_path.rstrip("/")
    return place if "://" in place else f"file://{place}"
