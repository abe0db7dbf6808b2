"""Settings of ingest: what a request may be, when requests are turned away, and how they become batches.

A group of `lakemill/settings.py`.
"""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from lakemill.values import Duration, Group, Size, Timeout


class IngestSettings(Group):
    max_request_bytes: Size = Field(16 * 10**6, description="Largest body of a request, after decompression.")
    max_records: int = Field(20_000, ge=1, description="Most records of a request.")
    named_faults: int = Field(20, ge=1, description="How many bad records of a refused request are named.")
    gather: Duration = Field(
        timedelta(milliseconds=2),
        description="How long a commit waits for further requests to share it, where the last one was shared.",
    )
    group_bytes: Size = Field(16 * 10**6, description="Requests of one commit have at most so many bytes together.")
    queue_bytes: Size = Field(
        64 * 10**6, description="Requests that wait in a process for their commit; beyond that they are turned away."
    )
    backlog_records: int = Field(
        10_000_000, ge=1, description="Requests are turned away while more records than this are not yet visible."
    )
    backlog_bytes: Size = Field(4 * 10**9, description="So they are while these records have more bytes than this.")
    backlog_age: Duration = Field(
        timedelta(minutes=15), description="So they are while the oldest of these records is older than this."
    )
    resume_at: float = Field(
        0.8, gt=0, le=1, description="Requests are taken again when all three are below this share of their limits."
    )
    columns_age: Duration = Field(
        timedelta(seconds=1),
        description="How long a process may use a table's columns without asking; a bad record makes it ask at once.",
    )
    visibility_timeout: Duration = Field(
        timedelta(seconds=10), description="How long a request that waits for visibility does so, unless it says."
    )
    interval: Duration = Field(
        timedelta(milliseconds=500), description="A request waits so long for others before they become one batch."
    )
    batch_requests: int = Field(10_000, ge=1, description="A batch has no more requests than this.")
    batch_records: int = Field(
        500_000, ge=1, description="A batch is begun at once when so many records wait, and has about as many at most."
    )
    batch_bytes: Size = Field(64 * 10**6, description="The same, in bytes of the requests.")
    task_bytes: Size = Field(8 * 10**6, description="How much of a batch one Spark task reads.")
    slots: int = Field(2, ge=1, le=64, description="How many tables a coordinator works on at the same time.")
    claim_expiry: Duration = Field(
        timedelta(seconds=30), description="A coordinator that was silent for this long has lost its table to others."
    )
    batch_timeout: Timeout = Field(
        timedelta(minutes=10),
        description="A batch that takes longer is stopped, counts as failed, and is tried again after a pause.",
    )
    attempts: int = Field(
        3, ge=1, description="How often a batch that fails is tried before its bad records are looked for, one by one."
    )
    ledger: Duration = Field(
        timedelta(days=7), description="For how long it is kept which snapshot made which token visible."
    )
