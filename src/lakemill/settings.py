"""What a user can set, where it comes from, and what is wrong with it.

Values are layered: defaults, the usual ``AWS_*`` variables (S3 only), ``lakemill.toml`` (found upward from the working
folder), ``LAKEMILL_GROUP__KEY`` variables, flags. The origin of every value is kept until it is validated, so that all
mistakes are reported at once, each with its place. Nothing here opens a connection, and no secret is ever printed.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, model_validator

from lakemill.api_settings import ApiSettings
from lakemill.errors import BadSettings
from lakemill.ingest_settings import IngestSettings
from lakemill.query_settings import QuerySettings
from lakemill.service_settings import ServiceSettings
from lakemill.upkeep_settings import PolicySettings, UpkeepSettings
from lakemill.values import (
    FREE,
    Conf,
    Duration,
    Group,
    Master,
    Place,
    Profiles,
    Timeout,
    leaves,
)

FILE_NAME = "lakemill.toml"
ENV_PREFIX = "LAKEMILL_"
ENV_IGNORED = ("LAKEMILL_TEST_", "LAKEMILL_BENCH_", "LAKEMILL_DEBUG")  # read elsewhere, not settings


class LakeSettings(Group):
    data_path: Place = Field(
        "data/",
        min_length=1,
        description="Folder or `s3://bucket/prefix` of the lake's Parquet files; relative to lakemill.toml.",
    )
    postgres: str = Field(
        "",
        repr=False,
        description="DSN of the PostgreSQL (15 or newer) that holds the catalog; empty: an embedded server.",
    )
    catalog_schema: str = Field("public", min_length=1, description="PostgreSQL schema of the DuckLake catalog.")
    connect_timeout: Duration = Field(
        timedelta(seconds=10), description="How long to wait for PostgreSQL to answer a new connection."
    )

    @property
    def connect_seconds(self) -> float | None:
        """None where the user set none, so that the DSN's own holds."""
        return self.connect_timeout.total_seconds() if "connect_timeout" in self.model_fields_set else None


