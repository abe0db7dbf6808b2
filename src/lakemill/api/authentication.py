"""Who calls: an API key or a JWT becomes an identity with its limits, or a refusal.

What was found is believed for a short while (`api.key_cache`), so that most requests ask nobody; the cache knows keys
by digest only. An address that fails too often waits (``api/attempts``). Without keys, on loopback, everybody is let in
as ``anonymous``, and browsers that were led here by somebody else's page are not.
"""

from __future__ import annotations

import hashlib
import ipaddress
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import urlsplit

from lakemill.api.attempts import Attempts
from lakemill.api.oidc import Issuer
from lakemill.core import keys as form
from lakemill.core.names import fold
from lakemill.core.quota import Quotas
from lakemill.core.rights import Identity, Role
from lakemill.errors import BadSettings, Forbidden, LakemillError, TooManyFailures, Unauthenticated, UnknownTenant
from lakemill.settings import Settings
from lakemill.store import db, keys
from lakemill.telemetry import metrics
from lakemill.telemetry.log import log

ANONYMOUS = Identity("anonymous", frozenset(Role))
MOST = 10_000
"""Callers that are remembered."""
TOUCH = 60.0


@dataclass(frozen=True, slots=True)
class Granted:
    """Who calls, and whose quotas that counts for."""

    identity: Identity
    limits: Mapping[str, Quotas]


