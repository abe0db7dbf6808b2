"""The files of a lake, on a local folder or on S3: is it there, list, delete, move, can we write.

Paths go in and come out in full, spelled as the DuckLake catalog spells them (`/abs/dir/file`, `s3://bucket/key`); a
catalog may name files outside its own data path (`ducklake_add_data_files`), so each path finds its own store. Requests
to S3 have a timeout and a bounded number of jittered retries. Reads no Parquet, knows no table, and decides nothing:
what may be deleted is upkeep's question. Errors of both sides become one line of ours.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import obstore
from obstore.store import S3Store

from lakemill.errors import BadSettings, FileGone, LakemillError, StorageUnavailable, UnknownBucket, Unwritable
from lakemill.lake import s3_errors
from lakemill.settings import S3Settings

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

PROBE = ".lakemill-write-check-"
PARALLEL = 16  # requests in flight; S3 answers one in tens of milliseconds, many at once in the same time
_S3 = re.compile(r"s3[an]?://([^/]+)/*(.*)")


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str
    size: int
    modified: datetime


class _Place(Protocol):
    """What the two kinds of storage can do, for keys of their own."""

    def find(self, key: str) -> StoredFile | None: ...
    def walk(self, prefix: str) -> Iterator[StoredFile]: ...
    def remove(self, keys: list[str]) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def write(self, key: str, content: bytes) -> None: ...
    def sweep(self, folder: str) -> None: ...


def open_storage(data_path: str, s3: S3Settings) -> Storage:
    """The storage of a lake with this data path; asks nothing of it yet."""
    if (match := _S3.match(data_path)) is not None:
        prefix = match[2].rstrip("/")
        return Storage(f"s3://{match[1]}/{prefix}/" if prefix else f"s3://{match[1]}/", s3)
    if "://" in data_path:
        raise BadSettings(
            f"'{data_path}' is neither a folder nor s3://bucket/prefix",
            remedy="use a local folder or an S3 address",
            place="lake.data_path",
        )
    return Storage(str(Path(data_path).expanduser().absolute()).rstrip("/") + "/", s3)


@dataclass(frozen=True, slots=True)
class Storage:
    root: str
    """The data path, with one slash at its end."""
    _s3: S3Settings = field(repr=False)
    _buckets: dict[str, _Bucket] = field(default_factory=dict, repr=False, compare=False)

    def exists(self, path: str) -> bool:
        place, key = self._find(path)
        return place.find(key) is not None

    def size(self, path: str) -> int | None:
        """In bytes; None where there is no such file."""
        place, key = self._find(path)
        found = place.find(key)
        return None if found is None else found.size

    def list(self, prefix: str = "") -> Iterator[StoredFile]:
        """All files below the data path, or below `prefix`, a folder in it (in full, or relative to it)."""
        place, key = self._find(prefix if prefix.startswith(self.root) else self.root + prefix)
        return place.walk(key)

    def delete(self, paths: Iterable[str]) -> None:
        """Removes files; one that is gone already is no error."""
        by_place: dict[int, tuple[_Place, list[str]]] = {}
        for path in paths:
            place, key = self._find(path)
            by_place.setdefault(id(place), (place, []))[1].append(key)
        for place, keys in by_place.values():
            place.remove(keys)

    def move(self, source: str, target: str) -> None:
        """Within one folder tree or bucket: a rename, or a copy by the S3 server followed by a delete."""
        place, key = self._find(source)
        other, new_key = self._find(target)
        if place is not other:
            raise BadSettings(f"can't move '{source}' to '{target}': they are on different storages")
        place.rename(key, new_key)

    def move_all(self, moves: Iterable[tuple[str, str]]) -> None:
        with ThreadPoolExecutor(PARALLEL, "lakemill-move") as pool:
            for _ in pool.map(lambda move: self.move(*move), moves):
                pass

    def put_bytes(self, path: str, content: bytes) -> None:
        place, key = self._find(path)
        place.write(key, content)

    def check_writable(self) -> None:
        """Writes, finds and removes one small file under the data path, or says in one line why it can't."""
        path = f"{self.root}{PROBE}{uuid.uuid4().hex}"
        try:
            self.put_bytes(path, b"lakemill")
            if self.size(path) != len(b"lakemill"):
                raise StorageUnavailable("a file just written could not be read back")
            self.delete([path])
        except LakemillError as error:
            error.place = self.root  # the user knows this path, not the probe's
            raise

    def staging(self) -> StagingStorage:
        """The same storage in the words of a job that stages files."""
        return StagingStorage(self)

    def _find(self, path: str) -> tuple[_Place, str]:
        match = _S3.match(path)
        if match is None:
            return _FOLDER, path.removeprefix("file://")
        bucket = self._buckets.get(match[1])
        if bucket is None:
            bucket = self._buckets.setdefault(match[1], _Bucket(match[1], _s3_store(match[1], self._s3)))
        return bucket, match[2]


@dataclass(frozen=True, slots=True)
class StagingStorage:
    """What ``lake/staging`` asks of a storage: whole jobs' files at once, by their paths."""

    storage: Storage

    def list(self, folder: str) -> list[str]:
        return sorted(file.path for file in self.storage.list(folder) if file.path.endswith(".parquet"))

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        self.storage.move_all(moves)

    def write(self, path: str, content: bytes) -> None:
        self.storage.put_bytes(path, content)

    def remove(self, paths: Iterable[str]) -> None:
        self.storage.delete(paths)

    def sweep(self, folder: str) -> None:
        """Remove what Spark leaves beside a job's files: checksums, markers, and folders that are empty then."""
        place, key = self.storage._find(folder)
        place.sweep(key)


