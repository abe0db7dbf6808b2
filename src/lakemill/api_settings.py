"""The settings of the HTTP service: who is let in, and how large, how long and how many.

A group of `lakemill/settings.py`, which gives it its values. Where the service listens is `service.host` and
`service.port`, which it shares with the probes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field, model_validator

from lakemill.values import Duration, Group, Size, Timeout


class ApiSettings(Group):
    auth: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether callers must say who they are; `auto`: unless the service listens on loopback only and"
        " no key was made yet. `off` is refused on any other address.",
    )
    max_body: Size = Field(64 * 10**6, description="The largest body of a request.")
    connections: int = Field(
        16, ge=1, le=1000, description="Requests of one process that may use PostgreSQL at the same time."
    )
    key_cache: Duration = Field(
        timedelta(seconds=2),
        description="For so long a process trusts what it read about a key; a revocation has reached all by then.",
    )
    failed_logins: int = Field(
        60,
        ge=0,
        description="Keys and JWTs per minute that may fail to hold from one client address (of IPv6: one /64), in each"
        " process; more are refused unseen. 0: any number.",
    )
    longest_pin: Duration = Field(
        timedelta(days=7), description="For how long a caller may hold a snapshot back from expiry."
    )
    audit_retention: Duration = Field(
        timedelta(days=90), description="Entries of the audit log are kept for this long."
    )
    oidc_issuer: str = Field("", description="JWTs of this issuer (`iss`) are accepted; empty: API keys only.")
    oidc_audience: str = Field("", description="The audience (`aud`) that a JWT must be meant for.")
    jwks_url: str = Field("", pattern=r"^$|^https?://", description="Where the issuer publishes its keys (JWKS).")
    public_key: str = Field("", description="One public key of the issuer in PEM, instead of `jwks_url`.")
    jwks_timeout: Timeout = Field(timedelta(seconds=5), description="How long to wait for the issuer's keys.")
    jwks_cache: Duration = Field(timedelta(minutes=10), description="For how long the issuer's keys are trusted.")
    jwks_pause: Duration = Field(
        timedelta(seconds=30),
        description="The issuer is asked for keys that are not known yet no more often than this.",
    )
    roles_claim: str = Field(
        "roles", min_length=1, description="Claim of a JWT that lists roles; dots lead into objects."
    )
    tenant_claim: str = Field(
        "tenant", description="Claim that names the tenant, `*` for all; empty: every JWT is of all tenants."
    )
    jwt_leeway: Duration = Field(timedelta(seconds=10), description="How far the issuer's clock may be off.")

    @model_validator(mode="after")
    def _complete(self) -> ApiSettings:
        if bool(self.oidc_issuer) != bool(self.oidc_audience):
            raise ValueError("oidc_issuer and oidc_audience belong together")
        if self.oidc_issuer and bool(self.jwks_url) == bool(self.public_key):
            raise ValueError("oidc_issuer needs either jwks_url or public_key")
        if (self.jwks_url or self.public_key) and not self.oidc_issuer:
            raise ValueError("jwks_url and public_key are of no use without oidc_issuer and oidc_audience")
        return self