NOBODY = Granted(ANONYMOUS, {})


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Authentication:
    def __init__(
        self, settings: Settings, connect: Callable[[], AbstractContextManager[db.Connection]], host: str
    ) -> None:
        self._settings, self._connect = settings.api, connect
        self._loopback = is_loopback(host)
        if settings.api.auth == "off" and not self._loopback:
            raise BadSettings(
                f"authentication can't be off on {host}: anybody there could do anything",
                place="api.auth",
                remedy="listen on 127.0.0.1, or leave api.auth out and make a key with `lakemill keys create`",
            )
        self._issuer = Issuer(settings.api) if settings.api.oidc_issuer else None
        self._seconds = settings.api.key_cache.total_seconds()
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[float, Granted]] = {}
        self._attempts = Attempts(settings.api.failed_logins)
        self._touched: dict[str, float] = {}
        self._keys_exist = False

    def start(self) -> None:
        """Say so where everybody is let in."""
        if self._open():
            log().warning(
                "authentication is off: everybody on this machine may do everything"
                + ("" if self._settings.auth == "off" else "; it is on as soon as `lakemill keys create` made a key")
            )

    def at_hand(self, headers: Mapping[str, str]) -> Granted | None:
        """Without asking anybody; None where ``granted`` is to be called, which may block."""
        given = _credential(headers)
        if given is None:
            return None
        found = self._known.get(_digest(given))
        return found[1] if found is not None and time.monotonic() < found[0] else None

    def granted(self, headers: Mapping[str, str], address: str = "") -> Granted:
        """``address`` is the client's; a credential that held lately is looked at however often others there failed."""
        given = _credential(headers)
        try:
            if given is None:
                return self._without(headers)
            return self.at_hand(headers) or self._looked_up(given, address)
        except _Refused as refused:
            metrics.count_auth_failure(refused.reason)
            if given is not None and refused.reason != "limited":
                self._known.pop(_digest(given), None)
                self._attempts.failed(address)
            raise refused.error from None

    def forget(self) -> None:
        """Something about keys or tenants was changed here: it holds at once."""
        with self._lock:
            self._known.clear()

    # ------------------------------------------------------------ nobody
    def _without(self, headers: Mapping[str, str]) -> Granted:
        if not self._open():
            raise _Refused("none", Unauthenticated("no key was sent"))
        for name in ("host", "origin"):  # a page elsewhere, or a name that leads here, must not use our trust
            said = headers.get(name, "")
            host = urlsplit(said if "://" in said else f"//{said}").hostname
            if said and (host is None or not is_loopback(host)):
                raise Forbidden(f"without authentication only this machine is served, not {name} {said[:100]}")
        return NOBODY

    def _open(self) -> bool:
        """Whether callers are let in without a key."""
        if self._settings.auth == "off":
            return True
        if self._settings.auth == "on" or not self._loopback or self._issuer is not None:
            return False
        if not self._keys_exist:  # asked every time: the first key must hold at once
            with self._connect() as conn:
                self._keys_exist = keys.any_key(conn)
        return not self._keys_exist

    # ------------------------------------------------------------ somebody
    def _looked_up(self, given: str, address: str) -> Granted:
        if _digest(given) not in self._known:
            try:
                self._attempts.check(address)
            except TooManyFailures as error:
                raise _Refused("limited", error) from error
        until = time.monotonic() + self._seconds
        parts = form.split(given)
        if parts is not None:
            found, ends = self._by_key(*parts)
        elif self._issuer is not None and not given.startswith(form.MARK):
            found, ends = self._by_jwt(self._issuer, given)
        else:
            raise _Refused("unknown", Unauthenticated("what was sent is no key"))
        with self._lock:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[_digest(given)] = (min(until, time.monotonic() + ends), found)
        return found

    def _by_key(self, key_id: str, secret: str) -> tuple[Granted, float]:
        with self._connect() as conn:
            found = keys.find(conn, key_id)
            if found is None or not form.matches(secret, found.digest):
                raise _Refused("unknown" if found is None else "wrong", Unauthenticated("there is no such key"))
            if found.key.revoked_at is not None:
                raise _Refused("revoked", Unauthenticated(f"the key {key_id} was revoked"))
            if found.expired:
                raise _Refused("expired", Unauthenticated(f"the key {key_id} has expired"))
            if time.monotonic() - self._touched.get(key_id, float("-inf")) > TOUCH:
                keys.touch(conn, key_id)
                self._touched[key_id] = time.monotonic()
        key = found.key
        identity = Identity(f"key:{key_id}", key.roles, key.tenant, found.schemas, key.tables)
        limits = {f"key:{key_id}": key.quotas}
        if key.tenant is not None:
            limits[f"tenant:{key.tenant}"] = found.tenant_quotas
        # the database's clock decides when it ends; ours only says when to ask again
        left = float("inf") if key.expires_at is None else key.expires_at.timestamp() - time.time()
        return Granted(identity, limits), left

    def _by_jwt(self, issuer: Issuer, given: str) -> tuple[Granted, float]:
        try:
            claims = issuer.claims(given)
            schemas: frozenset[str] | None = None
            limits: dict[str, Quotas] = {}
            if claims.tenant is not None:
                with self._connect() as conn:
                    tenant = keys.tenant(conn, claims.tenant)
                schemas = frozenset(map(fold, tenant.schemas))
                limits[f"tenant:{tenant.name}"] = tenant.quotas
        except UnknownTenant as error:
            raise _Refused("jwt", Unauthenticated("the JWT names a tenant that is not known")) from error
        except Unauthenticated as error:
            raise _Refused("jwt", error) from error
        known = {role.value for role in Role}
        roles = frozenset(Role(word) for word in claims.roles if word in known)
        identity = Identity(f"jwt:{claims.subject}", roles, claims.tenant, schemas)
        return Granted(identity, limits), claims.expires_at - time.time()


class _Refused(Exception):
    """Why, in the words of the metric, and what the caller is told."""

    def __init__(self, reason: str, error: LakemillError) -> None:
        super().__init__(reason)
        self.reason, self.error = reason, error


def _credential(headers: Mapping[str, str]) -> str | None:
    """The key or JWT that was sent; an Authorization of another kind counts as one that is wrong."""
    given = headers.get("x-api-key")
    if given is None and (said := headers.get("authorization")) is not None:
        kind, _, value = said.partition(" ")
        given = value if kind.lower() == "bearer" else said
    return None if given is None else given.strip()


def _digest(given: str) -> bytes:
    return hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
