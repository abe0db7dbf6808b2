"""JWTs of an issuer with real keys, served by a real HTTP server; and what attackers try."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.testclient import TestClient

from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.api.oidc import Issuer
from lakemill.api_settings import ApiSettings
from lakemill.errors import BadSettings, IssuerUnavailable, Unauthenticated
from lakemill.settings import Settings
from tests.api.conftest import LOCAL, Api, problem
from tests.conftest import TestLake

ISSUER, AUDIENCE = "https://issuer.example", "lakemill"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
WEAK = rsa.generate_private_key(65537, 1024)
KEYS: dict[str, tuple[Any, str]] = {
    "r": (RSA, "RS256"),
    "e": (ec.generate_private_key(ec.SECP256R1()), "ES256"),
    "o": (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
}
PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
_ALGORITHMS = {
    "RS256": jwt.algorithms.RSAAlgorithm,
    "ES256": jwt.algorithms.ECAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}


def jwk(kid: str, key: Any, algorithm: str) -> dict[str, Any]:
    return {**_ALGORITHMS[algorithm].to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}


@dataclass
class KeyServer:
    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=lambda: [jwk(kid, *one) for kid, one in KEYS.items()])
    asked: int = 0
    status: int = 200
    body: bytes | None = None
    pause: float = 0.0


@pytest.fixture
def server() -> Iterator[KeyServer]:
    state = KeyServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked += 1
            time.sleep(state.pause)
            self.send_response(state.status)
            self.end_headers()
            self.wfile.write(state.body if state.body is not None else json.dumps({"keys": state.keys}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer((LOCAL, 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        state.url = f"http://{LOCAL}:{http.server_port}/jwks.json"
        yield state
        http.shutdown()
        thread.join()


def issuer(server: KeyServer | None = None, **settings: Any) -> Issuer:
    where = {"jwks_url": server.url} if server is not None else {}
    return Issuer(ApiSettings(**{"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, **where, **settings}))


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    found = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": now + 60,
        "tenant": "acme",
        "roles": ["query_reader"],
    }
    return {name: value for name, value in {**found, **changed}.items() if value is not None}


def signed(kid: str | None = "r", by: Any = None, algorithm: str | None = None, **changed: Any) -> str:
    key, usual = KEYS.get(kid or "r", KEYS["r"])
    return jwt.encode(claims(**changed), by or key, algorithm or usual, headers={"kid": kid} if kid else None)


def raw(header: dict[str, Any], payload: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


# ---------------------------------------------------------------- what holds
@pytest.mark.parametrize("kid", KEYS)
def test_each_kind_of_key(server: KeyServer, kid: str) -> None:
    found = issuer(server).claims(signed(kid))
    assert (found.subject, found.roles, found.tenant) == ("alice", ("query_reader",), "acme")


@pytest.mark.parametrize(
    ("settings", "changed", "roles", "tenant"),
    [
        ({}, {"tenant": "*"}, ("query_reader",), None),
        ({"tenant_claim": ""}, {"tenant": "acme"}, ("query_reader",), None),
        ({"roles_claim": "realm_access.roles"}, {"realm_access": {"roles": ["a", "b", 3]}}, ("a", "b"), "acme"),
        ({"roles_claim": "scope"}, {"scope": "a b"}, ("a", "b"), "acme"),
        ({"tenant_claim": "https://x.example/t"}, {"https://x.example/t": "globex"}, ("query_reader",), "globex"),
        ({}, {"roles": {"not": "a list"}}, (), "acme"),
        ({}, {"aud": ["other", AUDIENCE]}, ("query_reader",), "acme"),
    ],
)
def test_claims(
    server: KeyServer, settings: dict[str, Any], changed: dict[str, Any], roles: tuple[str, ...], tenant: str | None
) -> None:
    found = issuer(server, **settings).claims(signed(**changed))
    assert (found.roles, found.tenant) == (roles, tenant)


def test_the_issuers_clock_may_be_off_a_little(server: KeyServer) -> None:
    now = int(time.time())
    assert issuer(server).claims(signed(exp=now - 3, nbf=now + 5)).subject == "alice"
    with pytest.raises(Unauthenticated, match="expired"):
        issuer(server, jwt_leeway="0s").claims(signed(exp=now - 3))


def test_one_key_in_the_settings() -> None:
    one = issuer(public_key=PEM.decode())
    assert one.claims(signed(kid=None)).subject == "alice"
    assert one.claims(signed("r")).subject == "alice"
    with pytest.raises(Unauthenticated):
        one.claims(signed("e"))
    weak = WEAK.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    for wrong in ("no key", weak):
        with pytest.raises(BadSettings, match=r"PEM|2048"):
            issuer(public_key=wrong)


# ---------------------------------------------------------------- what does not
@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("expired", lambda: signed(exp=1)),
        ("not valid yet", lambda: signed(nbf=2**40)),
        ("audience", lambda: signed(aud="others")),
        ("issuer", lambda: signed(iss="https://evil.example")),
        ("lacks", lambda: signed(exp=None)),
        ("lacks", lambda: signed(aud=None)),
        ("lacks", lambda: signed(iss=None)),
        ("subject", lambda: signed(sub=None)),
        ("subject", lambda: signed(sub="a\nb")),
        ("tenant", lambda: signed(tenant=None)),
        ("tenant", lambda: signed(tenant="")),
        ("signature", lambda: signed(by=OTHER)),
        ("not accepted", lambda: raw({"alg": "none", "kid": "r"}, claims())),
        ("not accepted", lambda: raw({"alg": "None", "kid": "r"}, claims())),
        ("not accepted", lambda: signed(algorithm="RS512")),
        ("not accepted", lambda: signed("e", by=RSA, algorithm="RS256")),  # another key's algorithm
        ("kid", lambda: signed("unknown")),
        ("kid", lambda: signed(None)),  # which of the three?
        ("should be", lambda: raw({"alg": "RS256", "kid": {"x": 1}}, claims())),
        ("should be", lambda: "a.b.c"),
        ("should be", lambda: "eyJhbGciOiJSUzI1NiJ9"),
        ("should be", lambda: ""),
        ("too long", lambda: signed(padding="x" * 20_000)),
    ],
)
def test_refused(server: KeyServer, why: str, text: Any) -> None:
    with pytest.raises(Unauthenticated, match=why) as refused:
        issuer(server).claims(text())
    assert "alice" not in str(refused.value)


FORMS = {"pem": PEM, "stripped": PEM.strip(), "jwk": json.dumps(jwk("r", *KEYS["r"])).encode()}


@pytest.mark.parametrize("secret", FORMS.values(), ids=FORMS)
def test_the_public_key_is_no_secret_to_sign_with(server: KeyServer, secret: bytes) -> None:
    """PyJWT itself refuses to sign so, which an attacker does not use."""
    import hashlib
    import hmac

    unsigned = raw({"alg": "HS256", "kid": "r"}, claims()).rpartition(".")[0]
    forged = base64.urlsafe_b64encode(hmac.digest(secret, unsigned.encode(), hashlib.sha256)).rstrip(b"=").decode()
    for one in (issuer(server), issuer(public_key=PEM.decode())):
        with pytest.raises(Unauthenticated, match="not accepted"):
            one.claims(f"{unsigned}.{forged}")


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")
def test_weak_and_unknown_kinds_of_keys_are_left_out(server: KeyServer) -> None:
    server.keys = [jwk("w", WEAK, "RS256"), {"kty": "oct", "kid": "s", "k": "c2VjcmV0"}, {"kty": "RSA"}, *server.keys]
    server.keys[-1]["use"] = "enc"
    one = issuer(server)
    assert one.claims(signed("e")).subject == "alice"
    for kid, by in (("w", WEAK), ("o", KEYS["o"][0])):
        with pytest.raises(Unauthenticated, match="kid"):
            one.claims(signed(kid, by=by, algorithm="EdDSA" if kid == "o" else "RS256"))


# ---------------------------------------------------------------- the issuer's keys
def test_a_flood_of_unknown_keys_does_not_reach_the_issuer(server: KeyServer) -> None:
    one = issuer(server)
    one.claims(signed())
    for number in range(200):
        with pytest.raises(Unauthenticated):
            one.claims(signed(f"flood-{number}"))
    assert server.asked == 1
    assert one.claims(signed()).subject == "alice"


def test_a_new_key_is_found(server: KeyServer) -> None:
    one = issuer(server, jwks_pause="100ms")
    one.claims(signed())
    server.keys.append(jwk("new", OTHER, "RS256"))
    time.sleep(0.11)
    assert one.claims(signed("new", by=OTHER)).subject == "alice"
    assert server.asked == 2


@pytest.mark.parametrize(
    "broken", [{"status": 500}, {"body": b"no json"}, {"body": b"[]"}, {"body": b"{}"}, {"body": b"x" * 2_000_000}]
)
def test_while_the_issuer_is_broken_known_keys_go_on(server: KeyServer, broken: dict[str, Any]) -> None:
    one = issuer(server, jwks_pause="0s", jwks_cache="0s")
    one.claims(signed())
    for name, value in broken.items():
        setattr(server, name, value)
    assert one.claims(signed()).subject == "alice"
    assert server.asked == 2
    with pytest.raises(IssuerUnavailable):
        issuer(server).claims(signed())


def test_an_issuer_that_does_not_answer_is_not_waited_for_long(server: KeyServer) -> None:
    server.pause = 1.0
    begun = time.monotonic()
    with pytest.raises(IssuerUnavailable):
        issuer(server, jwks_timeout="100ms").claims(signed())
    assert time.monotonic() - begun < 0.9


# ---------------------------------------------------------------- over HTTP
def test_a_jwt_lets_in(made_lake: TestLake, server: KeyServer) -> None:
    flags = {"api.oidc_issuer": ISSUER, "api.oidc_audience": AUDIENCE, "api.jwks_url": server.url}
    desk = Desk(Settings.load(made_lake.settings.root, flags), LOCAL)
    desk.start()
    with TestClient(make(desk), base_url=f"http://{LOCAL}", raise_server_exceptions=False) as client:
        api = Api(made_lake, desk, client)
        problem(api.get("/v1/tables"), 401, "UNAUTHENTICATED")
        tables = api.get("/v1/tables", signed()).json()
        assert {one["table"].partition(".")[0] for one in tables} == {"acme"}
        assert len(api.get("/v1/tables", signed(tenant="*")).json()) > len(tables)
        problem(api.get("/v1/audit", signed()), 403, "FORBIDDEN")
        audit = api.get("/v1/audit", signed(roles=["ops_admin", "unheard_of"]))
        assert audit.status_code == 200
        for wrong in (signed(exp=1), signed(tenant="nobody"), raw({"alg": "none"}, claims())):
            answer = api.get("/v1/tables", wrong)
            problem(answer, 401, "UNAUTHENTICATED")
            assert wrong not in answer.text
        problem(api.get("/v1/tables", signed(roles=[])), 403, "FORBIDDEN")
    desk.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"api.oidc_issuer": ISSUER},
        {"api.oidc_issuer": ISSUER, "api.oidc_audience": AUDIENCE},
        {"api.oidc_issuer": ISSUER, "api.oidc_audience": AUDIENCE, "api.jwks_url": "http://x", "api.public_key": "y"},
        {"api.jwks_url": "http://x"},
        {"api.oidc_issuer": ISSUER, "api.oidc_audience": AUDIENCE, "api.jwks_url": "file:///etc/passwd"},
    ],
)
def test_settings_that_are_not_whole(settings: dict[str, object], tmp_path: Any) -> None:
    with pytest.raises(BadSettings):
        Settings.load(tmp_path, settings)
