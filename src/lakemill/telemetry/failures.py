"""Something other than a refresh went wrong in a process of the service: one line of log, and one more of its code.

For the loops of ``runtime``, which go on afterwards. What a refresh or a request failed by is counted with that.
"""

from __future__ import annotations

from typing import Any

from lakemill.errors import InternalError, LakemillError
from lakemill.telemetry import log, metrics


def failed(doing: str, error: BaseException, **fields: Any) -> None:
    metrics.count_error(error.code if isinstance(error, LakemillError) else InternalError.code)
    log.failed(doing, error, **fields)
