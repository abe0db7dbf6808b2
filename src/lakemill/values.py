"""What people write as values of settings: durations, sizes, lists, addresses; each as the type that it means.

Texts in, values out, with a message for a person where it can't be. `lakemill/settings.py` says which setting is what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
}
_UNITS |= {"d": 86400, "day": 86400, "w": 604800, "week": 604800}
_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
FREE = (("spark", "conf"), ("spark", "profiles"), ("upkeep", "policies"))
"""Settings with keys of their own: Spark's, or names of tables."""
WINDOW = r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d"
_SCOPE = re.compile(r'("([^"]|"")+"|[^".]+)(\.("([^"]|"")+"|[^".]+))?')
_MASTER = re.compile(r"yarn|local(\[(\*|[1-9]\d*)( *, *\d+)?\]|-cluster\[[\d, ]+\])?|(spark|k8s)://.+")
LAUNCH = (
    "spark.sql.cache.serializer",
    "spark.sql.catalogImplementation",
    "spark.sql.codegen.cache.maxEntries",
    "spark.sql.event.",
    "spark.sql.extensions",
    "spark.sql.filesourceTableRelationCacheSize",
    "spark.sql.globalTempDatabase",
    "spark.sql.hive.",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
)
"""Settings of Spark SQL, or how they begin, that a running session refuses."""
ANSWERS = frozenset(
    {
        "spark.sql.ansi.enabled",
        "spark.sql.caseSensitive",
        "spark.sql.constraintPropagation.enabled",
        "spark.sql.execution.arrow.pyspark.enabled",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.optimizer.excludedRules",
        "spark.sql.optimizer.nestedSchemaPruning.enabled",
        "spark.sql.parquet.datetimeRebaseModeInRead",
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "spark.sql.parquet.fieldId.read.enabled",
        "spark.sql.parquet.fieldId.write.enabled",
        "spark.sql.parquet.int96RebaseModeInRead",
        "spark.sql.parquet.int96TimestampConversion",
        "spark.sql.parquet.outputTimestampType",
        "spark.sql.parquet.writeLegacyFormat",
        "spark.sql.session.timeZone",
        "spark.sql.timeType.enabled",
    }
)
"""What the session sets so that results are right (``spark/session``)."""
_SIZES |= {"k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_duration(value: object) -> object:
    """``'2 days'``, ``'1 h 30 min'``, ``'250ms'``; a bare number is seconds."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    text = str(value).strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return timedelta(seconds=float(text))
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?\s*", text)
    if not parts or re.sub(r"\d+(?:\.\d+)?\s*[a-z]+\s*,?\s*", "", text):
        raise ValueError("not a duration; write it like '2 days', '30 minutes' or '5s'")
    seconds = 0.0
    for number, unit in parts:
        known = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if known is None:
            raise ValueError(f"'{unit}' is not a unit of time; use s, minutes, hours, days or weeks")
        seconds += float(number) * known
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("longer than anything lasts") from None


def parse_size(value: object) -> object:
    """``'512MB'`` (powers of ten, as in DuckDB), ``'512MiB'`` or ``'512m'`` (powers of two); a number is bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip().lower())
    if match is None or match[2] not in _SIZES:
        raise ValueError("not a size; write it like '512MB' or '1GiB'")
    return int(float(match[1]) * _SIZES[match[2]])


def parse_conf(value: object) -> object:
    """Spark's configuration: TOML reads `a.b = 1` as nested tables and numbers; Spark wants flat text."""
    if not isinstance(value, Mapping):
        return value
    return {".".join(path): _spark_text(leaf) for path, leaf in leaves(value)}


def parse_profiles(value: object) -> object:
    """``{"wide": {"spark.sql.shuffle.partitions": 400}}``, or with the profile's name as first word of a flat key."""
    if not isinstance(value, Mapping):
        return value
    found: dict[str, dict[str, object]] = {}
    for path, leaf in value.items():
        name, _, key = str(path).partition(".")
        conf = parse_conf(leaf if not key else {key: leaf})
        if not name or not isinstance(conf, Mapping):
            raise ValueError(f"'{path}' is no profile; write [spark.profiles.NAME] and Spark's settings below it")
        for one in conf:
            _require_runtime(name, one)
        found[name] = {**found.get(name, {}), **conf}
    return found


def _require_runtime(profile: str, key: str) -> None:
    """A profile is put on a session that runs, for one refresh: it may change how fast an answer is, and no answer."""
    if key in ANSWERS:
        raise ValueError(f"profile '{profile}' sets {key}, on which the rows of the answer depend; leave it out")
    if not key.startswith("spark.sql.") or key.startswith(LAUNCH):
        raise ValueError(
            f"profile '{profile}' sets {key}, which only a JVM that starts can take; write it into [spark.conf]"
        )


def _spark_text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _place_of_data(value: str) -> str:
    if re.match(r"s3a?:", value, re.IGNORECASE) and not re.match(r"s3a?://[^/]", value):
        raise ValueError(f"'{value}' names no bucket; write s3://bucket/prefix")
    return value


def _spark_master(value: str) -> str:
    if not _MASTER.fullmatch(value):
        raise ValueError(f"'{value}' is no Spark master; write local[*], spark://host:port, yarn or k8s://…")
    return value


def _not_off(value: timedelta) -> timedelta:
    if value < timedelta(milliseconds=1):
        raise ValueError("a timeout of 0 would be none: write at least 1ms")
    return value


def parse_jobs(value: object) -> object:
    """``'compact, cleanup'``: some of the jobs of upkeep."""
    words = [word.strip() for word in str(value).split(",") if word.strip()]
    unknown = set(words) - {"flush", "compact", "expire", "cleanup", "orphans"}
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: not among flush, compact, expire, cleanup, orphans")
    return ", ".join(words)


def parse_policies(value: object) -> object:
    """``{"sales": {"window": "01:00-05:00"}}``; TOML reads `sales.orders.window = …` as tables in tables."""
    if not isinstance(value, Mapping):
        return value
    found: dict[str, dict[str, object]] = {}
    for path, leaf in leaves(value):
        name, _, key = ".".join(path).rpartition(".")
        if not _SCOPE.fullmatch(name):
            wanted = 'write [upkeep.policies.sales] or [upkeep.policies."sales.orders"] and its settings below it'
            raise ValueError(f"'{name or key}' is no schema and no table; {wanted}")
        found.setdefault(name, {})[key] = leaf
    spelled: dict[str, str] = {}
    for name in found:
        if (other := spelled.setdefault(name.lower(), name)) != name:
            raise ValueError(f"'{other}' and '{name}' are the same name")
    return found


def leaves(tree: Mapping[str, object], above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    found: list[tuple[tuple[str, ...], object]] = []
    for key, value in tree.items():
        path = (*above, key)
        if isinstance(value, Mapping) and path not in FREE:
            found += leaves(value, path)
        else:
            found.append((path, value))
    return found


class Group(BaseModel):
    """Settings that belong together; made once, and checked, defaults too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


Duration = Annotated[timedelta, BeforeValidator(parse_duration), Field(ge=timedelta(0))]
Timeout = Annotated[timedelta, BeforeValidator(parse_duration), AfterValidator(_not_off)]
Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]
Conf = Annotated[dict[str, str], BeforeValidator(parse_conf)]
Profiles = Annotated[dict[str, dict[str, str]], BeforeValidator(parse_profiles)]
Jobs = Annotated[str, BeforeValidator(parse_jobs)]
Place = Annotated[str, AfterValidator(_place_of_data)]
Master = Annotated[str, AfterValidator(_spark_master)]
