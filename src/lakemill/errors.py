"""Every error that Lakemill raises on purpose, in one tree.

A leaf has a stable ``code`` (CLI exit codes, HTTP status and metric labels come from it), a retry class (who may try
again, and when) and a remedy in words. Driver errors are wrapped at the edge with ``raise … from``.

    LakemillError
    ├── UserError            never retried: somebody must change something            exit 2
    │   ├── BadSettings · BadArgument · UnknownTable · UnknownColumn · UnknownSnapshot · SqlFailed
    │   ├── BadStatement · UnknownDynamicTable · TableExists · Cycle · HasDependents
    │   ├── QueryRefused · QueryTooLarge · ResultTooLarge · QueryCancelled · UnknownQuery · QueryRuns
    │   ├── UnknownProfile · NotIncrementable · NoCommonPoint · OutputChanged · SourceChanged
    │   ├── RefreshFailed · UpstreamFailed
    │   ├── WrongType · UnsupportedType · UnsupportedSql · UnsupportedLake · UnsupportedVersion
    │   ├── BadRequest · MalformedBody · BodyTooLarge · UnsupportedMedia · UnknownRoute · WrongMethod
    │   ├── Unauthenticated · Forbidden · UnknownKey · UnknownTenant · TenantExists · UnknownPin
    │   ├── LakeExists · NoLake · Unwritable · UnknownBucket · FileGone · MissingPart
    │   ├── BadBody · BadRecords · RequestTooLarge · IdempotencyConflict · BadToken · TokenOfAnotherLake
    │   ├── NoIngestTable · RequestsPending · UnknownLetter
    │   └── TableGone · TableSuspended
    ├── HistoryError         the past can't be used: read it all again                exit 3
    │   ├── StrictRefused · SnapshotGone · TableReplaced · ColumnsChanged · RowCountDiffers
    │   └── DeleteInDoubt · CatalogInconsistent · DeltaInconsistent
    ├── ConflictError        somebody else was first: plan again                      exit 4
    │   └── PublishConflict · ClaimLost · NameTaken · DefinitionChanged · FrontierMoved
    ├── UnavailableError     a part does not answer: back off                         exit 5
    │   ├── StoreUnavailable · StorageUnavailable · EngineLost · EngineUnreachable · ForeignLock
    │   ├── PublishTimedOut · RefreshTimedOut · RefreshTooLarge · BatchTimedOut · ConsistencyTimeout · Stopped
    │   └── QueriesQueued · QueryTimedOut · Busy · Backlogged · QuotaExceeded · TooManyFailures · IssuerUnavailable
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


class SourceChanged(UserError):
    code = "SOURCE_CHANGED"
    default_remedy = "CREATE OR REPLACE it with a query of what its sources have now, or give them back what it reads"


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

    def __init__(self, message: str, *, name: str = "", remedy: str | None = None, place: str | None = None) -> None:
        super().__init__(message, remedy=remedy, place=place)
        self.name = name
        """The one that is not there."""


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


class QueryRefused(UserError):
    code = "QUERY_REFUSED"
    default_remedy = "write one SELECT over tables of the lake; docs/explanation/querying.md says what it may contain"


class QueryTooLarge(UserError):
    code = "QUERY_TOO_LARGE"
    default_remedy = "read less at a time, or allow it more (query.memory_limit, query.temp_limit)"


class ResultTooLarge(UserError):
    code = "RESULT_TOO_LARGE"
    default_remedy = "ask for fewer rows (LIMIT, or row_limit), or allow more (query.row_limit, query.byte_limit)"


class QueryCancelled(UserError):
    code = "QUERY_CANCELLED"
    default_remedy = ""


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


class BadRequest(UserError):
    code = "BAD_REQUEST"
    default_remedy = "correct the fields that are named; /docs shows what each may be"


class MalformedBody(UserError):
    code = "MALFORMED_BODY"
    default_remedy = "send what the content type says"


class BodyTooLarge(UserError):
    code = "BODY_TOO_LARGE"
    default_remedy = "send less at a time, or let the setting api.max_body be raised"


class UnsupportedMedia(UserError):
    code = "UNSUPPORTED_MEDIA"


class UnknownRoute(UserError):
    code = "UNKNOWN_ROUTE"


class WrongMethod(UserError):
    code = "WRONG_METHOD"


class Unauthenticated(UserError):
    code = "UNAUTHENTICATED"
    default_remedy = "send `Authorization: Bearer KEY` or `X-API-Key: KEY`; `lakemill keys create` makes one"


class Forbidden(UserError):
    code = "FORBIDDEN"


class UnknownKey(UserError):
    code = "UNKNOWN_KEY"
    default_remedy = "list the keys with `lakemill keys list`"


class UnknownTenant(UserError):
    code = "UNKNOWN_TENANT"
    default_remedy = "list the tenants with `lakemill tenants list`"


class TenantExists(UserError):
    code = "TENANT_EXISTS"
    default_remedy = "choose another name, or change that one with `lakemill tenants alter`"


class UnknownPin(UserError):
    code = "UNKNOWN_PIN"


class UnknownQuery(UserError):
    code = "UNKNOWN_QUERY"


class QueryRuns(UserError):
    code = "QUERY_RUNS"
    default_remedy = "give it another id, or none"


class BadBody(UserError):
    code = "BAD_BODY"
    default_remedy = 'send {"records": [{"payload": {…}}]}, or a row a line as application/x-ndjson'


class BadRecords(UserError):
    code = "BAD_RECORDS"
    default_remedy = "correct the records and send the request again; nothing of it was accepted"

    def __init__(self, message: str, *, faults: tuple[str, ...] = (), place: str | None = None) -> None:
        super().__init__(message, place=place)
        self.faults = faults
        """What is wrong with each record, the first of them where there are many."""


class RequestTooLarge(UserError):
    code = "REQUEST_TOO_LARGE"
    default_remedy = "send smaller requests; the limits are settings of the group ingest"


class IdempotencyConflict(UserError):
    code = "IDEMPOTENCY_CONFLICT"
    default_remedy = "give a new request a new key; repeat an old one as it was"


class BadToken(UserError):
    code = "BAD_TOKEN"
    default_remedy = "use a token as the answer to a request gave it"


class TokenOfAnotherLake(UserError):
    code = "TOKEN_OF_ANOTHER_LAKE"
    default_remedy = "use a token that this lake gave out"


class NoIngestTable(UserError):
    code = "NO_INGEST_TABLE"
    default_remedy = "let it take requests: `lakemill table create NAME --adopt`"


class RequestsPending(UserError):
    code = "REQUESTS_PENDING"
    default_remedy = "wait until they are visible, or say that they may be lost (--force)"


class UnknownLetter(UserError):
    code = "UNKNOWN_LETTER"
    default_remedy = "list them with `lakemill letters list`"


class TableGone(UserError):
    code = "TABLE_GONE"
    default_remedy = "send the records to the table that took its place"


class TableSuspended(UserError):
    code = "TABLE_SUSPENDED"
    default_remedy = "resume it, or ask without the token"


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
    default_remedy = "read the table at a snapshot that `lakemill snapshots` lists"


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


class EngineUnreachable(UnavailableError):
    """Nothing was computed yet: whoever asked for it is not the cause."""

    code = "ENGINE_UNREACHABLE"
    default_remedy = "check spark.master or spark.remote, and that the cluster runs; `lakemill doctor` tries it"


class ForeignLock(UnavailableError):
    code = "FOREIGN_LOCK"


class QueriesQueued(UnavailableError):
    code = "QUERIES_QUEUED"
    default_remedy = "try again later, or allow more at a time (query.executors)"


class QueryTimedOut(UnavailableError):
    code = "QUERY_TIMED_OUT"
    default_remedy = "ask for less, or give it more time (query.timeout)"


class PublishTimedOut(UnavailableError):
    code = "PUBLISH_TIMED_OUT"
    default_remedy = "try again; nothing was published"


class RefreshTimedOut(UnavailableError):
    code = "REFRESH_TIMED_OUT"
    default_remedy = "give it more time (service.refresh_timeout), or more machines (spark.master)"


class RefreshTooLarge(UnavailableError):
    code = "REFRESH_TOO_LARGE"
    default_remedy = (
        "allow it more (service.refresh_memory), give it SPARK_PROFILE = 'batch', whose partitions are smaller,"
        " or let it be staged in more parts (spark.staged_keys)"
    )


class BatchTimedOut(UnavailableError):
    code = "BATCH_TIMED_OUT"
    default_remedy = "it is tried again; give it more time (ingest.batch_timeout), or more machines (spark.master)"


class Stopped(UnavailableError):
    code = "STOPPED"
    default_remedy = "another worker, or the next one, does it"


class Busy(UnavailableError):
    code = "BUSY"
    default_remedy = "try again shortly, or start another `lakemill api`"


class QuotaExceeded(UnavailableError):
    code = "QUOTA_EXCEEDED"
    default_remedy = "wait as long as Retry-After says, or let the quota be raised"

    wait: float = 1.0
    """Seconds after which it may be tried again."""


class TooManyFailures(UnavailableError):
    code = "TOO_MANY_FAILURES"
    default_remedy = "check the key, and wait as long as Retry-After says"

    wait: float = 1.0
    """Seconds after which it may be tried again."""


class IssuerUnavailable(UnavailableError):
    code = "ISSUER_UNAVAILABLE"
    default_remedy = "check api.jwks_url, and that the issuer answers there"


class Backlogged(UnavailableError):
    code = "BACKLOGGED"
    default_remedy = "send it again, under the same key, after the pause that is named"

    def __init__(self, message: str, *, wait: float = 1.0, place: str | None = None) -> None:
        super().__init__(message, place=place)
        self.wait = wait
        """Seconds after which it may be tried again."""


class ConsistencyTimeout(UnavailableError):
    code = "CONSISTENCY_TIMEOUT"
    default_remedy = "ask again, or for longer; it is accepted and will become visible"

    def __init__(self, message: str, *, watermark: int = 0, place: str | None = None) -> None:
        super().__init__(message, place=place)
        self.watermark = watermark
        """The last token that every table has passed."""
        self.token: str | None = None
        """The same, as clients know it."""


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
