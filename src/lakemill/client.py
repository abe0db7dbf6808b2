"""A client of the HTTP service: write with automatic retries that never write twice, and read what was written.

    client = lakemill.Client("https://lake.example", key="…")
    receipt = client.ingest("sales.orders", [{"id": 1, "price": "9.50"}])
    client.query("SELECT count(*) AS n FROM sales.orders").rows()      # sees what this client wrote

Every request has an idempotency key, so that one whose answer was lost is repeated under it. Knows HTTP and nothing of
the lake; errors are those of ``lakemill.errors``, by the code that the service names.
"""

from __future__ import annotations

import email.utils
import io
import random
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import httpx
import msgspec

from lakemill.core.receipts import later
from lakemill.errors import (
    ConsistencyTimeout,
    LakemillError,
    OutcomeUnknown,
    QueryTimedOut,
    Retry,
    UnavailableError,
    WrongType,
    of_code,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
_RETRIED = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_PAUSE = 30.0
Op = Literal["insert", "upsert", "delete"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a request was told."""

    token: str
    status: str
    """``accepted``, ``visible`` or ``partial_duplicate``."""
    accepted: int
    duplicate: int
    rejected: int
    key: str
    """The idempotency key that it was sent under."""
    faults: tuple[str, ...] = ()
    repeated: bool = False

    @property
    def visible(self) -> bool:
        return self.status == "visible"


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a query."""

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    def arrow(self) -> pa.Table:
        import pyarrow as pa

        with pa.ipc.open_stream(io.BytesIO(self.body)) as stream:
            return stream.read_all()

    @property
    def statistics(self) -> dict[str, Any]:
        """What the service tells of it: rows, seconds, and whether ``row_limit`` cut it (``truncated``)."""
        import pyarrow as pa

        told: bytes = b"{}"
        with pa.ipc.open_stream(io.BytesIO(self.body)) as stream, suppress(StopIteration):
            while True:
                about = stream.read_next_batch_with_custom_metadata().custom_metadata
                told = told if about is None else about[b"lakemill"]
        found: dict[str, Any] = msgspec.json.decode(told).get("statistics", {})
        return found

    def pandas(self) -> pd.DataFrame:
        found: pd.DataFrame = self.arrow().to_pandas()
        return found

    def rows(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = self.arrow().to_pylist()
        except OverflowError as error:
            raise WrongType(
                "the answer has a date or a time before year 1 or after 9999, which Python's can't hold",
                remedy="take it by arrow(), or cast the column to VARCHAR in the query",
            ) from error
        return found


class Client:
    """One connection pool; it may be used by several threads."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 90.0,
        retry_for: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """``key`` is an API key; ``retry_for`` how many seconds a request is tried again before it fails.

        ``timeout``: seconds without a word of the service; more than a query may take there (``query.timeout``).
        """
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout, transport=transport)
        self._timeout, self._retry_for = timeout, retry_for
        self.token: str | None = None
        """The latest token of this client's own writes."""

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # ------------------------------------------------------------ writing
    def ingest(
        self,
        table: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        op: Op = "insert",
        key: str | None = None,
        keys: Sequence[str] | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Send rows as one request, again and again under one key until it is answered.

        ``key`` is the request's own, made up where none is given; ``keys`` are those of the rows, where they have some.
        With ``wait`` it returns when they are visible, or after ``timeout`` seconds.
        """
        records: list[dict[str, Any]] = [{"op": op, "payload": row} for row in rows]
        for record, own in zip(records, keys or (), strict=bool(keys)):
            record["idempotency_key"] = own
        body: dict[str, Any] = {"records": records, "wait_for_visibility": wait}
        if timeout is not None:
            body["visibility_timeout_ms"] = round(timeout * 1000)
        return self._send(table, msgspec.json.encode(body), key=key, waits=(timeout or 0.0) if wait else 0.0)

    def send(
        self,
        table: str,
        body: bytes,
        *,
        media: str = "application/json",
        encoding: str | None = None,
        key: str | None = None,
        **parameters: str | int | bool,
    ) -> Receipt:
        """The same for a body that is ready: JSON, a row a line, or Arrow; compressed or not."""
        waits = int(parameters.get("visibility_timeout_ms", 0)) / 1000
        return self._send(table, body, media=media, encoding=encoding, key=key, waits=waits, parameters=parameters)

    def _send(
        self,
        table: str,
        body: bytes,
        *,
        media: str = "application/json",
        encoding: str | None = None,
        key: str | None = None,
        waits: float = 0.0,
        parameters: Mapping[str, str | int | bool] | None = None,
    ) -> Receipt:
        """``waits``: seconds that the service may take for itself, which don't count against the connection's."""
        key = key or str(uuid.uuid4())
        headers = {"Content-Type": media, "Idempotency-Key": key}
        if encoding:
            headers["Content-Encoding"] = encoding
        path = f"/v1/ingest/{quote(table, safe='')}"
        limit = self._timeout + waits
        answer = self._ask("POST", path, content=body, headers=headers, params=parameters, timeout=limit).json()
        self.token = later(self.token, answer["visibility_token"])
        return Receipt(
            answer["visibility_token"],
            answer["status"],
            answer["accepted_count"],
            answer["duplicate_count"],
            answer["rejected_count"],
            key,
            tuple(answer.get("faults", ())),
            bool(answer.get("repeated")),
        )

    def wait(self, token: str | None = None, timeout: float = 30.0) -> bool:
        """Until everything up to a token, by default this client's last, is visible; False when the time is over."""
        token, until = token or self.token, time.monotonic() + timeout
        if token is None:
            return True
        while True:
            watermark = self._ask("GET", "/v1/lag").json()["watermark"]
            if later(token, watermark) == watermark or watermark == token:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.05)

    # ------------------------------------------------------------ reading
    def query(
        self,
        sql: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        own_writes: bool = True,
        snapshot: int | None = None,
        at: datetime | None = None,
        point: Mapping[str, int] | None = None,
        timeout: float | None = None,
        row_limit: int | None = None,
    ) -> Result:
        """Run a SELECT; it sees at least what this client wrote, unless ``own_writes`` is off or a snapshot is named.

        ``token``: at least what was written up to it. ``snapshot``, ``at``, ``point``: exactly that state of the lake.
        ``timeout``: how many seconds it may wait for the token; without, it is asked again like whatever fails.
        """
        pinned = snapshot is not None or at is not None or point is not None
        if token is None and own_writes and not pinned:
            token = self.token
        wanted = {
            "sql": sql,
            "params": params,
            "min_visibility_token": token,
            "snapshot_id": snapshot,
            "snapshot_time": None if at is None else at.isoformat(),
            "point": point,
            "consistency_timeout_ms": None if timeout is None else round(timeout * 1000),
            "row_limit": row_limit,
        }
        body = msgspec.json.encode({name: value for name, value in wanted.items() if value is not None})
        headers = {"Content-Type": "application/json", "Accept": ARROW}
        # the service's own time is not counted against the connection's
        limit = self._timeout + (timeout or 0.0)
        once = () if timeout is None else (ConsistencyTimeout,)
        try:
            answer = self._ask(
                "POST", "/v1/query", once=(*once, QueryTimedOut), content=body, headers=headers, timeout=limit
            )
        except httpx.ReadTimeout as error:  # the same again would take as long again, and ask twice as much
            remedy = "give the client more time (timeout), or ask for less"
            raise QueryTimedOut(f"no answer came within {limit:g} s", remedy=remedy) from error
        return Result(answer.content, answer.headers)

    # ------------------------------------------------------------ asking
    def _ask(self, method: str, path: str, *, once: tuple[type[Exception], ...] = (), **what: Any) -> httpx.Response:
        """``once``: what is not tried again; with any of these, a service that says nothing is raised as it is."""
        until, pause = time.monotonic() + self._retry_for, 0.1
        while True:
            try:
                answer = self._http.request(method, path, **what)
            except httpx.TransportError as error:
                if once and isinstance(error, httpx.ReadTimeout):
                    raise
                if time.monotonic() + pause > until:
                    raise _lost(error) from error
                wait = pause
            else:
                if answer.is_success:
                    return answer
                told = _told(answer)
                wait = max(pause, _after(answer))
                again = answer.status_code in _RETRIED and told.retry in (Retry.BACK_OFF, Retry.LOOK_FIRST)
                if not again or isinstance(told, once) or time.monotonic() + wait > until:
                    raise told
            time.sleep(wait * random.uniform(0.75, 1.25))  # noqa: S311 - only so that clients don't march in step
            pause = min(pause * 2, _LONGEST_PAUSE)


def _lost(error: httpx.TransportError) -> LakemillError:
    text = f"the service did not answer: {str(error) or type(error).__name__}"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
        return UnavailableError(text, remedy="check the URL, and that the service runs")
    return OutcomeUnknown(text, remedy="send it again under the same key")


def _told(answer: httpx.Response) -> LakemillError:
    """The error that the service names; by the status, where something before it answered."""
    try:
        problem = answer.json()
        code, message = (
            str(problem["code"]),
            str(problem.get("message") or problem.get("detail") or answer.reason_phrase),
        )
    except (ValueError, KeyError, TypeError):
        text = f"HTTP {answer.status_code}: {answer.text[:200] or answer.reason_phrase}"
        return UnavailableError(text) if answer.status_code in _RETRIED else LakemillError(text)
    made = of_code(code)(message)
    made.place = problem.get("where") or problem.get("place")
    if problem.get("remedy"):
        made.remedy = str(problem["remedy"])
    if "faults" in problem:
        vars(made)["faults"] = tuple(problem["faults"])
    return made


def _after(answer: httpx.Response) -> float:
    """The pause that the service asks for."""
    text = answer.headers.get("Retry-After", "")
    try:
        return min(_LONGEST_PAUSE, max(0.0, float(text)))
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(text)
        except (ValueError, TypeError):
            return 0.0
        return min(_LONGEST_PAUSE, max(0.0, (moment - datetime.now(UTC)).total_seconds()))
