"""Every error that Lakemill raises on purpose, in one tree.

A leaf has a stable ``code`` (CLI exit codes, HTTP status and metric labels come from it), a retry class (who may try
again, and when) and a remedy in words. Driver errors are wrapped at the edge with ``raise … from``.

    LakemillError
    ├── UserError            never retried: somebody must change something            exit 2
    │   ├── BadSettings · BadArgument · UnknownTable · UnknownColumn · UnknownSnapshot · SqlFailed
    │   ├── BadStatement · UnknownDynamicTable · TableExists · Cycle · HasDependents
    │   ├── UnknownProfile · NotIncrementable · NoCommonPoint · OutputChanged · RefreshFailed · UpstreamFailed
    │   ├── WrongType · UnsupportedType · UnsupportedSql · UnsupportedLake · UnsupportedVersion
    │   └── LakeExists · NoLake · Unwritable · UnknownBucket · FileGone · MissingPart
    ├── HistoryError         the past can't be used: read it all again                exit 3
    │   ├── StrictRefused · SnapshotGone · TableReplaced · ColumnsChanged · RowCountDiffers
    │   └── DeleteInDoubt · CatalogInconsistent · DeltaInconsistent
    ├── ConflictError        somebody else was first: plan again                      exit 4
    │   └── PublishConflict · ClaimLost · NameTaken · DefinitionChanged · FrontierMoved
    ├── UnavailableError     a part does not answer: back off                         exit 5
    │   ├── StoreUnavailable · StorageUnavailable · EngineLost · ForeignLock
    │   └── PublishTimedOut · RefreshTimedOut · Stopped
    ├── OutcomeUnknown       look first: it may or may not have happened              exit 6
    └── InternalError        our own mistake: keep the evidence                       exit 70
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class Retry(Enum):
    NEVER = "never"
    REPLAN = "re-plan"
    BACK_OFF = "back off"
    LOOK_FIRST = "look first"


class LakemillError(Exception):
    code: ClassVar[str] = "ERROR"
    retry: ClassVar[Retry] = Retry.NEVER
    exit_code: ClassVar[int] = 1
    default_remedy: ClassVar[str] = ""

    def __init__(self, message: str, *, remedy: str | None = None, place: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = self.default_remedy if remedy is None else remedy
        self.place = place

    def __str__(self) -> str:
        """One line: code, place, what is wrong, what to do."""
        where = f"{self.place}: " if self.place else ""
        cure = f" → {self.remedy}" if self.remedy else ""
        return f"{self.code}: {where}{self.message}{cure}"


# ---------------------------------------------------------------- the user must change something
class UserError(LakemillError):
    code = "USER_ERROR"
    exit_code = 2


class BadSettings(UserError):
    code = "BAD_SETTINGS"
    default_remedy = "correct the settings; docs/reference/settings.md lists every one"


class BadArgument(UserError):
    code = "BAD_ARGUMENT"


class UnknownTable(UserError):
    code = "UNKNOWN_TABLE"
    default_remedy = "list the tables with `lakemill tables`"


class UnknownColumn(UserError):
    code = "UNKNOWN_COLUMN"


class UnknownSnapshot(UserError):
    code = "UNKNOWN_SNAPSHOT"
    default_remedy = "list the snapshots with `lakemill snapshots`"


class SqlFailed(UserError):
    code = "SQL_FAILED"


class BadStatement(UserError):
    code = "BAD_STATEMENT"


class NotIncrementable(UserError):
    code = "NOT_INCREMENTAL"
    default_remedy = "write REFRESH_MODE = AUTO, or FULL"


class OutputChanged(UserError):
    code = "OUTPUT_CHANGED"
    default_remedy = "CREATE OR REPLACE it"


class NoCommonPoint(UserError):
    code = "NO_COMMON_POINT"
    default_remedy = "refresh them together: lakemill refresh A B"


class RefreshFailed(UserError):
    code = "REFRESH_FAILED"


class UpstreamFailed(UserError):
    code = "UPSTREAM_FAILED"
    default_remedy = "see `lakemill history` for what went wrong there"


class UnknownDynamicTable(UserError):
    code = "UNKNOWN_DYNAMIC_TABLE"
    default_remedy = "list them with SHOW DYNAMIC TABLES"


class UnknownProfile(UserError):
    code = "UNKNOWN_PROFILE"
    default_remedy = "define it in the settings as [spark.profiles.NAME], or name another as SPARK_PROFILE"


class TableExists(UserError):
    code = "TABLE_EXISTS"
    default_remedy = "choose another name, or write CREATE OR REPLACE, CREATE OR ALTER or IF NOT EXISTS"


class Cycle(UserError):
    code = "CYCLE"
    default_remedy = "a dynamic table can't read itself, not even through others: read a base table instead"


class HasDependents(UserError):
    code = "HAS_DEPENDENTS"
    default_remedy = "drop those first, or add CASCADE"


class WrongType(UserError):
    code = "WRONG_TYPE"
    default_remedy = "cast the column to the table's type"


class UnsupportedType(UserError):
    code = "UNSUPPORTED_TYPE"
    default_remedy = "read this table with DuckDB, or store the column in a supported type"


class UnsupportedSql(UserError):
    code = "UNSUPPORTED_SQL"
    default_remedy = "write it with functions that DuckDB and Spark share"


class UnsupportedLake(UserError):
    code = "UNSUPPORTED_LAKE"


class UnsupportedVersion(UserError):
    code = "UNSUPPORTED_VERSION"


class LakeExists(UserError):
    code = "LAKE_EXISTS"


class NoLake(UserError):
    code = "NO_LAKE"
    default_remedy = "create one with `lakemill init`"


class Unwritable(UserError):
    code = "UNWRITABLE"
    default_remedy = "give write permission, or choose another data path"


class UnknownBucket(UserError):
    code = "UNKNOWN_BUCKET"
    default_remedy = "create the bucket, or correct the data path"


class FileGone(UserError):
    code = "FILE_GONE"
    default_remedy = (
        "somebody removed it: put it back from a backup, or read a snapshot that does not need it;"
        " a DataFrame whose snapshot was expired must be made anew"
    )


class MissingPart(UserError):
    code = "MISSING_PART"
    default_remedy = "`lakemill doctor` says what is missing and how to get it"


# ---------------------------------------------------------------- history can't be used
class HistoryError(LakemillError):
    code = "HISTORY_ERROR"
    retry = Retry.REPLAN
    exit_code = 3
    default_remedy = "read the table at its newest snapshot instead of a delta"


class StrictRefused(HistoryError):
    code = "STRICT_REFUSED"
    default_remedy = "REFRESH … FULL loads it anew"


class SnapshotGone(HistoryError):
    code = "SNAPSHOT_GONE"
    default_remedy = "the snapshot was expired; read the table at one that `lakemill snapshots` lists"


class TableReplaced(HistoryError):
    code = "TABLE_REPLACED"


class ColumnsChanged(HistoryError):
    code = "COLUMNS_CHANGED"


class RowCountDiffers(HistoryError):
    code = "ROW_COUNT_DIFFERS"


class DeleteInDoubt(HistoryError):
    code = "DELETE_IN_DOUBT"


class CatalogInconsistent(HistoryError):
    code = "CATALOG_INCONSISTENT"
    default_remedy = "the catalog contradicts itself; rewrite the table with DuckDB (CREATE OR REPLACE … AS SELECT)"


class DeltaInconsistent(HistoryError):
    code = "DELTA_INCONSISTENT"


# ---------------------------------------------------------------- somebody else was first
class ConflictError(LakemillError):
    code = "CONFLICT"
    retry = Retry.REPLAN
    exit_code = 4
    default_remedy = "run it again: it will be planned on the newest snapshot"


class PublishConflict(ConflictError):
    code = "PUBLISH_CONFLICT"


class ClaimLost(ConflictError):
    code = "CLAIM_LOST"


class NameTaken(ConflictError):
    code = "NAME_TAKEN"


class DefinitionChanged(ConflictError):
    code = "DEFINITION_CHANGED"


class FrontierMoved(ConflictError):
    code = "FRONTIER_MOVED"


# ---------------------------------------------------------------- a part does not answer
class UnavailableError(LakemillError):
    code = "UNAVAILABLE"
    retry = Retry.BACK_OFF
    exit_code = 5


class StoreUnavailable(UnavailableError):
    code = "STORE_UNAVAILABLE"
    default_remedy = "check that PostgreSQL runs and that the DSN in the settings reaches it"


class StorageUnavailable(UnavailableError):
    code = "STORAGE_UNAVAILABLE"
    default_remedy = "check the data path, its endpoint and credentials, and the free space there"


class EngineLost(UnavailableError):
    code = "ENGINE_LOST"


class ForeignLock(UnavailableError):
    code = "FOREIGN_LOCK"


class PublishTimedOut(UnavailableError):
    code = "PUBLISH_TIMED_OUT"
    default_remedy = "try again; nothing was published"


class RefreshTimedOut(UnavailableError):
    code = "REFRESH_TIMED_OUT"
    default_remedy = "give it more time (service.refresh_timeout), or more machines (spark.master)"


class Stopped(UnavailableError):
    code = "STOPPED"
    default_remedy = "another worker, or the next one, does it"


class OutcomeUnknown(LakemillError):
    code = "OUTCOME_UNKNOWN"
    retry = Retry.LOOK_FIRST
    exit_code = 6
    default_remedy = "the commit's answer was lost; it is settled by its publish id before anything is tried again"


class InternalError(LakemillError):
    code = "INTERNAL_ERROR"
    exit_code = 70
    default_remedy = "this is a mistake in Lakemill; please report it with the message"


def of_code(code: str) -> type[LakemillError]:
    """The error that has this code; ours, where none has it."""
    kinds: list[type[LakemillError]] = [LakemillError]
    for kind in kinds:
        if kind.code == code:
            return kind
        kinds += kind.__subclasses__()
    return InternalError
