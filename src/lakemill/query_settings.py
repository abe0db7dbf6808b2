"""Settings of queries: how many at once, and how much each may take. A part of ``settings``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from lakemill.values import Duration, Group, Size


class QuerySettings(Group):
    executors: int = Field(4, ge=1, le=256, description="How many queries are answered at the same time.")
    queue: int = Field(64, ge=0, description="How many may wait for their turn; more are refused at once.")
    queue_timeout: Duration = Field(timedelta(seconds=10), description="How long a query waits for its turn.")
    timeout: Duration = Field(timedelta(seconds=60), description="Longest query, the reading of its answer included.")
    memory_limit: Size = Field(10**9, ge=64 * 10**6, description="Memory of one query; beyond it spills to temp_dir.")
    temp_limit: Size = Field(4 * 10**9, description="How much one query may spill.")
    temp_dir: Path | None = Field(None, description="Where queries spill; empty: the machine's temporary folder.")
    threads: int = Field(2, ge=1, description="Threads of one query.")
    row_limit: int = Field(10_000_000, ge=1, description="A query with more rows than this is an error.")
    byte_limit: Size = Field(4 * 10**9, description="A query whose answer is larger than this, as Arrow, is an error.")
    text_limit: Size = Field(256 * 1024, description="Longest text of a query.")
    confinement: Literal["require", "try"] = Field(
        "require",
        description="Whether a query runs where the kernel can't keep it from other files (Landlock, seccomp): `try`"
        " relies on DuckDB's own guards there.",
    )
    s3_access_key_id: str = Field(
        "", description="An access key that may only read, for queries; empty: the one of the settings for S3."
    )
    s3_secret_access_key: SecretStr = Field(SecretStr(""), description="Its secret.")
