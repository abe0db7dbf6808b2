"""When was a row deleted? The rule for delete files whose positions carry snapshot ids.

Stock DuckDB rewrites a data file's delete file on each further delete and stamps the new positions with *transaction
start + 1*, which is too small whenever another commit came in between. A group of positions with stamp ``s`` was
therefore deleted by some commit ``c >= s``, and by the conflict rules of the extension ``c`` lies before the next
group's stamp, unless that one is an inlined delete. The labels of the commits in that interval name the possible ones.
With one possible commit the time is known; with several, reads between them are in doubt, and refused. Two kinds of
stamps are exact: those from before the data file was written, which came with it (from a flush or our compaction), and
the smallest one of a delete file, which was the first delete's own commit before anybody had to rewrite the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakemill.core.changes import COMPACTIONS, DELETES, FLUSHES, INSERTS, SHAPES
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
    open_ = False  # a group that is not deleted yet came before: a later one that is would need more than a cut
    for index, stamp in enumerate(stamps):
        possible = possible_commits(stamps, index, data, delete, labels)
        if min(possible) > at:
            open_ = True
        elif max(possible) <= at and not open_:
            cut = stamp
        else:
            raise DeleteInDoubt(
                f"rows stamped {stamp} may have been deleted by any of the snapshots {sorted(possible)}, "
                f"so the table's content at snapshot {at} is not known",
                remedy="read another snapshot; the newest one is never in doubt",
            )
    return cut


def possible_commits(stamps: Sequence[int], index: int, data: WrittenBy, delete: WrittenBy, labels: Labels) -> set[int]:
    """The commits that can have made this group of deletes; never empty."""
    stamp, writer = stamps[index], delete.latest
    if index == 0 or stamp <= data.earliest:
        return {stamp}
    last = index == len(stamps) - 1
    # what came with the data file was not inlined for it, whatever else its commit did
    inlined = [other > data.earliest and _may(labels, other, "inlined_delete") for other in stamps]
    kinds = labels.at(writer) or frozenset()
    by_writer = last  # a delete's own stamp is the largest of the file that it writes
    if delete.exact and last and "deleted_from_table" in kinds and not kinds & FLUSHES:
        if not any(inlined):
            return {writer}
        by_writer = not _only_flushed([other for other in stamps if other > data.earliest], labels)
    elif delete.exact and kinds & FLUSHES:
        by_writer = False
    # deletes from one file exclude each other, but not inlined ones: only the former end a group's time
    later = [other for other, may in zip(stamps[index + 1 :], inlined[index + 1 :], strict=True) if not may]
    end = later[0] - 1 if later else writer
    if delete.exact and not by_writer:
        end = min(end, writer - 1)
    possible = {stamp} if inlined[index] else set()  # a flushed inlined delete carries its true commit
    spanned: frozenset[str] = frozenset()
    for commit in range(stamp, end + 1):
        found = labels.at(commit)
        refused = found and found & INSERTS and spanned & DELETES  # an insert over another's delete
        if found is None or ("deleted_from_table" in found and not (found & FLUSHES) and not refused):
            possible.add(commit)
        if found is not None and found & _EXCLUDES_OPEN_DELETE:
            break
        spanned |= found or frozenset()
    return possible or {stamp, max(end, stamp)}


def _only_flushed(stamps: Sequence[int], labels: Labels) -> bool:
    """Whether the writer, which says only that it deleted, must have been a flush.

    It was when the file holds an inlined delete that nobody can have flushed before the writer's transaction, had it
    been a delete, began: at the last stamp less one.
    """
    first = labels.at(stamps[0])
    if first is None or "inlined_delete" not in first or "deleted_from_table" in first:
        return False
    before = (labels.at(commit) for commit in range(stamps[0] + 1, stamps[-1]))
    return not any(kinds is None or "deleted_from_table" in kinds or kinds & FLUSHES for kinds in before)


def _may(labels: Labels, snapshot: int, kind: str) -> bool:
    kinds = labels.at(snapshot)
    return kinds is None or kind in kinds
