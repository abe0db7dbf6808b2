"""The jars that Spark lacks for S3: which, where they are, and how they get there. Fifteen megabytes.

`hadoop-aws` asks for the whole AWS bundle (686 MB); the five modules that are really used are named instead, and what
Spark brings itself is left out. They come from `spark.packages_dir` (machines without a network), from pyspark's own
folder (images that bake them in), or once from Maven by Spark's own resolver, into Lakemill's cache. Used by
`spark.session` for lakes on S3, and by `doctor`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lakemill.errors import MissingPart
from lakemill.settings import Settings
from lakemill.spark import java

HADOOP = "3.4.2"  # the Hadoop inside pyspark 4.1; another pyspark is asked for its own
AWS = "2.29.52"  # the SDK that this Hadoop was built with
COMMITTERS = "4.1.2"
EXCLUDES = (
    "software.amazon.awssdk:bundle",
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.dataformat:*",
    "com.google.cloud.bigdataoss:*",
    "com.google.guava:*",
    "com.huaweicloud:*",
    "com.squareup.okhttp3:*",
    "com.squareup.okio:*",
    "commons-codec:*",
    "commons-logging:*",
    "io.netty:*",
    "joda-time:*",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-azure-datalake",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-common",
    "org.apache.hadoop:hadoop-gcp",
    "org.apache.hadoop:hadoop-huaweicloud",
    "org.apache.httpcomponents:*",
    "org.apache.httpcomponents.client5:*",
    "org.eclipse.jetty:*",
    "org.scala-lang:*",
    "org.slf4j:*",
)
FETCH_SECONDS = 900


def packages() -> tuple[str, ...]:
    """Their Maven names, for the Hadoop of the pyspark that is installed; what a person would fetch by hand."""
    found = [jar.stem.rpartition("-")[2] for jar in _spark_jars().glob("hadoop-client-api-*.jar")]
    hadoop = found[0] if found else HADOOP
    sdk = ("s3-transfer-manager", "s3", "sts", "apache-client", "netty-nio-client")
    modules = tuple(f"software.amazon.awssdk:{module}:{AWS}" for module in sdk)
    committers = f"org.apache.spark:spark-hadoop-cloud_2.13:{COMMITTERS}"
    return (f"org.apache.hadoop:hadoop-aws:{hadoop}", *modules, committers)


def located(settings: Settings) -> tuple[Path, ...] | None:
    """The jars for `spark.jars`: none when pyspark has them itself, None when they have to be fetched first."""
    folder = settings.spark.packages_dir
    if folder is not None:
        folder = settings.root / folder.expanduser()
        lacking = missing(folder)
        if lacking:
            raise MissingPart(
                f"{folder} lacks the jars {', '.join(lacking)}",
                remedy="`lakemill doctor` names every jar; fetch them on a machine with a network and copy them there",
                place="spark.packages_dir",
            )
    elif not missing(_spark_jars()):
        return ()
    else:
        folder = cache()
        if missing(folder):
            return None
    return tuple(sorted(jar.resolve() for jar in folder.glob("*.jar")))


def missing(folder: Path) -> tuple[str, ...]:
    """Which of the named packages a folder has no jar of."""
    names = [jar.name for jar in folder.glob("*.jar")]
    wanted = [tuple(name.split(":")[1:]) for name in packages()]
    return tuple(f"{module}-{version}.jar" for module, version in wanted if not _has(names, f"{module}-{version}.jar"))


def _has(names: list[str], jar: str) -> bool:
    return any(name == jar or name.endswith(f"_{jar}") for name in names)  # Ivy puts the group before it


def cache() -> Path:
    """Where fetched jars stay, by the versions of all of them."""
    key = hashlib.sha256("\n".join((*packages(), *EXCLUDES)).encode()).hexdigest()[:12]
    return java.cache_folder() / f"s3-jars-{key}"


def fetch() -> Path:
    """Let Spark's resolver fetch the jars, in a JVM of its own that ends at once; the folder they are in."""
    target = cache()
    java.prepare()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as folder:
        nothing = Path(folder) / "nothing.py"
        nothing.write_text("")
        submit = _spark_jars().parent / "bin" / "spark-submit"
        conf = {"spark.jars.packages": ",".join(packages()), "spark.jars.excludes": ",".join(EXCLUDES)}
        conf |= {"spark.jars.ivy": str(Path(folder) / "ivy"), "spark.driver.host": "127.0.0.1"}
        words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        try:
            done = subprocess.run(
                ["bash", submit, *words, nothing],
                env=environment,
                capture_output=True,
                text=True,
                timeout=FETCH_SECONDS,
                check=False,
            )
            said = done.stderr + done.stdout
        except subprocess.TimeoutExpired:
            said = f"no answer in {FETCH_SECONDS} s"
        fetched = Path(folder) / "ivy" / "jars"
        if missing(fetched):
            raise MissingPart(
                f"the jars that Spark needs for S3 could not be fetched: {_why(said)}",
                remedy="give Spark a way to Maven, or put the jars that `lakemill doctor` names in spark.packages_dir",
            )
        try:
            fetched.rename(target)
        except OSError:  # somebody else was first, or left half of it
            if missing(target):
                shutil.rmtree(target, ignore_errors=True)
                fetched.rename(target)
    return target


def _why(said: str) -> str:
    telling = ("Host ", "Server access", "no answer", "unresolved dependency", "Exception in thread")
    lines = [line.strip(" \t:") for line in said.splitlines()]
    return next((line for mark in telling for line in lines if mark in line), lines[-1] if lines else "no reason given")


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or []
    return Path(next(iter(places), ".")) / "jars"
