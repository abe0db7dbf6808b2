"""A batch's records and the table's columns as they are now → how the one becomes the other (``spark/bus.Layout``).

Mostly the columns are those for which the records were accepted. Where they are not, the catalog tells what was renamed
since, and whether a name means another column by now: then values under it are not that column's. Requests that mean
different things by the same name are not of one batch. Before Spark; nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from lakemill.core.batch import Batch, Claim
from lakemill.core.meant import SAME, Meant, doubtful, meant
from lakemill.core.records import columns_version
from lakemill.core.scan import TableAt
from lakemill.errors import UnknownColumn
from lakemill.spark import bus

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake


class MixedColumnsError(Exception):
    """Later requests mean other columns by the same names: this many of the first ones, please."""

    def __init__(self, requests: int) -> None:
        super().__init__(f"the first {requests} requests")
        self.requests = requests


def layout_of(lake: Lake, table: TableAt, held: Claim, batch: Batch) -> bus.Layout:
    """What records become; where they were accepted for other columns, with what those were called."""
    checked = batch.versions != {columns_version(table.columns)}
    names = {column.name.lower(): column.name for column in table.columns}
    renamed: dict[str, int] = {}
    foreign: tuple[str, ...] = ()
    if checked or not {name.lower() for name in held.key} <= names.keys():
        with lake.catalog() as catalog:
            older = catalog.old_names(table.id)
        renamed = {name: column_id for name, column_id in older.items() if name not in names.values()}
        of_id = {column.id: column.name for column in table.columns}
        names = {name.lower(): of_id[column_id] for name, column_id in renamed.items()} | names
    if checked and (by_version := _meanings(lake, table, batch.versions)):
        one = _only(lake, held, batch, by_version)
        foreign, renamed = one.foreign, dict(one.renamed) if one.foreign else renamed
    if lost := [name for name in held.key if name.lower() not in names]:
        raise UnknownColumn(
            f"{table.full_name} has no column {lost[0]!r} any more, which is of its key",
            remedy="declare another key, or let the table take no requests",
        )
    key = tuple(names[name.lower()] for name in held.key)
    return bus.Layout(table.columns, key, checked, held.policy == "drop_field", tuple(renamed.items()), foreign)


def _meanings(lake: Lake, table: TableAt, versions: frozenset[str]) -> Mapping[str, Meant]:
    """By version of the columns what names meant then; empty where every name means what it did."""
    with lake.catalog() as catalog:
        reused = catalog.reused_names(table.id)
        if not reused:
            return {}
        found = {columns_version(table.columns): SAME}
        for at in catalog.column_changes(table.id):
            if versions <= found.keys():
                break
            columns = catalog.columns(table.id, at)
            found.setdefault(columns_version(columns), meant(columns, table.columns))
    return {version: found.get(version) or doubtful(reused, table.columns) for version in versions}


def _only(lake: Lake, held: Claim, batch: Batch, by_version: Mapping[str, Meant]) -> Meant:
    """What all requests of the batch mean; else the first of them alone make a batch."""
    if len(set(by_version.values())) == 1:
        return next(iter(by_version.values()))
    meanings = [by_version[version] for version in lake.consumer.versions(held, batch)]
    raise MixedColumnsError(len(list(takewhile(lambda one: one == meanings[0], meanings))))