# ---------------------------------------------------------------- a local folder
class _Folder:
    def find(self, key: str) -> StoredFile | None:
        with _local(key):
            try:
                return self._stored(key, Path(key).stat())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        for folder, _, names in os.walk(prefix, onerror=self._unless_gone):
            for name in names:
                found = self.find(f"{folder.rstrip('/')}/{name}")
                if found is not None:  # else removed since the folder was read
                    yield found

    def remove(self, keys: list[str]) -> None:
        for key in keys:
            with _local(key):
                Path(key).unlink(missing_ok=True)

    def rename(self, source: str, target: str) -> None:
        with _local(target):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            try:
                Path(source).replace(target)
            except FileNotFoundError as error:
                raise FileGone("the file is not there", place=source) from error

    def write(self, key: str, content: bytes) -> None:
        with _local(key):
            Path(key).parent.mkdir(parents=True, exist_ok=True)
            with Path(key).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # a publish that names it must not outlive it

    def sweep(self, folder: str) -> None:
        with _local(folder):
            for place, _, names in os.walk(folder, topdown=False):
                for name in names:
                    if name.endswith(".crc") or name == "_SUCCESS":
                        (Path(place) / name).unlink(missing_ok=True)
                if not any(Path(place).iterdir()):
                    Path(place).rmdir()

    @staticmethod
    def _stored(key: str, stat: os.stat_result) -> StoredFile:
        return StoredFile(key, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))

    @staticmethod
    def _unless_gone(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise _of_disk(error, str(error.filename)) from error


_FOLDER = _Folder()


@contextmanager
def _local(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _of_disk(error, path) from error


def _of_disk(error: OSError, path: str) -> LakemillError:
    what = (error.strerror or str(error)).lower()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageUnavailable(f"the disk is full: {what}", remedy="free some space, then try again", place=path)
    if error.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE):
        return StorageUnavailable(f"the disk does not answer: {what}", place=path)
    return Unwritable(f"can't be written: {what}", place=path)


# ---------------------------------------------------------------- a bucket
@dataclass(frozen=True, slots=True)
class _Bucket:
    name: str
    store: S3Store = field(repr=False)

    def find(self, key: str) -> StoredFile | None:
        with _remote(self._full(key)):
            try:
                return self._stored(obstore.head(self.store, key))
            except FileNotFoundError:
                return None

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        with _remote(self._full(prefix)):
            for batch in obstore.list(self.store, prefix=prefix.rstrip("/") or None):
                for entry in batch:
                    if entry["size"]:  # the empty ones are Hadoop's marks of folders
                        yield self._stored(entry)

    def remove(self, keys: list[str]) -> None:
        with _remote(self._full(keys[0]) if keys else ""):
            try:
                obstore.delete(self.store, keys)
            except FileNotFoundError as error:  # not the file: a bulk delete does not mind
                raise UnknownBucket(f"there is no bucket '{self.name}'", place=self._full("")) from error

    def rename(self, source: str, target: str) -> None:
        with _remote(self._full(source)):
            obstore.copy(self.store, source, target)
            obstore.delete(self.store, source)

    def write(self, key: str, content: bytes) -> None:
        with _remote(self._full(key)):
            obstore.put(self.store, key, content, use_multipart=False)

    def sweep(self, folder: str) -> None:
        """Nothing: on S3 there are no checksum files, and a folder is where its files are."""

    def _full(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def _stored(self, entry: Any) -> StoredFile:
        return StoredFile(self._full(entry["path"]), int(entry["size"]), entry["last_modified"])


def _s3_store(bucket: str, s3: S3Settings) -> S3Store:
    given: dict[str, Any] = {"region": s3.region, "virtual_hosted_style_request": not s3.path_style}
    if s3.endpoint:
        scheme, _, host = s3.endpoint_url.partition("://")
        given["endpoint"] = s3.endpoint_url if s3.path_style else f"{scheme}://{bucket}.{host}"
    if s3.access_key_id:
        given |= {"access_key_id": s3.access_key_id, "secret_access_key": s3.secret_access_key.get_secret_value()}
    if token := s3.session_token.get_secret_value():
        given["session_token"] = token
    if s3.kms_key_id:
        given |= {"server_side_encryption": "aws:kms", "sse_kms_key_id": s3.kms_key_id}
    client: ClientConfig = {
        "allow_http": not s3.use_ssl,
        "connect_timeout": s3.connect_timeout,
        "timeout": s3.connect_timeout + s3.read_timeout,
    }
    retry: RetryConfig = {
        "max_retries": s3.retries,
        "retry_timeout": min((s3.retries + 1) * s3.read_timeout, timedelta(minutes=3)),  # a signature is valid for 15
        "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    return S3Store(bucket, client_options=client, retry_config=retry, **given)


@contextmanager
def _remote(path: str) -> Iterator[None]:
    try:
        yield
    except (obstore.exceptions.BaseError, FileNotFoundError) as error:
        raise s3_errors.explain(str(error), path) from error
