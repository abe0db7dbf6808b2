"""JWTs of an OpenID Connect issuer: checked with its public keys, which are fetched seldom and kept.

The algorithm is the key's, never the JWT's own word: RSA means RS256, P-256 means ES256, Ed25519 means EdDSA, and
nothing else is known here. The issuer is asked for keys at a bounded rate, however many unknown ones are presented;
while it does not answer, the keys that are known go on.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from lakemill.api_settings import ApiSettings
from lakemill.errors import BadSettings, IssuerUnavailable, Unauthenticated
from lakemill.telemetry.log import failed

LARGEST = 1_000_000
"""Bytes of a key set."""
LONGEST = 16_384
"""Characters of a JWT."""
SMALLEST_RSA = 2048

_WHY: Mapping[type[Exception], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidAudienceError: "it is meant for another audience",
    jwt.InvalidIssuerError: "it is of another issuer",
    jwt.InvalidAlgorithmError: "it is signed in a way that is not accepted",
    jwt.InvalidSignatureError: "its signature is wrong",
    jwt.MissingRequiredClaimError: "it lacks exp, iss or aud",
}


@dataclass(frozen=True, slots=True)
class Claims:
    subject: str
    roles: tuple[str, ...]
    tenant: str | None
    """None: of all tenants."""
    expires_at: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class _PublicKey:
    key: Any
    algorithm: str


class Issuer:
    """Whom we trust. Used by all threads."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._keys: dict[str | None, _PublicKey] = {}
        self._fetched = self._asked = float("-inf")
        if settings.public_key:
            try:
                found = _public(load_pem_public_key(settings.public_key.encode()))
            except ValueError as error:
                raise BadSettings("not a public key in PEM", place="api.public_key") from error
            if found is None:
                raise BadSettings("an RSA key of 2048 bits, P-256 or Ed25519 is needed", place="api.public_key")
            self._keys = {None: found}

    def claims(self, text: str) -> Claims:
        """What a JWT says, if it holds."""
        if len(text) > LONGEST:
            raise Unauthenticated("the JWT is too long")
        try:
            key = self._key(jwt.get_unverified_header(text).get("kid"))
            found = jwt.decode(
                text,
                key.key,
                algorithms=[key.algorithm],
                audience=self._settings.oidc_audience,
                issuer=self._settings.oidc_issuer,
                leeway=self._settings.jwt_leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(
                f"the JWT does not hold: {_WHY.get(type(error), 'it is not what it should be')}"
            ) from error
        return self._read(found)

    def _read(self, claims: Mapping[str, Any]) -> Claims:
        roles = _inside(claims, self._settings.roles_claim)
        roles = roles.split() if isinstance(roles, str) else roles
        words = tuple(role for role in roles if isinstance(role, str)) if isinstance(roles, list) else ()
        tenant: Any = "*"
        if self._settings.tenant_claim:
            tenant = _inside(claims, self._settings.tenant_claim)
            if not isinstance(tenant, str) or not tenant:
                raise Unauthenticated(f"the JWT names no tenant ({self._settings.tenant_claim})")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= 200:
            raise Unauthenticated("the JWT names no subject (sub)")
        return Claims(subject, words, None if tenant == "*" else tenant, float(claims["exp"]))

    # ------------------------------------------------------------ keys
    def _key(self, kid: object) -> _PublicKey:
        if self._settings.public_key:
            return self._keys[None]
        wanted = kid if isinstance(kid, str) else None
        with self._lock:  # who comes while the issuer is asked waits for its answer
            now = time.monotonic()
            old = now - self._fetched > self._settings.jwks_cache.total_seconds()
            found = self._chosen(wanted)
            if (old or found is None) and now - self._asked > self._settings.jwks_pause.total_seconds():
                self._asked = now
                self._fetch()
                found = self._chosen(wanted)
            if not self._keys:
                raise IssuerUnavailable("the issuer's keys could not be fetched")
        if found is None:
            raise Unauthenticated("the JWT does not hold: no key of the issuer has its kid")
        return found

    def _chosen(self, kid: str | None) -> _PublicKey | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    def _fetch(self) -> None:
        try:
            keys = _keys_of(self._download())
        except (httpx.HTTPError, ValueError, TypeError, AttributeError, KeyError) as error:
            failed("keys of the issuer", IssuerUnavailable(f"{type(error).__name__} at {self._settings.jwks_url}"))
            return
        self._keys, self._fetched = keys, time.monotonic()

    def _download(self) -> Any:
        seconds = self._settings.jwks_timeout.total_seconds()
        until = time.monotonic() + seconds
        text = bytearray()
        with httpx.Client(timeout=seconds) as client, client.stream("GET", self._settings.jwks_url) as answer:
            answer.raise_for_status()
            for piece in answer.iter_bytes():
                text += piece
                if len(text) > LARGEST or time.monotonic() > until:
                    raise ValueError("too large, or too slow")
        return json.loads(bytes(text))


def _keys_of(document: Any) -> dict[str | None, _PublicKey]:
    found: dict[str | None, _PublicKey] = {}
    for one in document["keys"]:
        if one.get("kty") not in ("RSA", "EC", "OKP") or one.get("use", "sig") != "sig":
            continue
        try:
            public = _public(jwt.PyJWK(one).key)
        except jwt.PyJWTError:  # a kind that is not known here; the others are
            continue
        if public is not None:
            found[one.get("kid")] = public
    return found


def _public(key: Any) -> _PublicKey | None:
    match key:
        case rsa.RSAPublicKey() if key.key_size >= SMALLEST_RSA:
            return _PublicKey(key, "RS256")
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP256R1):
            return _PublicKey(key, "ES256")
        case ed25519.Ed25519PublicKey():
            return _PublicKey(key, "EdDSA")
    return None


def _inside(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a way through objects: ``realm_access.roles``."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
