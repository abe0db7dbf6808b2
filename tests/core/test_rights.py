"""Who may: tables of cases."""

from __future__ import annotations

import pytest

from lakemill.core.names import QualifiedName, parse_name
from lakemill.core.rights import (
    GRANTS,
    LAKE_WIDE,
    TENANT_WIDE,
    Action,
    Identity,
    Role,
    may,
    parse_patterns,
    parse_roles,
    reach_of,
    require,
    require_own_tenant,
    sees,
)
from lakemill.errors import BadArgument, Forbidden, UnknownTable

ALL = frozenset(Role)
W, R, T, O = Role.INGEST_WRITER, Role.QUERY_READER, Role.TABLE_ADMIN, Role.OPS_ADMIN  # noqa: E741

# who may, by action: written down once more, so that a change of a grant is a change of two places
MAY = {
    Action.SEE: {W, R, T, O},
    Action.QUERY: {R},
    Action.CANCEL: {R, O},
    Action.INGEST: {W},
    Action.PIN: {R, T, O},
    Action.DEFINE: {T},
    Action.OPERATE: {T, O},
    Action.TEND: {O},
    Action.KEYS: {O},
    Action.TENANTS: {O},
    Action.AUDIT: {O},
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("action", Action)
def test_roles(role: Role, action: Action) -> None:
    refusal = may(Identity("key:x", frozenset({role})), action)
    assert (refusal is None) == (role in MAY[action])
    if refusal is not None:
        assert isinstance(refusal, Forbidden)
        assert "key:x" in refusal.message
        assert all(able.value in refusal.remedy for able in MAY[action])


def test_no_role_is_no_right() -> None:
    assert all(isinstance(may(Identity("jwt:x", frozenset()), action), Forbidden) for action in Action)
    assert set(GRANTS) == set(Role)


@pytest.mark.parametrize(
    ("schemas", "tables", "name", "seen"),
    [
        (None, (), "main.orders", True),
        (None, (), "_lakemill.s1", False),
        ({"acme"}, (), "acme.orders", True),
        ({"acme"}, (), "ACME.Orders", True),
        ({"acme"}, (), "orders", False),
        ({"acme"}, (), '"acme.x".orders', False),
        ({"acme"}, (), "globex.orders", False),
        ({"_lakemill"}, (), "_lakemill.s1", False),
        (set(), (), "main.orders", False),
        (None, ("main.*",), "main.orders", True),
        (None, ("main.*",), "acme.orders", False),
        (None, ("*.orders",), "acme.Orders", True),
        (None, ("main.o*", "acme.parts"), "acme.parts", True),
        ({"acme"}, ("*.orders",), "globex.orders", False),
        ({"acme"}, ("acme.sales_*",), "acme.orders", False),
    ],
)
def test_what_is_seen(schemas: set[str] | None, tables: tuple[str, ...], name: str, seen: bool) -> None:
    who = Identity("key:x", ALL, "t" if schemas else None, None if schemas is None else frozenset(schemas), tables)
    table = parse_name(name)
    assert sees(who, table) is seen
    refusal = may(who, Action.QUERY, table)
    assert (refusal is None) is seen
    if refusal is not None:
        assert isinstance(refusal, UnknownTable), "what is not seen does not exist"
        assert refusal.message == f"there is no table {table}", "and nothing else is said about it"


@pytest.mark.parametrize("action", sorted(LAKE_WIDE | TENANT_WIDE, key=lambda action: action.value))
def test_what_is_not_for_a_part_of_the_lake(action: Action) -> None:
    tenant = Identity("key:x", ALL, "acme", frozenset({"acme"}))
    scoped = Identity("key:x", ALL, tables=("main.*",))
    assert may(Identity("key:x", ALL), action) is None
    assert isinstance(may(scoped, action), Forbidden)
    assert isinstance(may(tenant, action), Forbidden) == (action in LAKE_WIDE)


def test_require_raises_for_the_first_table_that_is_refused() -> None:
    who = Identity("key:x", frozenset({R}), tables=("main.a", "main.b"))
    require(who, Action.QUERY, parse_name("a"), parse_name("b"))
    with pytest.raises(UnknownTable, match=r"main\.c"):
        require(who, Action.QUERY, parse_name("a"), parse_name("c"))
    with pytest.raises(Forbidden):
        require(who, Action.INGEST)


def test_keys_of_ones_own_tenant() -> None:
    require_own_tenant(Identity("key:x", ALL), "anybody")
    mine = Identity("key:x", ALL, "acme", frozenset({"acme"}))
    require_own_tenant(mine, "acme")
    for other in ("globex", None):
        with pytest.raises(Forbidden):
            require_own_tenant(mine, other)


def test_words() -> None:
    assert parse_roles(["ops_admin", "ops_admin"]) == {O}
    assert parse_patterns(["Main.Orders", "acme.*", "main.orders"]) == ("main.orders", "acme.*")
    for wrong in (["boss"], []):
        with pytest.raises(BadArgument, match="role"):
            parse_roles(wrong)
    for wrong in (["orders"], [".x"], ["x."], [""]):
        with pytest.raises(BadArgument, match="pattern"):
            parse_patterns(wrong)


def test_a_pattern_does_not_reach_into_a_schema_with_a_dot() -> None:
    who = Identity("key:x", frozenset({R}), tables=("acme.*", "*.shared"))
    assert sees(who, QualifiedName("acme", "t"))
    assert sees(who, QualifiedName("acme", "a.b"))
    assert sees(who, QualifiedName("other", "shared"))
    assert not sees(who, QualifiedName("acme.secret", "t"))
    assert not sees(who, QualifiedName("other", "x.shared"))


OPS = frozenset({Role.OPS_ADMIN})
HOLDERS = {"api:*/key:r", "api:*/key:o", "api:a/key:r", "api:a/key:o", "api:ab/key:r", "host:1:1"}


@pytest.mark.parametrize(
    ("who", "reached"),
    [
        (Identity("key:r", frozenset({R})), {"api:*/key:r"}),
        (
            Identity("key:o", OPS),
            {"api:*/key:r", "api:*/key:o", "api:a/key:r", "api:a/key:o", "api:ab/key:r", "host:1:1"},
        ),
        (Identity("key:o", OPS, tables=("main.*",)), {"api:*/key:o"}),
        (Identity("key:o", OPS, "a", frozenset({"a"})), {"api:a/key:r", "api:a/key:o"}),
        (Identity("key:o", OPS, "a", frozenset({"a"}), ("a.x",)), {"api:a/key:o"}),
        (Identity("key:r", frozenset({R}), "ab", frozenset({"a"})), {"api:ab/key:r"}),
    ],
)
def test_whose_queries_and_pins_one_may_end(who: Identity, reached: set[str]) -> None:
    assert {holder for holder in HOLDERS if reach_of(who).covers(holder)} == reached
