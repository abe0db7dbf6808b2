"""Tenants, keys and the audit log in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from lakemill.core import keys as form
from lakemill.core.quota import Quotas
from lakemill.core.rights import Role
from lakemill.errors import BadArgument, TenantExists, UnknownKey, UnknownTenant
from lakemill.store import audit, db, keys

READER = frozenset({Role.QUERY_READER})


@pytest.fixture
def where(migrated: str) -> Iterator[db.Connection]:
    with db.connect(migrated) as conn:
        yield conn
        conn.execute("TRUNCATE lakemill.tenants, lakemill.keys, lakemill.audit CASCADE")


def everything(conn: db.Connection) -> str:
    """All that the store holds, as text."""
    names = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'lakemill'").fetchall()
    return "\n".join(str(conn.execute(f"SELECT t::text FROM lakemill.{name} t").fetchall()) for (name,) in names)


def test_a_key_is_shown_once_and_stored_nowhere(where: db.Connection) -> None:
    made, text = keys.create(where, "loader", READER, by="cli:me", tables=["main.*"], quotas=Quotas(requests=5))
    parts = form.split(text)
    assert parts is not None
    assert parts[0] == made.id
    assert len(parts[1]) == 43, "256 bits"
    assert made.id in everything(where)
    assert parts[1] not in everything(where)
    found = keys.find(where, made.id)
    assert found is not None
    assert (found.key, found.schemas, found.expired) == (made, None, False)
    assert form.matches(parts[1], found.digest)
    assert found.key.quotas == Quotas(requests=5)
    assert keys.find(where, "x" * 12) is None
    assert keys.create(where, "loader", READER, by="cli:me")[1] != text, "names need not be unique"


def test_a_tenants_key_knows_its_schemas_and_quotas(where: db.Connection) -> None:
    keys.create_tenant(where, "acme", ["Acme", "shared", "Acme"], Quotas(rows=100, queries=2))
    made, _ = keys.create(where, "x", READER, by="me", of="acme")
    found = keys.find(where, made.id)
    assert found is not None
    assert found.schemas == {"acme", "shared"}
    assert found.tenant_quotas == Quotas(rows=100, queries=2)
    with pytest.raises(UnknownTenant):
        keys.create(where, "x", READER, by="me", of="globex")


def test_it_ends(where: db.Connection) -> None:
    past, _ = keys.create(where, "past", READER, by="me", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    future, _ = keys.create(where, "future", READER, by="me", expires_at=datetime.now(UTC) + timedelta(hours=1))
    assert [found.expired for key in (past, future) if (found := keys.find(where, key.id))] == [True, False]
    revoked = keys.revoke(where, future.id)
    assert revoked.revoked_at is not None
    assert keys.revoke(where, future.id).revoked_at == revoked.revoked_at, "the first time counts"
    with pytest.raises(UnknownKey):
        keys.revoke(where, "nobody")
    with pytest.raises(UnknownKey):
        keys.revoke(where, past.id, of="acme")


def test_last_use_is_written_once_a_minute(where: db.Connection) -> None:
    made, _ = keys.create(where, "x", READER, by="me")
    times = []
    for _ in range(3):
        keys.touch(where, made.id)
        times += [key.last_used_at for key in keys.list_all(where)]
    assert times[0] is not None
    assert len(set(times)) == 1


def test_tenants(where: db.Connection) -> None:
    made = keys.create_tenant(where, "acme", ["acme"], Quotas(requests=1, rows=2))
    with pytest.raises(TenantExists):
        keys.create_tenant(where, "acme", ["x"])
    altered = keys.alter_tenant(where, "acme", quotas={"requests": None, "bytes": 3})
    assert (altered.schemas, altered.quotas) == (made.schemas, Quotas(rows=2, bytes=3))
    assert keys.alter_tenant(where, "acme", schemas=["a", "b"], quotas={}).schemas == ("a", "b")
    assert [one.name for one in keys.tenants(where)] == ["acme"]
    with pytest.raises(UnknownTenant):
        keys.alter_tenant(where, "globex", quotas={})
    for wrong in ({"rows": 0.0}, {"queries": -1}):
        with pytest.raises(BadArgument, match="more than 0"):
            keys.alter_tenant(where, "acme", quotas=dict(wrong))
    with pytest.raises(BadArgument, match="schema"):
        keys.create_tenant(where, "empty", [])
    for name in ("*", "acme/x", ""):  # what callers are told apart by
        with pytest.raises(BadArgument, match="no name"):
            keys.create_tenant(where, name, ["x"])


def test_the_audit_log(where: db.Connection) -> None:
    _, secret = keys.create(where, "x", READER, by="me")
    long = f"SELECT '{secret}', 'password=hunter2' " + "x" * 20_000 + "\x00"
    entry = audit.Action("key:x", "query", "t1", "acme", sql=long, tables=["main.a"], snapshot=7, rows=3)
    audit.record(where, entry)
    audit.record(where, audit.Action("key:y", "keys.create", "t2", outcome=audit.Ended.REFUSED, code="FORBIDDEN"))
    newest, oldest = audit.entries(where, 10)
    assert (newest.who, newest.outcome, newest.code, newest.sql) == ("key:y", audit.Ended.REFUSED, "FORBIDDEN", None)
    assert (oldest.tables, oldest.snapshot, oldest.rows, oldest.tenant) == (("main.a",), 7, 3, "acme")
    assert oldest.sql is not None
    assert len(oldest.sql) == audit.LONGEST
    assert secret not in everything(where)
    assert "hunter2" not in everything(where)
    assert audit.entries(where, 10, before=newest.id) == (oldest,)
    assert audit.entries(where, 10, tenant="acme") == (oldest,)
    assert audit.entries(where, 10, who="key:y", action="keys.create") == (newest,)
    assert audit.forget(where, datetime.now(UTC) - timedelta(days=1)) == 0
    assert audit.forget(where, datetime.now(UTC) + timedelta(days=1)) == 2
