"""Who may do what with which table.

A caller has roles, which allow actions, and a part of the lake: the schemas of a tenant, within them the tables of a
scope. Beyond its part of the lake nothing exists for it, and what it hears of such a table is the same whether there is
one or not. Values in, a decision out: who the caller is was found out elsewhere (``api/authentication``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from fnmatch import fnmatchcase

from lakemill.core.names import HIDDEN, QualifiedName, fold
from lakemill.errors import BadArgument, Forbidden, LakemillError, UnknownTable


class Role(StrEnum):
    INGEST_WRITER = "ingest_writer"
    QUERY_READER = "query_reader"
    TABLE_ADMIN = "table_admin"
    OPS_ADMIN = "ops_admin"


class Action(Enum):
    """What is asked; the value is how a refusal words it."""

    SEE = "see tables"
    QUERY = "query"
    CANCEL = "list or cancel queries"
    INGEST = "ingest"
    PIN = "pin snapshots"
    DEFINE = "create, alter or drop tables"
    OPERATE = "refresh, suspend, resume or verify tables"
    TEND = "do upkeep"
    KEYS = "manage keys"
    TENANTS = "manage tenants"
    AUDIT = "read the audit log"


GRANTS: Mapping[Role, frozenset[Action]] = {
    Role.INGEST_WRITER: frozenset({Action.SEE, Action.INGEST}),
    Role.QUERY_READER: frozenset({Action.SEE, Action.QUERY, Action.CANCEL, Action.PIN}),
    Role.TABLE_ADMIN: frozenset({Action.SEE, Action.DEFINE, Action.OPERATE, Action.PIN}),
    # administers the service, and so may hand out every right; by itself it neither reads nor writes rows
    Role.OPS_ADMIN: frozenset(
        {Action.SEE, Action.CANCEL, Action.OPERATE, Action.PIN, Action.TEND, Action.KEYS, Action.TENANTS, Action.AUDIT}
    ),
}
LAKE_WIDE = frozenset({Action.TEND, Action.TENANTS})
"""What concerns all tenants: not for a caller that is of one."""
TENANT_WIDE = frozenset({Action.KEYS, Action.AUDIT})
"""What concerns all tables of a tenant: not for a caller with a table scope."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, as it was found out for one request."""

    name: str
    """What the audit log calls it: ``key:…``, ``jwt:…`` or ``anonymous``."""
    roles: frozenset[Role]
    tenant: str | None = None
    """None: of no tenant, and so of all."""
    schemas: frozenset[str] | None = None
    """Of the tenant, folded; None: all."""
    tables: tuple[str, ...] = ()
    """Patterns of its scope, such as ``sales.*``; none: all tables that its tenant has."""

    @property
    def bounded(self) -> bool:
        """Whether there is anything that it must not see."""
        return self.schemas is not None or bool(self.tables)


WORD = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"
"""Names that people give to keys and tenants: without a slash, which stands between the two in a holder."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose queries and pins one may see and end; neither given: anybody's."""

    holder: str | None = None
    tenant: str | None = None

    def covers(self, holder: str) -> bool:
        if self.holder is not None:
            return holder == self.holder
        return self.tenant is None or holder.startswith(f"api:{self.tenant}/")


ANYBODYS = Reach()


def holder_of(identity: Identity) -> str:
    """What its queries and pins are held by."""
    return f"api:{identity.tenant or '*'}/{identity.name}"


def reach_of(identity: Identity) -> Reach:
    """One's own; for who administers the lake or a tenant, without a table scope, all of it."""
    if Role.OPS_ADMIN not in identity.roles or identity.tables:
        return Reach(holder=holder_of(identity))
    return Reach(tenant=identity.tenant)


def may(identity: Identity, action: Action, table: QualifiedName | None = None) -> LakemillError | None:
    """None where it may; else the refusal, to be raised."""
    allowed = frozenset[Action]().union(*(GRANTS[role] for role in identity.roles))
    if action not in allowed:
        able = ", ".join(role.value for role in Role if action in GRANTS[role])
        return Forbidden(f"{identity.name} may not {action.value}", remedy=f"use a key that has the role {able}")
    if (action in LAKE_WIDE and identity.bounded) or (action in TENANT_WIDE and identity.tables):
        return Forbidden(
            f"{identity.name} may not {action.value}: it is for a part of the lake only",
            remedy="use a key without table scope" + (", of no tenant" if action in LAKE_WIDE else ""),
        )
    if table is not None and not sees(identity, table):
        return UnknownTable(f"there is no table {table}", remedy="GET /v1/tables lists those that you may see")
    return None


def require(identity: Identity, action: Action, *tables: QualifiedName) -> None:
    """Raise the refusal, if there is one."""
    for table in tables or (None,):
        refusal = may(identity, action, table)
        if refusal is not None:
            raise refusal


def sees(identity: Identity, table: QualifiedName) -> bool:
    """Whether the table exists for this caller, as far as rights go."""
    schema = table.key[0]
    if schema == HIDDEN or (identity.schemas is not None and schema not in identity.schemas):
        return False
    return not identity.tables or any(_like(table, pattern) for pattern in identity.tables)


def _like(table: QualifiedName, pattern: str) -> bool:
    """Schema by schema and name by name: a `*` does not reach over the dot into a schema that has one in its name."""
    schema, _, name = pattern.partition(".")
    return fnmatchcase(table.key[0], schema) and fnmatchcase(table.key[1], name)


def parse_roles(words: Iterable[str]) -> frozenset[Role]:
    """At least one role, by name."""
    known = {role.value: role for role in Role}
    given = list(words)
    if unknown := sorted(set(given) - known.keys()):
        raise BadArgument(f"{', '.join(unknown)}: no such role", remedy=f"the roles are {', '.join(known)}")
    if not given:
        raise BadArgument("a key needs a role", remedy=f"the roles are {', '.join(known)}")
    return frozenset(known[word] for word in given)


def parse_patterns(words: Iterable[str]) -> tuple[str, ...]:
    """A scope as it is compared: folded, each pattern with its schema."""
    found = []
    for word in words:
        schema, dot, name = fold(word.strip()).partition(".")
        if not dot or not schema or not name:
            raise BadArgument(f"{word!r} is no pattern of tables", remedy="write schema.table; * stands for anything")
        found.append(f"{schema}.{name}")
    return tuple(dict.fromkeys(found))


def require_own_tenant(identity: Identity, tenant: str | None) -> None:
    """A caller of a tenant hands out no larger part of the lake than its own."""
    if identity.tenant is not None and tenant != identity.tenant:
        raise Forbidden(f"{identity.name} makes keys of tenant {identity.tenant} only")
