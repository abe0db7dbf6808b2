"""What Spark and DuckDB say when a file that they were to read is not there, as one error of ours.

Beside ``s3_errors``, for every kind of storage. It reads texts and imports no engine, so that the command line can ask
it too. Whose file it was is not known here: a query may have named one of the user's own.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from lakemill.errors import FileGone
from lakemill.lake.staging import JOB_FOLDER

_BY_SPARK = (
    r"\[PATH_NOT_FOUND\] Path does not exist: (.+?)\.? SQLSTATE",
    r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (.+?)\. File does not exist",
)
_NOT_OPENED = r'Cannot open file "(.+?)": No such file or directory'
_NOT_FOUND = r'No files found that match the pattern "(.+?)"'
_UUID = r"[0-9a-f]{8}-[0-9a-f-]{27}"
_LAKES_OWN = re.compile(rf"/(ducklake-{_UUID}|{JOB_FOLDER}{_UUID})[^/]*(/[^/]+)?$")


def gone_for_spark(error: BaseException) -> FileGone | None:
    """The file that Spark missed while it planned or ran a query; None where it is about something else."""
    for pattern in _BY_SPARK:
        if found := re.search(pattern, str(error), re.DOTALL):
            return _gone(_plain(found[1]))
    return None


def gone_for_duckdb(error: BaseException, *, own: bool = False) -> FileGone | None:
    """The same for DuckDB; ``own``: it read a list of files of the lake, and nothing that a user named."""
    text = str(error)
    if own and (found := re.search(_NOT_FOUND, text)):
        return _gone(found[1])
    if (found := re.search(_NOT_OPENED, text)) and (own or _was_to_be_read(found[1])):
        return _gone(found[1])
    return None


def _gone(path: str) -> FileGone:
    return FileGone("the file is not there", place=path)


def _was_to_be_read(path: str) -> bool:
    """DuckDB says the same of a file to be written into a folder that is not there: that is a mistake in a query."""
    return _LAKES_OWN.search(path) is not None or Path(path).parent.is_dir()


def _plain(uri: str) -> str:
    """A path as the catalog has it, from Spark's spelling."""
    if uri.startswith("file:"):
        return unquote(re.sub(r"^file:/+", "/", uri))
    return re.sub(r"^s3a:", "s3:", uri)
