"""What Spark needs for a lake on S3: eighteen megabytes of jars, where to find them, and the `s3a` configuration.

Values only: `spark.session` puts them into the session, `doctor` prints them. The whole AWS bundle (686 MB) that
`hadoop-aws` asks for is left out in favour of the five modules that are used. Commits go through the magic committer,
which never renames. Nothing here talks to S3 or starts Spark.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from lakemill.settings import Settings

HADOOP = "3.4.2"  # the Hadoop inside pyspark 4.1
AWS = "2.29.52"  # the SDK that this Hadoop was built with
COMMITTERS = "4.1.2"
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:{hadoop}",
    f"software.amazon.awssdk:s3-transfer-manager:{AWS}",
    f"software.amazon.awssdk:s3:{AWS}",
    f"software.amazon.awssdk:sts:{AWS}",
    f"software.amazon.awssdk:apache-client:{AWS}",
    f"software.amazon.awssdk:netty-nio-client:{AWS}",
    f"org.apache.spark:spark-hadoop-cloud_2.13:{COMMITTERS}",
)
EXCLUDES = (
    "software.amazon.awssdk:bundle",
    "org.slf4j:slf4j-api",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-azure-datalake",
    "org.apache.hadoop:hadoop-gcp",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-common",
    "com.google.cloud.bigdataoss:gcs-connector",
    "com.fasterxml.jackson.core:*",
    "com.google.guava:*",
    "joda-time:joda-time",
    "org.apache.httpcomponents.client5:*",
    "org.scala-lang:*",
    "org.eclipse.jetty:*",
    "commons-*:*",
)
NEEDED = ("hadoop-aws", "s3-transfer-manager", "spark-hadoop-cloud_2.13")  # a folder with these is taken as complete


def packages() -> tuple[str, ...]:
    """Maven names of the jars, for the Hadoop of the pyspark that is installed."""
    return tuple(name.format(hadoop=_hadoop_version()) for name in PACKAGES)


def jar_conf(settings: Settings) -> dict[str, str]:
    """How a new session gets the jars: from `spark.packages_dir`, from pyspark itself, or by Spark's own resolver."""
    if not missing(_spark_jars()):
        return {}
    folder = settings.spark.packages_dir
    if folder is not None:
        return {"spark.jars": ",".join(sorted(str(jar.resolve()) for jar in (settings.root / folder).glob("*.jar")))}
    return {"spark.jars.packages": ",".join(packages()), "spark.jars.excludes": ",".join(EXCLUDES)}


def missing(folder: Path) -> tuple[str, ...]:
    """Which of the telling jars a folder lacks; empty when it can serve."""
    names = [jar.name for jar in folder.glob("*.jar")]
    return tuple(need for need in NEEDED if not any(need in name for name in names))


def launch_conf(settings: Settings) -> dict[str, str]:
    """Configuration that must be there when the session starts."""
    conf = jar_conf(settings) | {f"spark.hadoop.{key}": value for key, value in runtime_conf(settings).items()}
    for scheme in ("s3", "s3a"):
        factory = f"spark.hadoop.mapreduce.outputcommitter.factory.scheme.{scheme}"
        conf[factory] = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    conf["spark.sql.sources.commitProtocolClass"] = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
    conf["spark.sql.parquet.output.committer.class"] = (
        "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
    )
    return conf


def runtime_conf(settings: Settings) -> dict[str, str]:
    """Hadoop's `fs.s3a` configuration; a session of any kind takes it at any time before the bucket is first used."""
    s3 = settings.s3
    milliseconds = {name: str(max(1, round(value.total_seconds() * 1000))) for name, value in {
        "fs.s3a.connection.establish.timeout": s3.connect_timeout,
        "fs.s3a.connection.timeout": s3.read_timeout,
    }.items()}  # fmt: skip
    conf = milliseconds | {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint.region": s3.region,
        "fs.s3a.path.style.access": str(s3.path_style).lower(),
        "fs.s3a.connection.ssl.enabled": str(s3.use_ssl).lower(),
        "fs.s3a.attempts.maximum": str(s3.retries + 1),
        "fs.s3a.retry.limit": str(s3.retries),
        "fs.s3a.retry.interval": "200ms",
        "fs.s3a.committer.name": "magic",
    }
    if s3.endpoint:
        conf["fs.s3a.endpoint"] = s3.endpoint_url
    if s3.access_key_id:
        token = s3.session_token.get_secret_value()
        provider = "TemporaryAWSCredentialsProvider" if token else "SimpleAWSCredentialsProvider"
        conf["fs.s3a.aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{provider}"
        conf["fs.s3a.access.key"] = s3.access_key_id
        conf["fs.s3a.secret.key"] = s3.secret_access_key.get_secret_value()
        if token:
            conf["fs.s3a.session.token"] = token
    if s3.kms_key_id:
        conf |= {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": s3.kms_key_id}
    return conf


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or []
    return Path(next(iter(places), ".")) / "jars"


def _hadoop_version() -> str:
    jars = [jar.stem for jar in _spark_jars().glob("hadoop-client-api-*.jar")]
    return jars[0].rpartition("-")[2] if jars else HADOOP
