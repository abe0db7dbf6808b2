"""Files that were written but belong to no snapshot yet, and the few things that must be done with them as files.

``spark/outputs`` makes them, ``lake/footer`` reads them back, the publish names them; what is never published is an
orphan, which upkeep removes. A job's files lie in a folder of their own, so that no job ever lists another's. What a
data path can do with them is in ``lake/storage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakemill.core.commit import Partition
from lakemill.core.schema import NameMap

JOB_FOLDER = "lakemill-"


@dataclass(frozen=True, slots=True)
class StagedFile:
    path: str
    """The whole path; ``relative`` is the same below the table's folder."""
    relative: str
    partition: Partition | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """What a write job left: its files, and how many rows Spark saw on their way into them."""

    files: tuple[StagedFile, ...]
    rows: int
    mapping: tuple[NameMap, ...] | None = None
    keeps_row_ids: bool = False


@dataclass(frozen=True, slots=True)
class StagedDeletes:
    """A staged delete file and the data file that it speaks of."""

    data_file_id: int
    file: StagedFile
    positions: int


class Storage(Protocol):
    def list(self, folder: str) -> Sequence[str]:
        """All Parquet files below a folder, as whole paths."""

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        """Give each file its new path; nothing is there yet."""

    def write(self, path: str, content: bytes) -> None:
        """A whole new file."""

    def remove(self, paths: Iterable[str]) -> None:
        """Files that are not needed; one that is gone already is no error."""

    def sweep(self, folder: str) -> None:
        """Remove what Spark leaves beside a job's files: checksums, markers, and folders that are empty then."""
