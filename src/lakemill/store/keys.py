"""Tenants and API keys, as they are kept: of a key's secret only a digest.

The secret leaves this module once, from ``create``, in the text that the caller is given. What a request may do is read
with one query (``find``): the key, its tenant's schemas, and both their quotas.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakemill.core import keys
from lakemill.core.names import fold
from lakemill.core.quota import Quotas
from lakemill.core.rights import WORD, Role
from lakemill.errors import BadArgument, TenantExists, UnknownKey, UnknownTenant
from lakemill.store.db import Executor, transaction
from lakemill.store.queries import load_queries

QUERIES = load_queries("keys")


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    schemas: tuple[str, ...]
    quotas: Quotas
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    name: str
    tenant: str | None
    roles: frozenset[Role]
    tables: tuple[str, ...]
    quotas: Quotas
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""


@dataclass(frozen=True, slots=True)
class Found:
    """A key, and what decides about a request that is made with it."""

    key: Key
    digest: bytes
    expired: bool
    schemas: frozenset[str] | None
    """Of its tenant, folded; None where it has none."""
    tenant_quotas: Quotas


# ---------------------------------------------------------------- tenants
def create_tenant(where: Executor, name: str, schemas: Sequence[str], quotas: Quotas | None = None) -> Tenant:
    if re.fullmatch(WORD, name) is None:
        raise BadArgument(f"{name!r} is no name for a tenant", remedy="use letters, digits, _, . and -, 63 at most")
    row = where.execute(
        QUERIES["insert_tenant"].compose(), _tenant_values(name, schemas, quotas or Quotas())
    ).fetchone()
    if row is None:
        raise TenantExists(f"there is a tenant {name} already")
    return _tenant(row)


def alter_tenant(
    where: Executor, name: str, *, schemas: Sequence[str] | None = None, quotas: dict[str, float | int | None]
) -> Tenant:
    """Only what is given changes; a quota of None is no limit."""
    with transaction(where):
        row = where.execute(QUERIES["lock_tenant"].compose(), {"tenant": name}).fetchone()
        if row is None:
            raise UnknownTenant(f"there is no tenant {name}")
        old = _tenant(row)
        limits: dict[str, Any] = {
            limit: getattr(old.quotas, limit) for limit in ("requests", "rows", "bytes", "queries")
        }
        values = _tenant_values(name, old.schemas if schemas is None else schemas, Quotas(**(limits | quotas)))
        row = where.execute(QUERIES["update_tenant"].compose(), values).fetchone()
    assert row is not None  # noqa: S101  (it is locked)
    return _tenant(row)


def tenants(where: Executor) -> tuple[Tenant, ...]:
    return tuple(map(_tenant, where.execute(QUERIES["tenants"].compose(), {"tenant": None}).fetchall()))


def tenant(where: Executor, name: str) -> Tenant:
    row = where.execute(QUERIES["tenants"].compose(), {"tenant": name}).fetchone()
    if row is None:
        raise UnknownTenant(f"there is no tenant {name}")
    return _tenant(row)


# ---------------------------------------------------------------- keys
def create(
    where: Executor,
    name: str,
    roles: frozenset[Role],
    *,
    by: str,
    of: str | None = None,
    tables: Sequence[str] = (),
    quotas: Quotas | None = None,
    expires_at: datetime | None = None,
) -> tuple[Key, str]:
    """A new key ``of`` a tenant, and its text: nobody can read that again."""
    if of is not None:
        tenant(where, of)
    key_id = "".join(secrets.choice(keys.ID_LETTERS) for _ in range(keys.ID_LENGTH))
    secret = secrets.token_urlsafe(keys.SECRET_BYTES)
    limits = quotas or Quotas()
    values = {
        "key_id": key_id,
        "digest": keys.digest(secret),
        "name": name,
        "tenant": of,
        "roles": sorted(roles),
        "tables": list(tables),
        "created_by": by,
        "expires_at": expires_at,
        **_limits(limits),
    }
    row = where.execute(QUERIES["insert_key"].compose(), values).fetchone()
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return _key(row), keys.joined(key_id, secret)


def list_all(where: Executor, of: str | None = None) -> tuple[Key, ...]:
    """Of one tenant, or of all; revoked and expired ones too."""
    return tuple(map(_key, where.execute(QUERIES["keys"].compose(), {"tenant": of}).fetchall()))


def find(where: Executor, key_id: str) -> Found | None:
    row = where.execute(QUERIES["find_key"].compose(), {"key_id": key_id}).fetchone()
    if row is None:
        return None
    schemas = None if row[16] is None else frozenset(map(fold, row[16]))
    return Found(_key(row[:14]), bytes(row[14]), row[15], schemas, Quotas(*row[17:21]))


def revoke(where: Executor, key_id: str, of: str | None = None) -> Key:
    """It ends now. ``of``: only where it is a key of this tenant."""
    row = where.execute(QUERIES["revoke_key"].compose(), {"key_id": key_id, "tenant": of}).fetchone()
    if row is None:
        raise UnknownKey(f"there is no key {keys.masked(key_id)}")
    return _key(row)


def touch(where: Executor, key_id: str) -> None:
    """It was used just now."""
    where.execute(QUERIES["touch_key"].compose(), {"key_id": key_id})


def any_key(where: Executor) -> bool:
    row = where.execute(QUERIES["any_key"].compose()).fetchone()
    return bool(row and row[0])


# ---------------------------------------------------------------- rows
def _tenant_values(name: str, schemas: Sequence[str], quotas: Quotas) -> dict[str, Any]:
    if not schemas:
        raise BadArgument("a tenant needs a schema", remedy="name one or more")
    return {"tenant": name, "schemas": list(dict.fromkeys(schemas)), **_limits(quotas)}


def _limits(quotas: Quotas) -> dict[str, Any]:
    found = {"requests": quotas.requests, "rows": quotas.rows, "bytes": quotas.bytes, "queries": quotas.queries}
    if wrong := [name for name, limit in found.items() if limit is not None and limit <= 0]:
        raise BadArgument(f"{', '.join(wrong)}: a quota is more than 0", remedy="leave it out where there is no limit")
    return found


def _tenant(row: Sequence[Any]) -> Tenant:
    return Tenant(row[0], tuple(row[1]), Quotas(*row[2:6]), row[6])


def _key(row: Sequence[Any]) -> Key:
    roles = frozenset(map(Role, row[3]))
    return Key(row[0], row[1], row[2], roles, tuple(row[4]), Quotas(*row[5:9]), *row[9:14])
