"""A lake on S3 for the tests in this folder: the server, a proxy in front of it, a bucket, settings, a session.

One server, one proxy and one bucket per run; each test has a prefix of its own. All clients go through the proxy, which
is honest until a test says otherwise. Hadoop keeps one file system per bucket for the life of the JVM, so a test that
needs other credentials takes a bucket of its own.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lakemill
from lakemill.runtime.open import Lake
from lakemill.settings import Settings
from tests.conftest import MakeLake, TestLake
from tests.s3.proxy import Proxy
from tests.s3.server import Identity, S3Server, given_or_started

READ_TIMEOUT, RETRIES = "2s", 4
_numbers = itertools.count(1)

Flags = dict[str, object]
MakeFlags = Callable[..., Flags]


@pytest.fixture(scope="session")
def s3_real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server itself."""
    with given_or_started(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def proxy(s3_real: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_real.endpoint).serving() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def server(s3_real: S3Server, proxy: Proxy) -> S3Server:
    """The server as clients see it."""
    return s3_real.at(proxy.endpoint)


@pytest.fixture
def new_bucket(s3_real: S3Server) -> Iterator[Callable[[], str]]:
    made: list[str] = []

    def make() -> str:
        made.append(_make_bucket(s3_real))
        return made[-1]

    yield make
    for name in made:
        s3_real.remove_bucket(name)


@pytest.fixture(scope="session")
def bucket(s3_real: S3Server) -> Iterator[str]:
    name = _make_bucket(s3_real)
    yield name
    s3_real.remove_bucket(name)


def _make_bucket(server: S3Server) -> str:
    name = server.create_bucket(f"lakemill-test-{secrets.token_hex(4)}")
    server.put(name, "warm", b"up")  # SeaweedFS takes seconds for a bucket's first object
    return name


@pytest.fixture(scope="session")
def s3_flags(server: S3Server, bucket: str) -> MakeFlags:
    """Settings for a lake at a new prefix of the bucket (or of another), as an identity; `changed` wins."""

    def make(who: Identity | None = None, in_bucket: str | None = None, **changed: object) -> Flags:
        owner = who or server.owner
        flags: Flags = {
            "lake.data_path": f"s3://{in_bucket or bucket}/lake{next(_numbers)}",
            "s3.endpoint": server.endpoint,
            "s3.access_key_id": owner.access_key_id,
            "s3.secret_access_key": owner.secret_access_key,
            "s3.connect_timeout": "2s",
            "s3.read_timeout": READ_TIMEOUT,
            "s3.retries": RETRIES,
            "spark.master": "local[2]",
        }
        return flags | {f"s3.{key}": value for key, value in changed.items()}

    return make


@pytest.fixture
def lake(make_lake: MakeLake, s3_flags: MakeFlags) -> TestLake:
    """A lake on S3 without inlining."""
    return make_lake(flags=s3_flags())


@pytest.fixture
def opened(lake: TestLake, spark: Any) -> Iterator[Lake]:
    """That lake, open."""
    with lakemill.open(lake.settings) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory, s3_flags: MakeFlags) -> Iterator[Any]:
    """The worker's only Spark session, with the jars for S3."""
    from lakemill.spark import session

    root = tmp_path_factory.mktemp("spark-s3")
    yield session.start(Settings.load(root, s3_flags()))
    session.stop()
