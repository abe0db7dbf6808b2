"""docs/how-to/s3.md does what it says: its commands are run, its settings are loaded."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lakemill.settings import Settings
from tests.s3.conftest import MakeFlags
from tests.s3.server import S3Server

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "s3.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.s3
def test_the_commands_that_make_a_lake(tmp_path: Path, database: str, server: S3Server, s3_flags: MakeFlags) -> None:
    script = blocks("sh")[0]
    for told, meant in {
        "s3://my-bucket/lake": str(s3_flags()["lake.data_path"]),
        '"host=db dbname=lake"': shlex.quote(database),
        "AWS_ACCESS_KEY_ID=…": f"AWS_ACCESS_KEY_ID={server.owner.access_key_id}",
        "AWS_SECRET_ACCESS_KEY=…": f"AWS_SECRET_ACCESS_KEY={server.owner.secret_access_key}",
    }.items():
        assert told in script
        script = script.replace(told, meant)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "AWS_ENDPOINT_URL": server.endpoint}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "1000" in done.stdout
    assert "ATTACH" in done.stdout
    assert server.owner.secret_access_key not in done.stdout + (tmp_path / "my-lake" / "lakemill.toml").read_text()


def test_the_settings(tmp_path: Path) -> None:
    (tmp_path / "lakemill.toml").write_text(blocks("toml")[0])
    settings = Settings.load(tmp_path)
    assert settings.on_s3
    assert settings.s3.path_style


def test_the_rules_are_json() -> None:
    assert len(json.loads(blocks("json")[0])["Rules"]) == 2
