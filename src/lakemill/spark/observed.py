"""Numbers that a job counts on its way, for those above `spark/` who may not know Spark's own class."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Observation


@dataclass(frozen=True, slots=True)
class Observed:
    """To be handed to what computes a frame; its numbers are there after the first job over that."""

    of: Observation = field(default_factory=Observation)

    def text(self, name: str) -> str | None:
        found = self.of.get[name]
        return None if found is None else str(found)

    def __getitem__(self, name: str) -> int:
        return int(self.of.get[name])
