"""Settings of upkeep: when files are too many, who may compact them and when, how long the past is kept.

A group of `lakemill/settings.py`. What the lake's policy says holds for every table, but for what `upkeep.policies`
says of its schema, and of itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from lakemill.values import WINDOW, Duration, Group, Jobs, Size, parse_policies, parse_size

SmallSize = Annotated[int, BeforeValidator(parse_size), Field(ge=0)]
SmallFiles = Annotated[int, Field(ge=2)]
Share = Annotated[float, Field(gt=0, le=1)]


def _of_tables(jobs: str) -> str:
    lake = [job for job in jobs.split(", ") if job in ("expire", "cleanup", "orphans")]
    if lake:
        raise ValueError(f"{', '.join(lake)} is done for the whole lake; write it in upkeep.auto")
    return jobs


def _hours(window: str) -> str:
    if window and not re.fullmatch(WINDOW, window):
        raise ValueError(f"'{window}' is no window; write it like '01:00-05:00', or leave it empty")
    return window


Window = Annotated[str, AfterValidator(_hours)]


class PolicySettings(Group):
    """What is said of one schema or table; the rest is as the next wider one says."""

    auto: Annotated[Jobs, AfterValidator(_of_tables)] | None = None
    interval: Duration | None = None
    window: Window | None = None
    small_files: SmallFiles | None = None
    small_size: SmallSize | None = None
    small_age: Duration | None = None
    deleted_share: Share | None = None
    target_file_size: Size | None = None
    retention: Duration | None = None


Policies = Annotated[dict[str, PolicySettings], BeforeValidator(parse_policies)]


class UpkeepSettings(Group):
    retention: Duration = Field(
        timedelta(days=2),
        description="Snapshots younger than this are never expired; nor those that a table with a longer one needs.",
    )
    orphan_age: Duration = Field(
        timedelta(days=1),
        description="A file that no snapshot knows is removed when it is older than this; longer than the longest job.",
    )
    target_file_size: Size = Field(
        512 * 10**6, description="Size that compaction aims at, where the lake has no option of its own."
    )
    auto: Jobs = Field(
        "flush, compact, cleanup, orphans",
        description="What the service does by itself, of flush, compact, expire, cleanup, orphans; empty: nothing.",
    )
    interval: Duration = Field(timedelta(hours=1), description="How often the service looks for such work.")
    window: Window = Field(
        "", description="Only within these hours of a day (UTC), such as `01:00-05:00`; empty: at any time."
    )
    patience: Duration = Field(
        timedelta(minutes=5),
        description="Upkeep waits for refreshes that are due, but no longer than this: then one job goes before them.",
    )
    small_files: SmallFiles = Field(16, description="A table with so many small files is compacted.")
    small_size: SmallSize = Field(
        0, description="A file below this is small; 0: below a quarter of the size that compaction aims at."
    )
    small_age: Duration = Field(
        timedelta(days=1), description="Two small files are enough when the last of them is as old as this."
    )
    deleted_share: Share = Field(
        0.2, description="A table is compacted, too, when this share of the rows of its files is deleted."
    )
    policies: Policies = Field(
        {},
        description="Other values for a schema (`sales`) or one table (`sales.orders`): auto (of flush, compact), "
        "interval, window, small_files, small_size, small_age, deleted_share, target_file_size, retention.",
    )

    def given(self) -> Mapping[str, Mapping[str, Any]]:
        """By schema or table: the values of its policy."""
        return {name: _policy(policy.model_dump(exclude_none=True)) for name, policy in self.policies.items()}

    def of_lake(self) -> Mapping[str, Any]:
        """The values of the lake's own policy."""
        return _policy({key: getattr(self, key) for key in PolicySettings.model_fields})


def _policy(values: dict[str, Any]) -> dict[str, Any]:
    """As `core/tending` names them."""
    auto = values.pop("auto", None)
    return values if auto is None else {**values, "jobs": frozenset(filter(None, auto.split(", ")))}
