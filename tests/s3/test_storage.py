"""lake/storage: one contract on a local folder and on S3, and what is said when a storage is not as it should be."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemill.errors import BadSettings, FileGone, LakemillError, StorageUnavailable, UnknownBucket, Unwritable
from lakemill.lake import s3_errors
from lakemill.lake.storage import Storage, open_storage
from lakemill.settings import S3Settings, Settings
from tests.s3.conftest import MakeFlags
from tests.s3.proxy import Faults, Proxy
from tests.s3.server import STRANGER, S3Server

KEYS = ["main/t/a.parquet", "t/k=a%20b/x.parquet", "t/k=a b/x+y.parquet", "t/k=ü#?&/x.parquet", "t/k=%2F:'\"/x.parquet"]


def opened(folder: Path, flags: dict[str, object]) -> Storage:
    settings = Settings.load(folder, flags)
    return open_storage(settings.data_path, settings.s3)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return opened(tmp_path, {"lake.data_path": str(tmp_path / "data")})
    return opened(tmp_path, request.getfixturevalue("s3_flags")())


# ---------------------------------------------------------------- one contract
def test_it_is_writable_and_the_check_leaves_nothing(storage: Storage) -> None:
    storage.check_writable()
    assert list(storage.list()) == []


@pytest.mark.parametrize("key", KEYS)
def test_a_file_comes_and_goes_under_its_own_name(storage: Storage, key: str) -> None:
    path, other = storage.root + key, storage.root + "moved/" + key
    assert (storage.exists(path), storage.size(path)) == (False, None)
    storage.put_bytes(path, b"abc")
    assert (storage.exists(path), storage.size(path)) == (True, 3)
    storage.move(path, other)
    assert [file.path for file in storage.list()] == [other]
    storage.delete([other, path])  # one of them is gone already
    assert list(storage.list()) == []


def test_a_folder_is_listed_whole_and_alone(storage: Storage) -> None:
    paths = [f"{storage.root}{folder}/f{n}.parquet" for folder in ("a", "a/b", "ab") for n in range(3)]
    for path in paths:
        storage.put_bytes(path, b"x" * 5)
    assert sorted(file.path for file in storage.list()) == sorted(paths)
    for spelled in ("a", "a/", storage.root + "a"):
        assert sorted(file.path for file in storage.list(spelled)) == sorted(p for p in paths if "/ab/" not in p)
    found = next(iter(storage.list("a/b")))
    assert found.size == 5
    assert abs(datetime.now(UTC) - found.modified) < timedelta(minutes=2)
    assert list(storage.list("nowhere")) == []


def test_many_files_are_moved_and_deleted_at_once(storage: Storage) -> None:
    files = [f"{storage.root}k=1/{n}.parquet" for n in range(40)]
    for path in files:
        storage.put_bytes(path, b"1")
    staging = storage.staging()
    staging.move([(path, path.replace("k=1", "k=2")) for path in files])
    moved = sorted(path.replace("k=1", "k=2") for path in files)
    assert staging.list(storage.root) == moved
    staging.remove(moved)
    assert list(storage.list()) == []


def test_moving_what_is_not_there_says_so(storage: Storage) -> None:
    with pytest.raises(FileGone, match="not there"):
        storage.move(storage.root + "nothing", storage.root + "something")


def test_what_spark_leaves_in_a_folder_is_swept_up(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), S3Settings())
    for name in ("job/_SUCCESS", "job/.a.parquet.crc", "job/k=1/.b.parquet.crc", "other/a.parquet", "other/_SUCCESS"):
        storage.put_bytes(storage.root + name, b"x")
    storage.staging().sweep(storage.root + "job")
    storage.staging().sweep(storage.root + "other")
    assert [file.path for file in storage.list()] == [storage.root + "other/a.parquet"]
    assert not (tmp_path / "job").exists()


# ---------------------------------------------------------------- folders that are not as they should be
def test_the_path_decides_the_storage(tmp_path: Path) -> None:
    assert open_storage(f"{tmp_path}/x/", S3Settings()).root == f"{tmp_path}/x/"
    assert open_storage("s3a://b/some/prefix", S3Settings()).root == "s3://b/some/prefix/"
    assert open_storage("s3://b", S3Settings()).root == "s3://b/"
    with pytest.raises(BadSettings, match="neither a folder nor s3://"):
        open_storage("gs://b/x", S3Settings())


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in [tmp_path / "file" / "data", Path("/proc/lakemill")]:
        with pytest.raises(Unwritable, match="can't be written") as told:
            open_storage(str(place), S3Settings()).check_writable()
        assert_one_line(told.value, str(place))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").symlink_to("/dev/full")
    storage = open_storage(str(tmp_path), S3Settings())
    with pytest.raises(StorageUnavailable, match="the disk is full") as told:
        storage.put_bytes(storage.root + "x.parquet", b"abc")
    assert_one_line(told.value, storage.root)


# ---------------------------------------------------------------- S3 that is not as it should be
@pytest.mark.s3
class TestBadS3:
    """Every call says the same, in one line, and within the time that the settings allow."""

    Calls = tuple[Callable[[Storage], object], ...]
    CALLS: Calls = (
        lambda s: s.check_writable(),
        lambda s: list(s.list()),
        lambda s: s.delete([s.root + "x"]),
        lambda s: s.move(s.root + "x", s.root + "y"),
    )

    def test_a_bucket_that_does_not_exist(self, tmp_path: Path, s3_flags: MakeFlags) -> None:
        storage = opened(tmp_path, s3_flags(in_bucket="lakemill-test-nowhere"))
        for call in self.CALLS:
            with pytest.raises(UnknownBucket, match="bucket") as told:
                call(storage)
            assert_one_line(told.value, "s3://lakemill-test-nowhere/")

    def test_an_unknown_key(self, tmp_path: Path, s3_flags: MakeFlags) -> None:
        storage = opened(tmp_path, s3_flags(who=STRANGER))
        for call in self.CALLS:
            with pytest.raises(Unwritable, match="does not accept the credentials") as told:
                call(storage)
            assert_one_line(told.value, storage.root)

    def test_a_wrong_secret(self, tmp_path: Path, s3_flags: MakeFlags) -> None:
        with pytest.raises(Unwritable, match="does not accept the credentials"):
            opened(tmp_path, s3_flags(secret_access_key="wrong")).check_writable()

    def test_a_key_that_may_only_read(self, tmp_path: Path, s3_flags: MakeFlags, server: S3Server) -> None:
        if server.reader is None:
            pytest.skip("the given server has no identity that may only read")
        storage = opened(tmp_path, s3_flags(who=server.reader))
        assert list(storage.list()) == []
        with pytest.raises(Unwritable, match="denies access") as told:
            storage.check_writable()
        assert_one_line(told.value, storage.root)

    @pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "https://{host}", "http://lakemill.invalid"])
    def test_an_endpoint_where_nobody_is(
        self, tmp_path: Path, s3_flags: MakeFlags, proxy: Proxy, endpoint: str
    ) -> None:
        flags = s3_flags(endpoint=endpoint.format(host=proxy.endpoint.partition("://")[2]), retries=1)
        with pytest.raises(StorageUnavailable, match="can't be reached") as told:
            opened(tmp_path, flags).check_writable()
        assert_one_line(told.value, "s3.endpoint")

    @pytest.mark.parametrize(
        ("faults", "said"),
        [
            (Faults(busy_share=1), "too busy"),
            (Faults(full=True), "the storage is full"),
            (Faults(delay=5), "did not answer in time"),
            (Faults(cut_share=1), "broke off"),
        ],
        ids=["503", "full", "silent", "cut"],
    )
    def test_it_gives_up_in_time(
        self, tmp_path: Path, s3_flags: MakeFlags, proxy: Proxy, faults: Faults, said: str
    ) -> None:
        storage = opened(tmp_path, s3_flags(retries=2, read_timeout="0.5s", connect_timeout="0.5s"))
        begun = time.monotonic()
        with proxy.broken(faults) as met, pytest.raises(StorageUnavailable, match=said) as told:
            storage.check_writable()
        assert time.monotonic() - begun < 10
        assert 1 <= sum(met.values()) <= 3  # the request and two more
        assert_one_line(told.value, storage.root)

    @pytest.mark.parametrize(
        "faults", [Faults(delay=0.1), Faults(busy_share=0.5), Faults(cut_share=0.4)], ids=["slow", "503", "cut"]
    )
    def test_it_survives_what_passes(self, tmp_path: Path, s3_flags: MakeFlags, proxy: Proxy, faults: Faults) -> None:
        storage = opened(tmp_path, s3_flags())
        with proxy.broken(faults) as met:
            storage.check_writable()
            storage.put_bytes(storage.root + "x", b"1")
            storage.move(storage.root + "x", storage.root + "y")
            assert [file.path for file in storage.list()] == [storage.root + "y"]
        assert sum(met.values()) > 0

    def test_new_files_are_encrypted_with_the_key_of_the_settings(
        self, tmp_path: Path, s3_flags: MakeFlags, server: S3Server, bucket: str
    ) -> None:
        storage = opened(tmp_path, s3_flags(kms_key_id="lakemill-key"))
        storage.put_bytes(storage.root + "x", b"abc")
        storage.move(storage.root + "x", storage.root + "y")
        assert server.key_of(bucket, (storage.root + "y").removeprefix(f"s3://{bucket}/")) == "lakemill-key"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (": org.apache.hadoop.fs.s3a.UnknownStoreException: `s3://b/x': NoSuchBucket", UnknownBucket),
        (": java.nio.file.AccessDeniedException: s3://b/x: (Service: S3, Status Code: 403)", Unwritable),
        ("software.amazon.awssdk…S3Exception: InvalidAccessKeyId", Unwritable),
        (": org.apache.hadoop.fs.s3a.AWSStatus500Exception: PUT: (Service: S3, Status Code: 507)", StorageUnavailable),
        (": org.apache.hadoop.fs.s3a.AWSServiceThrottledException: getFileStatus", StorageUnavailable),
        ("IO Error: Timeout was reached error for HTTP HEAD to 'http://h/b/p.parquet'", StorageUnavailable),
        ("something new\nwith many\nlines", StorageUnavailable),
        ("", StorageUnavailable),
    ],
)
def test_errors_of_spark_and_duckdb_are_told_in_the_same_words(text: str, kind: type[LakemillError]) -> None:
    told = s3_errors.explain(text, "s3://b/x")
    assert type(told) is kind
    assert_one_line(told, "s3://b/x")


def assert_one_line(error: LakemillError, place: str) -> None:
    line = str(error)
    assert "\n" not in line
    assert len(line) < 400
    assert line.startswith(error.code)
    assert place in line
    assert error.remedy
