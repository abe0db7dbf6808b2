"""Settings: where they come from, what wins, and how mistakes are told."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from lakemill.errors import BadSettings
from lakemill.settings import Settings, without_password
from lakemill.values import parse_duration, parse_size


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("LAKEMILL_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "lakemill.toml"
    file.write_text(text)
    return file


def test_without_a_file_defaults_hold(tmp_path: Path) -> None:
    settings = Settings.load()
    assert settings.root == tmp_path
    assert settings.data_path == f"{tmp_path}/data/"
    assert settings.lake.postgres == ""
    assert settings.embedded_dir == tmp_path / ".lakemill" / "postgres"
    assert not settings.on_s3


def test_the_file_is_found_upward(tmp_path: Path) -> None:
    write(tmp_path, "[lake]\ndata_path = 'files'\n")
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    settings = Settings.load(inside)
    assert settings.root == tmp_path
    assert settings.data_path == f"{tmp_path}/files/"


def test_a_file_can_be_named_itself(tmp_path: Path) -> None:
    assert Settings.load(write(tmp_path, "[spark]\nprofile = 'batch'\n")).spark.profile == "batch"


def test_the_environment_wins_over_the_file_and_flags_over_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path, "[spark]\nmaster = 'yarn'\nremote = 'file'\nprofile = 'batch'\n")
    monkeypatch.setenv("LAKEMILL_SPARK__MASTER", "local")
    monkeypatch.setenv("LAKEMILL_SPARK__REMOTE", "env")
    spark = Settings.load(flags={"spark.remote": "flag", "spark.profile": None}).spark
    assert (spark.master, spark.remote, spark.profile) == ("local", "flag", "batch")


def test_amazons_variables_are_understood_and_lose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    write(tmp_path, "[s3]\naccess_key_id = 'mine'\n")
    s3 = Settings.load().s3
    assert (s3.region, s3.access_key_id, s3.endpoint_host) == ("eu-north-1", "mine", "127.0.0.1:9000")


@pytest.mark.parametrize(
    ("given", "url", "host", "path_style"),
    [
        ({}, "", "", False),
        ({"s3.endpoint": "http://h:1"}, "http://h:1", "h:1", True),
        ({"s3.endpoint": "https://h/"}, "https://h", "h", True),
        ({"s3.endpoint": "h:1"}, "https://h:1", "h:1", True),
        ({"s3.endpoint": "h:1", "s3.use_ssl": "false", "s3.path_style": False}, "http://h:1", "h:1", False),
    ],
)
def test_an_endpoint_decides_scheme_and_style(given: dict[str, object], url: str, host: str, path_style: bool) -> None:
    s3 = Settings.load(flags=given).s3
    assert (s3.endpoint_url, s3.endpoint_host, s3.path_style) == (url, host, path_style)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("5s", timedelta(seconds=5)),
        ("2 days", timedelta(days=2)),
        ("1 h 30 min", timedelta(hours=1.5)),
        ("1 day, 2 hours", timedelta(hours=26)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5 weeks", timedelta(days=10.5)),
        ("90", timedelta(seconds=90)),
        (90, timedelta(seconds=90)),
    ],
)
def test_durations(text: object, meaning: timedelta) -> None:
    assert parse_duration(text) == meaning


@pytest.mark.parametrize("text", ["", "soon", "2 fortnights", "days 2", "1 day ago", "-3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|unit of time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [("512MB", 512_000_000), ("1 GiB", 2**30), ("512m", 2**29), ("10", 10), (10, 10), ("1.5kb", 1500)],
)
def test_sizes(text: object, meaning: int) -> None:
    assert parse_size(text) == meaning


def test_all_mistakes_are_told_at_once_each_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "[lake]\ndata_pth = 'x'\n[lakes]\nx = 1\n[spark]\nprofile = 'huge'\n[upkeep]\nretention = 'soon'\n"
        "target_file_size = '0'\n",
    )
    monkeypatch.setenv("LAKEMILL_S3__RETRIES", "many")
    monkeypatch.setenv("LAKEMILL_NOSUCH", "1")
    with pytest.raises(BadSettings) as caught:
        Settings.load(flags={"lake.connect_timeout": "never", "foo": "1"})
    told = str(caught.value)
    for expected in (
        "9 mistakes",
        f"{file}: lake.data_pth: no such setting; did you mean lake.data_path?",
        f"{file}: lakes.x: no such setting",
        f"{file}: spark.profile: ",
        f"{file}: upkeep.retention: not a duration",
        f"{file}: upkeep.target_file_size: ",
        "LAKEMILL_S3__RETRIES: ",
        "LAKEMILL_NOSUCH: no such setting",
        "--set lake.connect_timeout: not a duration",
        "--set foo: no such setting",
    ):
        assert expected in told


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("lake.data_path", "s3://", "names no bucket"),
        ("lake.data_path", "s3:///x", "names no bucket"),
        ("lake.data_path", "s3:/bucket/x", "names no bucket"),
        ("lake.data_path", "s3:bucket", "names no bucket"),
        ("lake.data_path", "S3A:bucket", "names no bucket"),
        ("lake.data_path", "s3a://bucket", None),
        ("lake.data_path", "./s3:folder", None),
        ("spark.master", "blah", "no Spark master"),
        ("spark.master", "local[x]", "no Spark master"),
        ("spark.master", "spark://", "no Spark master"),
        ("spark.master", "local[2, 4]", None),
        ("spark.master", "local-cluster[2,1,1024]", None),
        ("spark.master", "k8s://https://h:1", None),
        ("publish.idle_timeout", "0s", "would be none"),
        ("publish.statement_timeout", 0, "would be none"),
        ("publish.transaction_timeout", "100us", "would be none"),
        ("publish.transaction_timeout", "1ms", None),
    ],
)
def test_what_would_go_wrong_later_is_told_here(key: str, value: object, told: str | None) -> None:
    if told is None:
        Settings.load(flags={key: value})
        return
    with pytest.raises(BadSettings, match=f"--set {key}: .*{told}"):
        Settings.load(flags={key: value})
    with pytest.raises(BadSettings, match=f"BAD_SETTINGS: --option: .*{told}"):
        Settings.load(flags={key: value}, options={key: "--option"})


def test_one_mistake_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, "[spark]\nprofile = 'huge'\n")
    with pytest.raises(BadSettings) as caught:
        Settings.load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "told"), [("[lake\n", "not TOML"), ("root = '/'\n", "no such setting")])
def test_a_broken_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(BadSettings, match=told) as caught:
        Settings.load()
    assert str(file) in str(caught.value)


def test_the_variables_of_the_test_suite_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMILL_TEST_POSTGRES", "host=h")
    Settings.load()


@pytest.mark.parametrize(
    "text",
    ["[spark.conf]\n'a.b' = 'c'\n'x.y' = true\nn.m = 2\n", "[spark]\nconf = {'a.b' = 'c', x.y = true, 'n.m' = 2}\n"],
)
def test_sparks_configuration_is_flat_text(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    assert Settings.load().spark.conf == {"a.b": "c", "x.y": "true", "n.m": "2"}


def test_sparks_configuration_in_the_environment_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMILL_SPARK__CONF", '{"spark.sql.ansi.enabled": true}')
    assert Settings.load().spark.conf == {"spark.sql.ansi.enabled": "true"}
    monkeypatch.setenv("LAKEMILL_SPARK__CONF", "a=b")
    with pytest.raises(BadSettings, match="LAKEMILL_SPARK__CONF"):
        Settings.load()


WIDE = {"wide": {"spark.sql.shuffle.partitions": "400", "spark.sql.adaptive.enabled": "true"}}


@pytest.mark.parametrize(
    "text",
    [
        "[spark.profiles.wide]\n'spark.sql.shuffle.partitions' = 400\n'spark.sql.adaptive.enabled' = true\n",
        "[spark.profiles]\nwide = {spark.sql = {shuffle.partitions = 400, 'adaptive.enabled' = true}}\n",
    ],
)
def test_profiles_have_names(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    assert Settings.load().spark.profiles == WIDE
    given = Settings.load(
        flags={"spark.profiles.wide.spark.sql.shuffle.partitions": "8", "spark.profiles.x.spark.sql.y": 1}
    )
    assert given.spark.profiles == {
        "wide": {**WIDE["wide"], "spark.sql.shuffle.partitions": "8"},
        "x": {"spark.sql.y": "1"},
    }
    assert Settings.load(flags={"spark.profiles": {"x": {"spark.sql.y": "z"}}}).spark.profiles["x"] == {
        "spark.sql.y": "z"
    }


def test_policies_of_schemas_and_tables(tmp_path: Path) -> None:
    text = "[upkeep.policies.sales]\nwindow = '22:00-02:00'\n[upkeep.policies.'sales.orders']\nauto = ''\n"
    write(tmp_path, text + "[upkeep.policies.main.t]\nretention = '30 days'\nsmall_size = '1MB'\n")
    assert Settings.load(tmp_path).upkeep.given() == {
        "sales": {"window": "22:00-02:00"},
        "sales.orders": {"jobs": frozenset()},
        "main.t": {"retention": timedelta(days=30), "small_size": 10**6},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{}.sales]\nwindw = ''", "{}.sales.windw: no such setting; did you mean window?"),
        ("[{}.sales]\nwindow = 'at night'", "{}.sales.window: 'at night' is no window"),
        ("[{}.'sales.orders']\nretention = 'soon'", "{}.sales.orders.retention: not a duration"),
        ("[{}.sales]\nauto = 'compact, expire'", "{}.sales.auto: expire is done for the whole lake"),
        ("[{}.sales]\nauto = 'vacuum'", "{}.sales.auto: vacuum: not among"),
        ("[{}.sales]\nsmall_files = 1", "{}.sales.small_files: "),
        ("[{}.'a.b.c']\nwindow = ''", "{}: 'a.b.c' is no schema and no table"),
        ("[{}]\nwindow = ''", "{}: 'window' is no schema and no table"),
        ("[{0}.Sales]\nwindow = ''\n[{0}.sales]\nauto = ''", "{}: 'Sales' and 'sales' are the same name"),
    ],
)
def test_wrong_policies_are_told_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text.format("upkeep.policies"))
    with pytest.raises(BadSettings) as wrong:
        Settings.load(tmp_path)
    assert f"{file}: {message.format('upkeep.policies')}" in str(wrong.value)


def test_profiles_in_the_environment_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMILL_SPARK__PROFILES", json.dumps(WIDE))
    assert Settings.load().spark.profiles == WIDE


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("spark.executor.memory", r"only a JVM that starts can take; write it into \[spark.conf\]"),
        ("spark.sql.warehouse.dir", "only a JVM that starts"),
        ("spark.sql.session.timeZone", "the rows of the answer depend"),
    ],
)
def test_what_a_profile_may_not_set(tmp_path: Path, key: str, told: str) -> None:
    file = write(tmp_path, f"[spark.profiles.wide]\n'{key}' = '4g'\n")
    with pytest.raises(BadSettings, match=f"spark.profiles: profile 'wide' sets {key}, .*{told}") as caught:
        Settings.load()
    assert str(file) in str(caught.value)


def test_a_profile_has_keys(tmp_path: Path) -> None:
    write(tmp_path, "[spark.profiles]\nwide = 4\n")
    with pytest.raises(BadSettings, match="'wide' is no profile"):
        Settings.load()


def test_no_secret_is_ever_shown() -> None:
    flags = {
        "s3.secret_access_key": "geheim",
        "s3.session_token": "geheim",
        "lake.postgres": "postgresql://u:geheim@h/x",
    }
    settings = Settings.load(flags=flags)
    for shown in (repr(settings), str(settings), str(settings.shown())):
        assert "geheim" not in shown
    with pytest.raises(BadSettings) as caught:
        Settings.load(flags=flags | {"s3.retries": "x", "lake.postgres": ["geheim"]})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:geheim@h:1/d",
        "postgresql://u:geheim@h:1,h2:2/d?sslmode=require",
        "host=h password=geheim dbname=d",
        "host=h password = 'ge heim\\' x geheim' dbname=d",
        "postgresql://h/d?user=u&password=geheim&x=y",
        "host=h sslpassword=geheim",
    ],
)
def test_passwords_are_masked(text: str) -> None:
    assert "geheim" not in without_password(f"it said: {text}")
    assert "***" in without_password(text)


def documented(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str | None]]:
    for name, field in model.model_fields.items():
        yield f"{above}{name}", field.description
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from documented(field.annotation, f"{above}{name}.")


def test_every_setting_is_documented() -> None:
    assert [
        name for name, description in documented(Settings) if not description or not description.endswith(".")
    ] == []
