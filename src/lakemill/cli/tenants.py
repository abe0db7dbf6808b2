"""`lakemill tenants`: parts of the lake for callers who must not see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli import quotas
from lakemill.cli.audited import audited
from lakemill.cli.options import FormatOption, given, taught
from lakemill.cli.output import Format, Output, moment
from lakemill.errors import BadArgument

if TYPE_CHECKING:
    from lakemill.store.keys import Tenant

LIMITS = ("requests", "rows", "bytes", "queries")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the tenant.")]
SchemasOption = Annotated[list[str] | None, typer.Option("--schema", help="A schema that it sees; may be repeated.")]


def group() -> None:
    """Make tenants: sets of schemas, with quotas.

    A key of a tenant (`lakemill keys create --tenant`) sees the tables of its schemas; others don't exist for it.
    """


def create(
    context: typer.Context,
    name: NameArgument,
    schema: SchemasOption = None,
    requests: quotas.RequestsOption = None,
    rows: quotas.RowsOption = None,
    bytes_: quotas.BytesOption = None,
    queries: quotas.QueriesOption = None,
    format_: FormatOption = None,
) -> None:
    """Make a tenant.

    Its schemas need not exist yet. Quotas hold for all its keys together, over all processes.

        lakemill tenants create acme --schema acme
        lakemill tenants create globex --schema globex --schema shared --requests 50 --queries 4
    """
    from lakemill.core.quota import Quotas
    from lakemill.store import keys

    output = given(context).output(format_)
    with given(context).lake() as lake, audited(lake, "tenants.create", name):
        made = keys.create_tenant(lake.conn, name, schema or (), Quotas(requests, rows, bytes_, queries))
    _tell(output, made, "made")


def list_(context: typer.Context, format_: FormatOption = None) -> None:
    """List tenants, their schemas and quotas.

    Their keys are in `lakemill keys list`.

        lakemill tenants list
        lakemill tenants list --format json
    """
    from lakemill.store import keys

    output = given(context).output(format_)
    with given(context).lake() as lake:
        found = keys.tenants(lake.conn)
    facts = [_for_people(one) if output.format is Format.TABLE else _facts(one) for one in found]
    output.facts(facts, first="name", empty="no tenants")


def alter(
    context: typer.Context,
    name: NameArgument,
    schema: SchemasOption = None,
    requests: quotas.RequestsOption = None,
    rows: quotas.RowsOption = None,
    bytes_: quotas.BytesOption = None,
    queries: quotas.QueriesOption = None,
    unlimited: Annotated[
        list[str] | None,
        typer.Option("--unlimited", help="Take this quota away: requests, rows, bytes or queries; may be repeated."),
    ] = None,
    format_: FormatOption = None,
) -> None:
    """Change a tenant's schemas or quotas.

    What is not given stays. Schemas that are given replace those that it has.

        lakemill tenants alter acme --rows 20000
        lakemill tenants alter acme --schema acme --schema acme_archive --unlimited requests
    """
    from lakemill.store import keys

    output = given(context).output(format_)
    given_ = dict(zip(LIMITS, (requests, rows, bytes_, queries), strict=True))
    changed: dict[str, float | int | None] = {limit: value for limit, value in given_.items() if value is not None}
    if unknown := sorted(set(unlimited or ()) - set(LIMITS)):
        raise BadArgument(f"--unlimited {unknown[0]}: no such quota", remedy=f"one of {', '.join(LIMITS)}")
    changed |= dict.fromkeys(unlimited or ())
    with given(context).lake() as lake, audited(lake, "tenants.alter", name):
        altered = keys.alter_tenant(lake.conn, name, schemas=schema or None, quotas=changed)
    _tell(output, altered, "altered")


commands = typer.Typer(help=taught(group), no_args_is_help=True, rich_markup_mode=None)
for function in (create, list_, alter):
    commands.command(name=function.__name__.rstrip("_"), help=taught(function))(function)


def _tell(output: Output, tenant: Tenant, done: str) -> None:
    if output.format is not Format.TABLE:
        output.record(_facts(tenant))
        return
    limits = quotas.shown(tenant.quotas) or "no quotas"
    output.text(f"tenant {tenant.name}: {done}; sees {', '.join(tenant.schemas)}; {limits}")


def _facts(tenant: Tenant) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "schemas": list(tenant.schemas),
        "quotas": quotas.facts(tenant.quotas),
        "created_at": tenant.created_at,
    }


def _for_people(tenant: Tenant) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "schemas": ", ".join(tenant.schemas),
        "quotas": quotas.shown(tenant.quotas),
        "created": moment(tenant.created_at),
    }
