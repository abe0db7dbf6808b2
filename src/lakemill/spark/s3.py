"""Spark's configuration for a lake on S3, as values: `fs.s3a`, and the committer that never renames.

`spark.session` puts them into the session. Credentials are never part of what a JVM is launched with, since every user
of a machine can read a command line; they are set when the session is there. Nothing here talks to S3 or starts Spark.
"""

from __future__ import annotations

from datetime import timedelta

from lakemill.settings import Settings


def launch_conf(settings: Settings) -> dict[str, str]:
    """What must be there when the session starts: how files are committed."""
    cloud = "org.apache.spark.internal.io.cloud"
    conf = {
        "spark.sql.sources.commitProtocolClass": f"{cloud}.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": f"{cloud}.BindingParquetOutputCommitter",
    }
    return conf | {f"spark.hadoop.{key}": value for key, value in _plain_conf(settings).items()}


def runtime_conf(settings: Settings) -> dict[str, str]:
    """What a session of any kind takes at any time before a bucket is first used; credentials included."""
    s3 = settings.s3
    conf = _plain_conf(settings)
    if s3.access_key_id:
        token = s3.session_token.get_secret_value()
        provider = "TemporaryAWSCredentialsProvider" if token else "SimpleAWSCredentialsProvider"
        conf["fs.s3a.aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{provider}"
        conf["fs.s3a.access.key"] = s3.access_key_id
        conf["fs.s3a.secret.key"] = s3.secret_access_key.get_secret_value()
        if token:
            conf["fs.s3a.session.token"] = token
    return conf


def _plain_conf(settings: Settings) -> dict[str, str]:
    s3 = settings.s3
    conf = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint.region": s3.region,
        "fs.s3a.path.style.access": str(s3.path_style).lower(),
        "fs.s3a.connection.ssl.enabled": str(s3.use_ssl).lower(),
        "fs.s3a.connection.establish.timeout": _milliseconds(s3.connect_timeout),
        # Hadoop raises what is below 15 s to that
        "fs.s3a.connection.timeout": _milliseconds(s3.read_timeout),
        "fs.s3a.connection.request.timeout": _milliseconds(s3.read_timeout),
        "fs.s3a.attempts.maximum": "1",  # inside the SDK; each of Hadoop's own retries below repeats them
        "fs.s3a.retry.limit": str(s3.retries),
        "fs.s3a.retry.interval": "200ms",
        "fs.s3a.retry.throttle.limit": str(s3.retries),
        "fs.s3a.retry.throttle.interval": "200ms",
        "fs.s3a.committer.name": "magic",
        "fs.s3a.committer.magic.track.commits.in.memory.enabled": "true",  # 45 requests for a small write, not 61
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    for scheme in ("s3", "s3a"):
        factory = f"mapreduce.outputcommitter.factory.scheme.{scheme}"
        conf[factory] = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    if s3.endpoint:
        conf["fs.s3a.endpoint"] = s3.endpoint_url
    if s3.kms_key_id:
        conf |= {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": s3.kms_key_id}
    return conf


def _milliseconds(value: timedelta) -> str:
    return str(max(1, round(value.total_seconds() * 1000)))
