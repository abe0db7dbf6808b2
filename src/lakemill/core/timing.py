"""When was a row deleted? The rule for delete files whose positions carry snapshot ids (traps 1).

Stock DuckDB rewrites a data file's delete file on each further delete and stamps the new positions with *transaction
start + 1*, which is too small whenever another commit came in between. A group of positions with stamp ``s`` was
therefore deleted by some commit ``c >= s``, and by the conflict rules of the extension ``c`` lies before the next
group's stamp. The labels of the commits in that interval name the possible ones. With one possible commit the time is
known; with several, only reads between the first and the last are in doubt, and those are refused. Two kinds of stamps
are exact: those from before the data file was written, which came with it (from a flush or Lakemill's compaction), and
the smallest one of a delete file, which was the first delete's own commit before anybody had to rewrite the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakemill.core.changes import COMPACTIONS, FLUSHES, INSERTS, SHAPES
from lakemill.errors import DeleteInDoubt

# A delete whose transaction spans one of these on its table would have been refused by the extension.
_EXCLUDES_OPEN_DELETE = INSERTS | SHAPES | COMPACTIONS


@dataclass(frozen=True, slots=True)
class Labels:
    """What the commits did to one table: snapshot id → kinds. Ids that are absent were expired: holes."""

    kinds: Mapping[int, frozenset[str]]

    def at(self, snapshot: int) -> frozenset[str] | None:
        return self.kinds.get(snapshot)


@dataclass(frozen=True, slots=True)
class WrittenBy:
    """The commit that wrote a file: the first snapshot whose next_file_id exceeds the file's id.

    Where that one was expired, it lies between ``earliest`` and ``latest``, the first one that is left.
    """

    earliest: int
    latest: int

    @property
    def exact(self) -> bool:
        return self.earliest == self.latest


def deleted_up_to(stamps: Sequence[int], at: int, data: WrittenBy, delete: WrittenBy, labels: Labels) -> int:
    """The largest stamp whose positions count as deleted at snapshot ``at``; −1 when none do.

    ``stamps`` are the distinct stamps of one delete file, ascending; ``data`` and ``delete`` tell who wrote the data
    file and the delete file. Only asked for ``at`` before the delete file was written: afterwards all its positions
    are deleted.
    """
    cut = -1
    for index, stamp in enumerate(stamps):
        possible = possible_commits(stamps, index, data, delete, labels)
        if max(possible) <= at:
            cut = stamp
        elif min(possible) > at:
            break
        else:
            raise DeleteInDoubt(
                f"rows stamped {stamp} may have been deleted by any of the snapshots {sorted(possible)}, "
                f"so the table's content at snapshot {at} is not known",
                remedy="read another snapshot; the newest one is never in doubt",
            )
    return cut


def possible_commits(stamps: Sequence[int], index: int, data: WrittenBy, delete: WrittenBy, labels: Labels) -> set[int]:
    """The commits that can have made this group of deletes; never empty."""
    stamp = stamps[index]
    if index == 0 or stamp <= data.earliest:
        return {stamp}
    last = index == len(stamps) - 1
    writer = labels.at(delete.latest) or frozenset()
    if last and delete.exact and "deleted_from_table" in writer and not (writer & FLUSHES):
        return _by_writer_or_flushed(stamps, delete.latest, labels)
    end = delete.latest if last else stamps[index + 1] - 1
    possible = set()
    if _may(labels, stamp, "inlined_delete"):
        possible.add(stamp)  # a flushed inlined delete carries its true commit
    for commit in range(stamp, end + 1):
        kinds = labels.at(commit)
        if kinds is None or ("deleted_from_table" in kinds and not (kinds & FLUSHES)):
            possible.add(commit)
        if kinds is not None and kinds & _EXCLUDES_OPEN_DELETE:
            break
    return possible or {stamp, max(end, stamp)}


def _by_writer_or_flushed(stamps: Sequence[int], writer: int, labels: Labels) -> set[int]:
    """The last group of a file whose writer says that it deleted.

    A flush that finds only inlined deletes says the same and nothing of a flush, and its stamps are true commits. It
    was a flush when there is one stamp (a first delete has none), or when every stamp is an inlined delete's commit
    and no earlier commit can have begun the file.
    """
    stamp = stamps[-1]
    if not _may(labels, stamp, "inlined_delete"):
        return {writer}
    begun = any(_may(labels, commit, "deleted_from_table") for commit in range(stamps[0], writer))
    if len(stamps) == 1 or (not begun and all(_may(labels, s, "inlined_delete") for s in stamps)):
        return {stamp}
    return {stamp, writer}


def _may(labels: Labels, snapshot: int, kind: str) -> bool:
    kinds = labels.at(snapshot)
    return kinds is None or kind in kinds
