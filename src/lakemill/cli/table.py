"""`lakemill table`: tables that take requests: create, alter, policy, drop, list."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakemill.cli.options import FormatOption, given, taught
from lakemill.cli.output import Output
from lakemill.errors import BadArgument

if TYPE_CHECKING:
    from lakemill.store.ingest import IngestTable, Policy

TableArgument = Annotated[str, typer.Argument(metavar="NAME", help="The table: `table` or `schema.table`.")]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", help="A column of the key; may be repeated. With a key, writes are upserts."),
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="For records that don't fit: reject, dead_letter, drop_field or evolve.")
]
DedupeOption = Annotated[
    str | None, typer.Option("--dedupe", metavar="TIME", help="How long idempotency keys are remembered.")
]
RetentionOption = Annotated[
    str | None,
    typer.Option("--retention", metavar="TIME", help="How long its past is kept: old snapshots, settled dead letters."),
]


def group() -> None:
    """Tables that take requests.

    They are tables of the lake like all others, which clients may write by `lakemill ingest` and by HTTP.
    """


def create(
    context: typer.Context,
    name: TableArgument,
    columns: Annotated[
        str | None, typer.Argument(metavar="COLUMNS", help="As in CREATE TABLE: 'id BIGINT NOT NULL, at TIMESTAMPTZ'.")
    ] = None,
    key: KeyOption = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="EXPRESSION", help="Such as 'day(at)'; may be repeated."),
    ] = None,
    policy: PolicyOption = None,
    dedupe: DedupeOption = None,
    retention: RetentionOption = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="A table that is there takes requests from now on.")] = False,
    format_: FormatOption = None,
) -> None:
    """Make a table that takes requests.

    With a key it has at most one row a key: every write is an upsert, and the last one wins.

        lakemill table create sales.orders "id BIGINT, price DECIMAL(10,2), at TIMESTAMPTZ DEFAULT now()" --key id
        lakemill table create clicks "at TIMESTAMPTZ NOT NULL, page VARCHAR" --partition-by "day(at)" --policy evolve
        lakemill table create events --adopt
    """
    from lakemill.core.names import parse_name
    from lakemill.lake.tables import parse_columns
    from lakemill.runtime import ingest_tables
    from lakemill.store.ingest import DEDUPE, Policy

    if adopt == (columns is not None):
        raise BadArgument("name its columns, or --adopt one that is there", remedy="see `lakemill table create --help`")
    wanted = () if columns is None else parse_columns(columns)
    with given(context).lake() as lake:
        made = ingest_tables.create(
            lake,
            parse_name(name),
            wanted,
            key=key or (),
            partition_by=partition_by or (),
            policy=_policy(policy) or Policy.REJECT,
            dedupe=_time(dedupe, "--dedupe") or DEDUPE,
            retention=_time(retention, "--retention"),
            adopt=adopt,
        )
    _show(given(context).output(format_), made)


def alter(
    context: typer.Context,
    name: TableArgument,
    add: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns to add, as in CREATE TABLE.")] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column to drop; may be repeated.")] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="A column to rename; may be repeated.")
    ] = None,
    key: KeyOption = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="It has no key from now on.")] = False,
    dedupe: DedupeOption = None,
    retention: RetentionOption = None,
    format_: FormatOption = None,
) -> None:
    """Change a table's columns, as one snapshot, its key and its windows.

    A key can change only while nothing is waiting to become visible.

        lakemill table alter sales.orders --add "note VARCHAR, weight DOUBLE" --rename price=amount
        lakemill table alter sales.orders --key shop --key id
    """
    from lakemill.core.names import parse_name
    from lakemill.lake.tables import Alteration, DropColumn, Rename, parse_columns
    from lakemill.runtime import ingest_tables

    steps: list[Alteration] = []
    for pair in rename or []:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise BadArgument(f"'{pair}' is no renaming", place="--rename", remedy="write old=new")
        steps.append(Rename(old, new))
    steps += [DropColumn(column) for column in drop or []]
    steps += parse_columns(add) if add is not None else ()
    with given(context).lake() as lake:
        made = ingest_tables.alter(
            lake,
            parse_name(name),
            steps,
            key=[] if no_key else key or None,
            dedupe=_time(dedupe, "--dedupe"),
            retention=_time(retention, "--retention"),
        )
    _show(given(context).output(format_), made)


def policy(
    context: typer.Context,
    name: TableArgument,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="reject, dead_letter, drop_field or evolve.")],
    format_: FormatOption = None,
) -> None:
    """Say what happens to records that don't fit a table.

    reject: the whole request is refused, and each bad record named. dead_letter: bad ones are kept aside, see
    `lakemill letters`, and the rest is accepted. drop_field: unknown fields are dropped. evolve: unknown fields become
    columns, and columns of numbers become wider.

        lakemill table policy sales.orders dead_letter
    """
    from lakemill.core.names import parse_name
    from lakemill.runtime import ingest_tables

    wanted = _policy(policy)
    with given(context).lake() as lake:
        made = ingest_tables.alter(lake, parse_name(name), policy=wanted)
    _show(given(context).output(format_), made)


def drop(
    context: typer.Context,
    name: TableArgument,
    force: Annotated[bool, typer.Option("--force", help="What is not yet visible may be lost.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the table; it only takes no more requests.")] = False,
    format_: FormatOption = None,
) -> None:
    """Drop a table that takes requests.

    Refused while requests are not yet visible, and while dynamic tables read it. Its dead letters go with it.

        lakemill table drop sales.orders
        lakemill table drop sales.orders --keep
    """
    from lakemill.core.names import parse_name
    from lakemill.runtime import ingest_tables

    with given(context).lake() as lake:
        ingest_tables.drop(lake, parse_name(name), force=force, keep=keep)
    given(context).output(format_).record({"table": name, "dropped": not keep})


def list_(context: typer.Context, format_: FormatOption = None) -> None:
    """List the tables that take requests.

    Waiting is what was accepted and is not yet visible; letters are records that could not become rows.

        lakemill table list
        lakemill table list --format json
    """
    from lakemill.runtime import ingest_tables
    from lakemill.store.ingest import lags

    with given(context).lake() as lake:
        found, behind = ingest_tables.list_all(lake), lags(lake.conn)
    rows = []
    for table in found:
        lag = behind[table.table_id]
        rows.append([str(table.name), ", ".join(table.key), table.policy.value, lag.requests, lag.records, lag.letters])
    columns = ["table", "key", "policy", "waiting_requests", "waiting_records", "letters"]
    given(context).output(format_).rows(columns, rows, empty="no table takes requests")


commands = typer.Typer(help=taught(group), no_args_is_help=True, rich_markup_mode=None)
for function in (create, alter, policy, drop, list_):
    commands.command(name=function.__name__.rstrip("_"), help=taught(function))(function)


def _policy(text: str | None) -> Policy | None:
    from lakemill.store.ingest import Policy

    try:
        return None if text is None else Policy(text)
    except ValueError:
        raise BadArgument(f"'{text}' is no policy", remedy=f"write {', '.join(Policy)}") from None


def _time(text: str | None, place: str) -> timedelta | None:
    from lakemill.values import parse_duration

    try:
        found = None if text is None else parse_duration(text)
    except ValueError as error:
        raise BadArgument(str(error), place=place, remedy="such as '7 days'") from error
    return found if isinstance(found, timedelta) else None


def _show(output: Output, table: IngestTable) -> None:
    output.record(
        {
            "table": str(table.name),
            "key": list(table.key),
            "policy": table.policy.value,
            "dedupe": table.dedupe,
            "retention": table.retention,
        }
    )
