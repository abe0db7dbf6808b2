"""Files that were written but belong to no snapshot yet, and the few things that must be done with them as files.

``spark/outputs`` makes them, ``lake/footer`` reads them back, the publish names them; what is never published is an
orphan, which upkeep removes. A job's files lie in a folder of their own, so that no job ever lists another's. Storage
is what a data path can do; here is the local one, S3's is ``lake/storage``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lakemill.core.commit import Partition
from lakemill.core.schema import NameMap
from lakemill.errors import StorageUnavailable, Unwritable

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


class LocalStorage:
    """A folder of this machine, or one that all machines have mounted."""

    def list(self, folder: str) -> list[str]:
        found = []
        for place, _, names in os.walk(folder):
            found += [f"{place}/{name}" for name in names if name.endswith(".parquet") and not name.startswith(".")]
        return sorted(found)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        with _told():
            for source, goal in moves:
                Path(goal).parent.mkdir(parents=True, exist_ok=True)
                Path(source).rename(goal)

    def write(self, path: str, content: bytes) -> None:
        with _told():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(path).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

    def remove(self, paths: Iterable[str]) -> None:
        with _told():
            for path in paths:
                Path(path).unlink(missing_ok=True)

    def sweep(self, folder: str) -> None:
        """Remove what Spark leaves beside the files: checksums, markers, and folders that are empty then."""
        for place, _, names in os.walk(folder, topdown=False):
            for name in names:
                if name.endswith(".crc") or name == "_SUCCESS":
                    (Path(place) / name).unlink(missing_ok=True)
            if not any(Path(place).iterdir()):
                Path(place).rmdir()


class _told:  # noqa: N801  (reads as a word)
    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, PermissionError):
            raise Unwritable(str(error)) from error
        if isinstance(error, OSError):
            raise StorageUnavailable(str(error)) from error
