"""`lakemill keys`: who may use the HTTP service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli import quotas
from lakemill.cli.audited import audited, who
from lakemill.cli.options import FormatOption, given, taught
from lakemill.cli.output import Format, moment
from lakemill.errors import BadArgument

if TYPE_CHECKING:
    from lakemill.store.keys import Key


def group() -> None:
    """Make, list and revoke the API keys of callers.

    A key has roles: ingest_writer sends rows, query_reader reads them, table_admin makes and drops tables, ops_admin
    manages keys, tenants and upkeep. With a tenant it sees only that one's schemas, with tables only those.
    """


def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is for, in a word; need not be unique.")],
    role: Annotated[
        list[str],
        typer.Option("--role", help="ingest_writer, query_reader, table_admin or ops_admin; may be repeated."),
    ],
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only what this tenant sees; else all.")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="PATTERN", help="Only tables like this: schema.table, with *; may be repeated."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="AGE", help="After how long it ends, such as '90 days'.")
    ] = None,
    requests: quotas.RequestsOption = None,
    rows: quotas.RowsOption = None,
    bytes_: quotas.BytesOption = None,
    queries: quotas.QueriesOption = None,
    format_: FormatOption = None,
) -> None:
    """Make a key, and print it: this once.

    Only a digest of it is stored. Callers send it as `Authorization: Bearer KEY`.

        lakemill keys create loader --role ingest_writer --expires "90 days"
        lakemill keys create report --role query_reader --tenant acme --table "acme.sales_*"
        lakemill keys create admin --role ops_admin --role table_admin --format json
    """
    from lakemill.core.quota import Quotas
    from lakemill.core.rights import parse_patterns, parse_roles
    from lakemill.store import keys

    output = given(context).output(format_)
    roles, patterns = parse_roles(role), parse_patterns(table or ())
    if not name.strip() or len(name) > 200:
        raise BadArgument("a key needs a name", remedy="such as `loader`")
    ends = None if expires is None else datetime.now(UTC) + _length(expires)
    limits = Quotas(requests, rows, bytes_, queries)
    with given(context).lake() as lake, audited(lake, "keys.create", name) as entry:
        made, text = keys.create(
            lake.conn, name, roles, by=who(), of=tenant, tables=patterns, quotas=limits, expires_at=ends
        )
        entry.tenant, entry.about = tenant, f"{made.id} ({name})"
    if output.format is not Format.TABLE:
        output.record({"key": text, **_facts(made)})
        return
    output.text(text)
    output.remark(f"key {made.id} ({made.name}); keep it: it can't be shown again")


def list_(context: typer.Context, format_: FormatOption = None) -> None:
    """List keys, without their secrets.

    The newest come first; revoked and expired ones are listed too. `last used` is right to the minute.

        lakemill keys list
        lakemill keys list --format json
    """
    from lakemill.store import keys

    output = given(context).output(format_)
    with given(context).lake() as lake:
        found = keys.list_all(lake.conn)
    facts = [_for_people(key) if output.format is Format.TABLE else _facts(key) for key in found]
    output.facts(facts, first="id", empty="no keys")


def revoke(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Of the key, as `lakemill keys list` shows it.")],
    format_: FormatOption = None,
) -> None:
    """End a key now.

    Processes that know it learn of it within api.key_cache (2 seconds).

        lakemill keys revoke ab3k5m2q7xyz
    """
    from lakemill.store import keys

    output = given(context).output(format_)
    with given(context).lake() as lake, audited(lake, "keys.revoke", key_id):
        revoked = keys.revoke(lake.conn, key_id)
    if output.format is Format.TABLE:
        output.text(f"key {revoked.id} ({revoked.name}): revoked")
    else:
        output.record(_facts(revoked))


commands = typer.Typer(help=taught(group), no_args_is_help=True, rich_markup_mode=None)
for function in (create, list_, revoke):
    commands.command(name=function.__name__.rstrip("_"), help=taught(function))(function)


def _length(text: str) -> timedelta:
    from lakemill.values import parse_duration

    try:
        found = parse_duration(text)
    except ValueError as error:
        raise BadArgument(f"{text!r}: {error}", place="--expires", remedy="write it like '90 days'") from error
    assert isinstance(found, timedelta)  # noqa: S101 - parse_duration gives nothing else
    return found


def _facts(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "roles": sorted(key.roles),
        "tenant": key.tenant,
        "tables": list(key.tables),
        "quotas": quotas.facts(key.quotas),
        "created_by": key.created_by,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }


def _for_people(key: Key) -> dict[str, Any]:
    ended = f"revoked {moment(key.revoked_at)}" if key.revoked_at else key.expires_at and moment(key.expires_at)
    return {
        "id": key.id,
        "name": key.name,
        "roles": ", ".join(sorted(key.roles)),
        "tenant": key.tenant,
        "tables": ", ".join(key.tables) or None,
        "quotas": quotas.shown(key.quotas),
        "created": moment(key.created_at),
        "ends": ended,
        "last used": moment(key.last_used_at),
    }
