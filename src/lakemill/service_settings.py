"""Settings of the service: scheduler, workers, the port of each process, its log. A group of `lakemill/settings.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field, model_validator

from lakemill.values import Duration, Group, Size


class ServiceSettings(Group):
    tick: Duration = Field(
        timedelta(seconds=1),
        description="How often the scheduler looks by itself; a commit to the lake, or a statement, wakes it at once.",
    )
    slots: int = Field(2, ge=1, le=64, description="How many refreshes a worker does at the same time.")
    claim_expiry: Duration = Field(
        timedelta(minutes=5), description="A worker that was silent for this long has lost its work to the others."
    )
    heartbeat: Duration = Field(timedelta(seconds=30), description="How often a worker says that it lives.")
    refresh_timeout: Duration = Field(
        timedelta(hours=1), description="A scheduled refresh that takes longer is cancelled, and counts as failed."
    )
    hang_grace: Duration = Field(
        timedelta(minutes=1),
        description="A slot that has not returned for so long after it was cancelled is left behind, and another "
        "takes its place.",
    )
    left_behind: int = Field(
        4, ge=1, description="When so many slots hang the process ends with code 5: its supervisor starts it anew."
    )
    refresh_memory: Size | None = Field(
        None,
        description="A refresh whose Spark jobs hold more, in memory and spilled to disk, is cancelled and counts as "
        "failed; unset: no limit. Through Spark Connect nobody can tell.",
    )
    stop_grace: Duration = Field(
        timedelta(seconds=30), description="How long a worker that is told to stop may finish what it is at."
    )
    retry_base: Duration = Field(timedelta(seconds=1), description="Pause after the first failure of a part.")
    retry_factor: float = Field(2, ge=1, description="How much longer each further pause is.")
    retry_cap: Duration = Field(timedelta(minutes=5), description="The longest pause.")
    suspend_after: int = Field(
        5, ge=1, description="A table is suspended after so many scheduled refreshes failed in a row."
    )
    history: Duration = Field(
        timedelta(days=30), description="Records of refreshes are kept for this long; the newest of a table always."
    )
    recycle_jobs: int = Field(
        2000,
        ge=0,
        description="Spark's JVM is started anew after so many refreshes and batches of its process; 0: never.",
    )
    recycle_memory: Size = Field(
        8 * 10**9, description="Spark's JVM is started anew when its process holds more memory than this."
    )
    host: str = Field("127.0.0.1", min_length=1, description="Address of /healthz, /readyz and /metrics.")
    port: int = Field(8640, ge=0, le=65535, description="Port of these; 0: any that is free.")
    log_format: Literal["console", "json"] = Field("console", description="How the service logs.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="How much the service logs; `debug` shows the SQL of every refresh."
    )

    @model_validator(mode="after")
    def _beats_before_it_expires(self) -> ServiceSettings:
        if self.heartbeat * 2 > self.claim_expiry:
            raise ValueError("heartbeat must be at most half of claim_expiry")
        return self
