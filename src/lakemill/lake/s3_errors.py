"""What an error of S3 means, whoever met it: obstore, DuckDB or Spark.

Each has its own words, and pages of them, for the same few things: no such bucket, wrong key, no right, full, busy,
silent, not there. `explain` makes one line of ours from any of them; it never retries and never asks S3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakemill.errors import FileGone, LakemillError, StorageUnavailable, UnknownBucket, Unwritable


@dataclass(frozen=True, slots=True)
class _Meaning:
    pattern: str
    error: type[LakemillError]
    message: str
    remedy: str | None = None


_MEANINGS = (
    _Meaning(r"NoSuchBucket|UnknownStoreException|bucket does not exist", UnknownBucket, "the bucket does not exist"),
    _Meaning(
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|Unauthenticated",
        Unwritable,
        "S3 does not accept the credentials",
        "correct s3.access_key_id and s3.secret_access_key, or the AWS_* variables",
    ),
    _Meaning(
        r"169\.254\.169\.254|NoAuthWithAWSException|Unable to load credentials|NoAwsCredentials",
        Unwritable,
        "there are no credentials for S3",
        "set s3.access_key_id and s3.secret_access_key, or the AWS_* variables",
    ),
    _Meaning(
        r"AccessDenied|403 Forbidden|Status Code: 403|HTTP (code )?403|PermissionDenied",
        Unwritable,
        "S3 denies access",
        "give this access key the right to list, read, write and delete here",
    ),
    _Meaning(
        r"StorageFull|InsufficientStorage|Insufficient Storage|Status Code: 507|status code: 507|No space left",
        StorageUnavailable,
        "the storage is full",
        "free some space, then try again",
    ),
    _Meaning(
        r"SlowDown|ThrottledException|(?i:status code: 503|HTTP 503)|503 Service",
        StorageUnavailable,
        "S3 is too busy to answer",
        "try again later",
    ),
    _Meaning(
        r"TimedOut|timed out|Timeout was reached|Timeout ?Exception",
        StorageUnavailable,
        "S3 did not answer in time",
        "try again; s3.read_timeout and s3.retries say how long to wait",
    ),
    _Meaning(
        r"kind: Connect|ConnectException|UnknownHostException|Could not establish connection|Could not connect",
        StorageUnavailable,
        "S3 can't be reached",
        "check s3.endpoint (http or https, host, port) and that the server runs",
    ),
    _Meaning(
        r"error sending request|Connection reset|NoHttpResponseException|Server returned nothing",
        StorageUnavailable,
        "S3 broke off the connection",
        "try again later",
    ),
    _Meaning(r"404 Not Found|FileNotFoundException|NoSuchKey|HTTP 404", FileGone, "the file is not there"),
)


def explain_spark(text: str) -> LakemillError | None:
    """The same for what Spark told, where S3 is behind it."""
    if "awssdk" not in text and "fs.s3a" not in text:
        return None
    bucket = re.search(r"s3a?://[^/\s'`:,]+", text)
    return explain(text, bucket[0].replace("s3a://", "s3://") if bucket else "the lake's data path")


def explain(text: str, place: str) -> LakemillError:
    """The error of our tree that this text means, in one line; `place` is the path it is about."""
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("at "))  # Java's stack
    for meaning in _MEANINGS:
        if re.search(meaning.pattern, text):
            return meaning.error(meaning.message, remedy=meaning.remedy, place=place)
    told = re.search(r"<Message>([^<]+)</Message>", text) or re.search(r"S3 error: ([^\n]+)|([^\n]+)", text)
    reason = next((group for group in told.groups() if group), "") if told else ""
    return StorageUnavailable(f"S3 failed: {reason.strip()[:300] or 'no reason given'}", place=place)
