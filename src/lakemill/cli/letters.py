"""`lakemill letters`: records that could not become rows: list, show, replay, drop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakemill.cli.options import FormatOption, given, taught
from lakemill.errors import BadArgument, UnknownLetter

LettersArgument = Annotated[list[int], typer.Argument(metavar="LETTER…", help="Ids, as `lakemill letters list` shows.")]


def group() -> None:
    """Dead letters: records that could not become rows.

    Each has its reason and the place of what is wrong. Replay it, as it is or corrected, or drop it.
    """


def list_(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only of this table.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only those: waiting, replayed or dropped; waiting by default.")
    ] = "waiting",
    all_: Annotated[bool, typer.Option("--all", help="In any state.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 20,
    format_: FormatOption = None,
) -> None:
    """List dead letters, the newest first.

    Those that wait for somebody to replay or drop them, unless another state is asked for.

        lakemill letters list
        lakemill letters list sales.orders --all --format json
    """
    from lakemill.core.names import parse_name
    from lakemill.runtime import ingest_tables
    from lakemill.store import ingest as store

    with given(context).lake() as lake:
        wanted = None if table is None else [ingest_tables.get(lake, parse_name(table)).table_id]
        found = store.letters(lake.conn, tables=wanted, state=None if all_ else state, limit=limit)
        names = {one.table_id: str(one.name) for one in ingest_tables.list_all(lake)}
    rows = [[one.id, names.get(one.table_id), one.place, one.reason, one.state, one.died_at] for one in found]
    columns = ["letter", "table", "place", "reason", "state", "died_at"]
    given(context).output(format_).rows(columns, rows, empty="no letters")


def show(
    context: typer.Context,
    letter: Annotated[int, typer.Argument(metavar="LETTER", help="Its id, as `lakemill letters list` shows.")],
    format_: FormatOption = None,
) -> None:
    """Show one dead letter with its record.

    Also the token of the request that brought it, and of its replay.

        lakemill letters show 17
    """
    from lakemill.core.receipts import write_token
    from lakemill.runtime import ingest_tables
    from lakemill.store import ingest as store
    from lakemill.store import watermarks

    with given(context).lake() as lake:
        found = store.letter(lake.conn, letter)
        names = {one.table_id: str(one.name) for one in ingest_tables.list_all(lake)}
        lake_id = watermarks.head(lake.conn).lake_id
    given(context).output(format_).record(
        {
            "letter": found.id,
            "table": names.get(found.table_id),
            "token": write_token(lake_id, found.token),
            "position": found.position,
            "code": found.code,
            "place": found.place,
            "reason": found.reason,
            "died_at": found.died_at,
            "state": found.state,
            "replayed": None if found.replayed is None else write_token(lake_id, found.replayed),
            "body": found.body,
        }
    )


def replay(
    context: typer.Context,
    letters: LettersArgument,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="The row to send instead; with one letter only.")
    ] = None,
    format_: FormatOption = None,
) -> None:
    """Send dead letters again: after the table was altered, or with a corrected row.

    A replay is a new write with a new token; idempotency keys don't count for it.

        lakemill letters replay 17 18
        lakemill letters replay 17 --payload '{"id": 1, "price": "9.50"}'
    """
    from lakemill.runtime.ingest import Ingest

    if payload is not None and len(letters) != 1:
        raise BadArgument("one row can stand for one letter only", place="--payload", remedy="name one letter")
    body = None if payload is None else _payload(payload)
    output = given(context).output(format_)
    rows = []
    try:
        with Ingest(given(context).settings()) as ingest:
            for letter in letters:
                rows.append([letter, "replayed", ingest.replay(letter, body).token])
    finally:
        if rows:
            output.rows(["letter", "state", "token"], rows)


def drop(context: typer.Context, letters: LettersArgument, format_: FormatOption = None) -> None:
    """Mark dead letters as settled without a replay.

    They are forgotten when the table's retention is over.

        lakemill letters drop 17 18
    """
    from lakemill.store import ingest as store

    with given(context).lake() as lake:
        known = {one.id for one in store.letters(lake.conn, ids=letters, limit=len(letters))}
        if lacking := set(letters) - known:
            raise UnknownLetter(f"there is no letter {min(lacking)}")
        store.drop_letters(lake.conn, letters)
        found = store.letters(lake.conn, ids=letters, limit=len(letters))
    given(context).output(format_).rows(["letter", "state"], [[one.id, one.state] for one in found])


commands = typer.Typer(help=taught(group), no_args_is_help=True, rich_markup_mode=None)
for function in (list_, show, replay, drop):
    commands.command(name=function.__name__.rstrip("_"), help=taught(function))(function)


def _payload(text: str) -> bytes:
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise BadArgument(
            f"{text[1:]} can't be read: {error.strerror}", place="--payload", remedy="name a file with one row in JSON"
        ) from error
