"""`lakemill ingest`: a file, or what is piped in, becomes rows of a table; straight on the lake or over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, Given, given
from lakemill.errors import BadArgument, BadRecords

if TYPE_CHECKING:
    from lakemill.runtime.feed import Batch

OPS = ("insert", "upsert", "delete")


def command(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table: `table` or `schema.table`.")],
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Rows in JSON, one a line or one array; - is stdin.")],
    op: Annotated[str, typer.Option("--op", help="insert, upsert or delete; the last two need a key.")] = "insert",
    compression: Annotated[
        str | None, typer.Option(help="gzip, zstd or none; by the file's name where it is not given.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=20000, help="Rows of one request.")] = 1000,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the last request is visible, or its time over.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="Send it to this service instead of straight to the lake.")] = None,
    key: Annotated[
        str | None, typer.Option(envvar="LAKEMILL_API_KEY", help="The service's API key; also LAKEMILL_API_KEY.")
    ] = None,
    format_: FormatOption = None,
) -> None:  # fmt: skip
    """Send rows to a table that takes requests.

    Each batch is one request under a key that is derived from the file up to there: when it was interrupted, or rows
    had to be corrected, run it again, and nothing is written twice. A file that grew is another one from its last batch
    on.

        lakemill ingest sales.orders orders.ndjson
        lakemill ingest sales.orders orders.json.gz --op upsert --wait
        lakemill ingest sales.orders - --url https://lake.example --key secret
    """
    from lakemill.core.names import fold, parse_name
    from lakemill.runtime.feed import batches, compression_of

    output = given(context).output(format_)
    how = compression or compression_of(file)
    if op not in OPS or how not in ("none", "gzip", "zstd"):
        wrong, words = ("--op", OPS) if op not in OPS else ("--compression", ("none", "gzip", "zstd"))
        raise BadArgument(
            f"'{op if op not in OPS else how}' can't be meant", place=wrong, remedy=f"write {', '.join(words)}"
        )
    told: dict[str, Any] = {"table": table, "requests": 0, "accepted": 0, "duplicate": 0, "rejected": 0, "repeated": 0}
    told |= {"status": "", "token": None}
    with _opened(file) as stream, _sender(given(context), table, op, url, key) as send:
        held: Batch | None = None
        target = (fold(str(parse_name(table))), op)  # `orders` and `main.orders` are the same
        for one in batches(stream, target, how, batch):  # type: ignore[arg-type]
            if held is not None:
                _count(told, send(held, False))
            held = one
        if held is not None:
            _count(told, send(held, wait))
    output.record(told)


Send = Callable[["Batch", bool], Any]


def _count(told: dict[str, Any], answer: Any) -> None:
    told["requests"] += 1
    if answer.repeated:
        told["repeated"] += answer.accepted + answer.duplicate + answer.rejected
    else:
        for name in ("accepted", "duplicate", "rejected"):
            told[name] += getattr(answer, name)
    told["token"], told["status"] = answer.token, answer.status


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise BadArgument(
            f"{file} can't be read: {error.strerror}", place="FILE", remedy="name a file with rows, or - for stdin"
        ) from error


@contextmanager
def _sender(words: Given, table: str, op: str, url: str | None, key: str | None) -> Iterator[Send]:
    if url is not None:
        from lakemill.client import Client

        with Client(url, key) as client:

            def send(batch: Batch, wait: bool) -> Any:
                body, media = b"\n".join(batch.rows), "application/x-ndjson"
                with _lines(batch):
                    return client.send(table, body, media=media, key=batch.key, op=op, wait_for_visibility=wait)

            yield send
        return
    from lakemill.core.names import parse_name
    from lakemill.runtime.bodies import Given as Request
    from lakemill.runtime.ingest import Ingest

    with Ingest(words.settings()) as ingest:

        def accept(batch: Batch, wait: bool) -> Any:
            with _lines(batch):
                return ingest.ingest(parse_name(table), Request(batch.rows, False, op, batch.key, wait))  # type: ignore[arg-type]

        yield accept


@contextmanager
def _lines(batch: Batch) -> Iterator[None]:
    """What is wrong is told by the row's number in the file."""
    try:
        yield
    except BadRecords as error:
        where, dot, rest = (error.place or "records[0]").partition("]")
        number = batch.first + int(where.partition("[")[2])
        raise BadRecords(error.message, faults=error.faults, place=f"row {number}{rest if dot else ''}") from error