class S3Settings(Group):
    endpoint: str = Field(
        "",
        description="An S3 server other than Amazon's, such as `http://127.0.0.1:8333`. Also AWS_ENDPOINT_URL.",
    )
    region: str = Field("us-east-1", description="Region of the bucket. Also AWS_REGION.")
    access_key_id: str = Field(
        "", description="Access key; empty: the machine's own credentials. Also AWS_ACCESS_KEY_ID."
    )
    secret_access_key: SecretStr = Field(
        SecretStr(""), description="Secret of the access key. Also AWS_SECRET_ACCESS_KEY."
    )
    session_token: SecretStr = Field(
        SecretStr(""), description="Token of temporary credentials. Also AWS_SESSION_TOKEN."
    )
    kms_key_id: str = Field(
        "", description="SSE-KMS key with which new objects are encrypted; empty: the bucket's default."
    )
    path_style: bool = Field(
        False, description="Bucket in the path instead of the host name; on by itself when an endpoint is given."
    )
    use_ssl: bool = Field(
        True, description="HTTPS to the endpoint; taken from the endpoint when that begins with http:// or https://."
    )
    connect_timeout: Duration = Field(timedelta(seconds=5), description="How long to wait for a connection to S3.")
    read_timeout: Duration = Field(timedelta(seconds=60), description="How long to wait for an answer of S3.")
    retries: int = Field(
        5, ge=0, le=100, description="How often a request to S3 is tried again, with growing, jittered pauses."
    )

    @model_validator(mode="before")
    @classmethod
    def _endpoint_decides(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("endpoint"):
            scheme = str(given["endpoint"]).partition("://")[0].lower()
            implied = {"path_style": True} | ({"use_ssl": scheme == "https"} if scheme in ("http", "https") else {})
            return implied | dict(given)
        return given

    @property
    def endpoint_host(self) -> str:
        """``host:port`` without a scheme, as DuckDB wants it."""
        return self.endpoint.partition("://")[2].rstrip("/") if "://" in self.endpoint else self.endpoint.rstrip("/")

    @property
    def endpoint_url(self) -> str:
        """With a scheme, as Spark and obstore want it; empty when it is Amazon's own."""
        return f"{'https' if self.use_ssl else 'http'}://{self.endpoint_host}" if self.endpoint else ""


class SparkSettings(Group):
    master: Master = Field(
        "local[*]",
        min_length=1,
        description="Spark master of a session of our own: `local[*]`, `spark://host:port`, `yarn`, `k8s://…`.",
    )
    remote: str = Field(
        "",
        description="Spark Connect instead of master: `sc://host:port`, or `local[2]` for a server started here.",
    )
    profile: Literal["small", "batch"] = Field(
        "small",
        description="`small` starts fast (CLI, tests, small jobs); `batch` computes fast (full compiler, parallel GC).",
    )
    driver_memory: str = Field("1g", pattern=r"^\d+[kmgtKMGT]$", description="Heap of the driver's JVM, such as `1g`.")
    shuffle_partitions: int = Field(
        0, ge=0, description="Partitions of a shuffle; 0: 2 in `small`, 3 a core in `batch`."
    )
    executor_wait: Timeout = Field(
        timedelta(minutes=2),
        description="Work that no executor of a cluster is there for is cancelled after this long.",
    )
    log_level: Literal["off", "error", "warn", "info"] = Field(
        "off", description="How much Spark itself says on stderr."
    )
    packages_dir: Path | None = Field(
        None, description="Folder with the jars for S3, for machines without a network; else Spark fetches them."
    )
    conf: Conf = Field(default_factory=dict, description="Any further Spark configuration; wins over everything above.")
    profiles: Profiles = Field(
        default_factory=dict,
        description="Spark settings by name, for `SPARK_PROFILE` of a table; `small` and `batch` can be added to.",
    )
    batch_keys: int = Field(
        10_000_000, ge=1, description="A refresh that touches more keys has the profile `batch`, where it names none."
    )
    staged_keys: int = Field(
        100_000_000, ge=1, description="One that touches more is computed in parts of so many keys, and published once."
    )


class DuckSettings(Group):
    memory_limit: str = Field(
        "",
        description="Memory of one DuckDB connection, such as `4GB`; empty: DuckDB's own choice (80 % of the machine).",
    )
    threads: int = Field(0, ge=0, description="Threads of one DuckDB connection; 0: one a core.")


class PublishSettings(Group):
    idle_timeout: Timeout = Field(
        timedelta(seconds=5),
        description="A publisher that pauses longer inside its transaction loses it, so as not to block others.",
    )
    statement_timeout: Timeout = Field(
        timedelta(seconds=60), description="Longest single statement of a publish, waiting for other commits included."
    )
    transaction_timeout: Timeout = Field(
        timedelta(seconds=120), description="Longest publish transaction (PostgreSQL 17 and newer)."
    )
    retries: int = Field(100, ge=0, description="How often a commit that met another one is tried again.")


class TelemetrySettings(Group):
    otlp_endpoint: str = Field(
        "", pattern=r"^$|^https?://", description="OTLP/HTTP endpoint of traces: `http://127.0.0.1:4318`; empty: none."
    )
    openlineage_url: str = Field("", description="URL, or file, that OpenLineage events go to; empty: none.")


class Settings(Group):
    """Everything a user can set; made by `Settings.load`, complete and checked."""

    root: Path = Field(
        default_factory=Path.cwd,
        description="Folder of lakemill.toml, or the working folder where there is none; not a key of the file.",
    )
    lake: LakeSettings = Field(default_factory=LakeSettings, description="Where the lake is.")
    s3: S3Settings = Field(default_factory=S3Settings, description="How S3 is reached, where the data path is on S3.")
    spark: SparkSettings = Field(default_factory=SparkSettings, description="The Spark session.")
    duck: DuckSettings = Field(default_factory=DuckSettings, description="Limits of DuckDB.")
    publish: PublishSettings = Field(default_factory=PublishSettings, description="Commits to the lake.")
    upkeep: UpkeepSettings = Field(default_factory=UpkeepSettings, description="Compaction, expiry and cleanup.")
    ingest: IngestSettings = Field(default_factory=IngestSettings, description="Requests, and how they become visible.")
    service: ServiceSettings = Field(default_factory=ServiceSettings, description="Scheduler, workers, and their port.")
    api: ApiSettings = Field(default_factory=ApiSettings, description="The HTTP service: who is let in, and limits.")
    query: QuerySettings = Field(default_factory=QuerySettings, description="Queries, each in a process of its own.")
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings, description="Traces and lineage.")

    @property
    def data_path(self) -> str:
        """The lake's data path, absolute, with one slash at its end."""
        given = self.lake.data_path
        if "://" in given:
            return given.rstrip("/") + "/"
        return str((self.root / Path(given).expanduser()).resolve()) + "/"

    @property
    def on_s3(self) -> bool:
        return self.lake.data_path.startswith(("s3://", "s3a://"))

    @property
    def embedded_dir(self) -> Path:
        """Data folder of the embedded PostgreSQL, used when no DSN is set."""
        return self.root / ".lakemill" / "postgres"

    @classmethod
    def load(
        cls,
        start: Path | str | None = None,
        flags: Mapping[str, object] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Settings:
        """The settings that hold in `start`, a folder or a settings file (default: the working folder).

        `flags` win over all: ``{"lake.data_path": "s3://…"}``; None means not given. `options` are the names of those
        that were given otherwise than by `--set`.
        """
        folder = Path(start).resolve() if start is not None else Path.cwd()
        file = find_file(folder)
        layers = [_from_aws(os.environ)]
        if file is not None:
            layers.append(_from_file(file))
        layers += [_from_env(os.environ), _from_flags(flags or {}, options or {})]
        root = file.parent if file is not None else folder if folder.is_dir() else folder.parent
        return cls._checked(root, layers)

    @classmethod
    def _checked(cls, root: Path, layers: list[dict[tuple[str, ...], _Given]]) -> Settings:
        given: dict[tuple[str, ...], _Given] = {}
        for layer in layers:
            given |= layer
        tree: dict[str, Any] = {}
        mistakes: list[str] = []
        for path, (value, place) in given.items():
            mistake = _unknown(path)
            if mistake is not None:
                mistakes.append(f"{place}: {mistake}")
            elif len(path) > 2:  # a key of one of FREE
                tree.setdefault(path[0], {}).setdefault(path[1], {})[".".join(path[2:])] = value
            else:
                tree.setdefault(path[0], {})[path[1]] = value
        try:
            settings = cls(root=root, **tree)
        except ValidationError as wrong:
            for error in wrong.errors(include_url=False, include_input=False):
                path = tuple(str(part) for part in error["loc"])
                known = next((n for n in (len(path), 2) if path[:n] in given), 0)
                place = ".".join(((given[path[:known]][1],) if known else ()) + path[known:])
                message = error["msg"].removeprefix("Value error, ")
                if error["type"] == "extra_forbidden":  # of a policy: all others were looked up
                    message = "no such setting" + _near(path[-1], list(PolicySettings.model_fields))
                mistakes.append(f"{place}: {message}")
        if not mistakes:
            return settings
        raise BadSettings(
            mistakes[0] if len(mistakes) == 1 else f"{len(mistakes)} mistakes\n  " + "\n  ".join(mistakes) + "\n"
        )

    def shown(self) -> dict[str, Any]:
        """All values for a person or a log: secrets masked, the DSN without its password."""
        tree = self.model_dump(mode="json")
        tree["lake"]["postgres"] = without_password(self.lake.postgres)
        return tree


_Given = tuple[object, str]  # a value, and the place it came from


def find_file(start: Path) -> Path | None:
    """`start` itself when it is a file, else the nearest lakemill.toml in it or above it."""
    if start.is_file():
        return start
    return next((folder / FILE_NAME for folder in (start, *start.parents) if (folder / FILE_NAME).is_file()), None)


def without_password(dsn: str) -> str:
    """A DSN, URL or text that holds one, with every password masked."""
    dsn = re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", dsn)
    dsn = re.sub(r"(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", r"\1***", dsn)
    return re.sub(r"(?i)(sslpassword\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", r"\1***", dsn)


def _from_file(file: Path) -> dict[tuple[str, ...], _Given]:
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as wrong:
        raise BadSettings(f"not TOML: {wrong}", place=str(file)) from wrong
    except (OSError, UnicodeDecodeError) as wrong:
        raise BadSettings(f"can't be read: {wrong}", place=str(file)) from wrong
    return {path: (value, f"{file}: {'.'.join(path)}") for path, value in leaves(tree)}


def _from_env(environ: Mapping[str, str]) -> dict[tuple[str, ...], _Given]:
    given: dict[tuple[str, ...], _Given] = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(ENV_PREFIX) or name.startswith(ENV_IGNORED):
            continue
        path = tuple(name.removeprefix(ENV_PREFIX).lower().split("__"))
        value: object = text
        if path in FREE:  # its keys hold dots and capitals: the variable is one JSON object
            try:
                value = json.loads(text)
            except ValueError:
                value = text
        given[path] = (value, name)
    return given


def _from_aws(environ: Mapping[str, str]) -> dict[tuple[str, ...], _Given]:
    names = {
        "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "access_key_id": ("AWS_ACCESS_KEY_ID",),
        "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
        "session_token": ("AWS_SESSION_TOKEN",),
    }
    found = {key: next((n for n in options if environ.get(n)), None) for key, options in names.items()}
    return {("s3", key): (environ[name], name) for key, name in found.items() if name is not None}


def _from_flags(flags: Mapping[str, object], options: Mapping[str, str]) -> dict[tuple[str, ...], _Given]:
    flat = {".".join(path): value for path, value in leaves(flags) if value is not None}
    return {tuple(key.split(".")): (value, options.get(key, f"--set {key}")) for key, value in flat.items()}


def _unknown(path: tuple[str, ...]) -> str | None:
    """What is wrong with a key that is no setting, with the nearest one that is."""
    groups = {name: field.annotation for name, field in Settings.model_fields.items() if name != "root"}
    group = groups.get(path[0])
    known = getattr(group, "model_fields", {})
    if len(path) >= 2 and path[1] in known and (len(path) == 2 or path[:2] in FREE):
        return None
    every = [f"{g}.{key}" for g, model in groups.items() for key in getattr(model, "model_fields", {})]
    return "no such setting" + _near(".".join(path), every)


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
