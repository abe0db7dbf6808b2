"""The Spark session: one in a process, made from the settings, with everything that exact reads and writes rely on.

Classic (a JVM here) or Spark Connect, the same to everybody above. What it is set to is for `spark.conf` to say.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from py4j.protocol import Py4JError

from lakemill.errors import BadSettings, EngineLost, EngineUnreachable, MissingPart
from lakemill.settings import Settings
from lakemill.spark import executors, jars, java, s3
from lakemill.spark.conf import RUNTIME, launch_conf, runtime_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SECONDS = 10
RECYCLE_SECONDS = 10
NO_MASTER = "its master does not answer"

_session: SparkSession | None = None
_applied: Settings | None = None
_has_s3 = False
_lock = threading.RLock()
_thread = threading.local()


def start(settings: Settings) -> SparkSession:
    """The process's session, started where there is none; a running one gets the settings that still can be set.

    It is the session of the calling thread from then on.
    """
    with _lock:
        shared = _shared(settings)
        mine: Own | None = getattr(_thread, "own", None)
        found = shared if mine is None else mine.session(shared, settings)
        adopt(found)
        return found


def _shared(settings: Settings) -> SparkSession:
    global _session, _has_s3, _applied
    with _lock:
        if _session is not None and settings is _applied and _alive(_session):
            return _session  # asked for again and again, and each setting is a talk with the JVM
        if _session is None or not _alive(_session):
            remote = settings.spark.remote
            _session = _connect(remote) if remote.startswith("sc://") else _launch(settings)
            _has_s3 = settings.on_s3
        elif settings.on_s3 and not (_has_s3 or settings.spark.remote):
            raise MissingPart(
                "this process's Spark session was started for a lake on a local disk, without the jars for S3",
                remedy="open the lake on S3 in a process of its own, or before the other one",
            )
        _apply(_session, settings)
        _applied = settings
        return _session


def stop() -> None:
    """End the process's session, if there is one."""
    global _session
    with _lock:
        if _session is not None:
            _session.stop()
            _session = None


def recycle() -> None:
    """End the session and its JVM, dead, alive or neither: the next `start` has another. Nobody may be at work."""
    global _session
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if not _lock.acquire(timeout=RECYCLE_SECONDS):
        if process is not None:
            process.kill()  # somebody who was given up asks it for something, under the lock
        _lock.acquire()
    try:
        ending = threading.Thread(target=_say_goodbye, args=(_session, gateway), daemon=True)
        ending.start()
        ending.join(RECYCLE_SECONDS)
        _session = None
        if process is not None:
            process.stdin.close()  # what its JVM ends by
            try:
                process.wait(RECYCLE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        ending.join(RECYCLE_SECONDS)  # what it forgets must not be the next one's
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    finally:
        _lock.release()


def _say_goodbye(session: SparkSession | None, gateway: Any) -> None:
    """In a thread, since a JVM that hangs answers nothing until it is killed."""
    with suppress(Exception):  # whatever one that is gone answers
        if session is not None:
            session.stop()
    with suppress(OSError, Py4JError):
        if gateway is not None:
            gateway.shutdown()


@dataclass(slots=True)
class Own:
    """A thread's session, made when it is first asked for: its views and settings are nobody else's.

    The JVM, its cores and its memory are the process's, of which ``pool`` gets a fair share. On Spark Connect there is
    only the one session.
    """

    pool: str
    tag: str = ""
    """Of what it does from now on, by which `interrupt` stops it."""
    _of: SparkSession | None = None
    _mine: SparkSession | None = None
    _tagged: str = ""

    def session(self, shared: SparkSession, settings: Settings) -> SparkSession:
        if shared is not self._of:  # the first time, or the JVM is another one by now
            self._of, self._tagged = shared, ""
            if hasattr(shared, "is_stopped"):
                self._mine = shared
            else:
                self._mine = shared.newSession()
                _apply(self._mine, settings)
                shared.sparkContext.setLocalProperty("spark.scheduler.pool", self.pool)
                # a task that waits for something must not keep its core when its job is stopped
                shared.sparkContext.setLocalProperty("spark.job.interruptOnCancel", "true")
        assert self._mine is not None  # noqa: S101  (made with _of)
        if self.tag != self._tagged:
            self._swap_tag(self._mine)
        return self._mine

    def _swap_tag(self, mine: SparkSession) -> None:
        """In a JVM of our own the tags of a session are known to the thread that gave them alone: the context's are."""
        connect = hasattr(mine, "is_stopped")
        add, remove = (
            (mine.addTag, mine.removeTag) if connect else (mine.sparkContext.addJobTag, mine.sparkContext.removeJobTag)
        )
        if self._tagged:
            remove(self._tagged)
        if self.tag:
            add(self.tag)
        self._tagged = self.tag

    def interrupt(self, tag: str) -> None:
        """Stop what it does under this tag, from any thread: its jobs fail."""
        with suppress(Exception):  # what is gone needs no stopping
            if self._mine is None:
                return
            if hasattr(self._mine, "is_stopped"):
                self._mine.interruptTag(tag)
            else:
                self._mine.sparkContext.cancelJobsWithTag(tag)


def own(pool: str) -> Own:
    """The calling thread has a session of its own from here on."""
    _thread.own = Own(pool)
    return cast("Own", _thread.own)


def process() -> int | None:
    """Of the JVM that was started here; None where there is none."""
    from pyspark import SparkContext

    found = getattr(SparkContext._gateway, "proc", None)
    return None if found is None else int(found.pid)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the JVM is up, a second one ends it: PySpark by itself leaves one behind that never ends."""
    import pyspark.java_gateway

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = False
    launched: list[subprocess.Popen[bytes]] = []

    def launch(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        launched.append(subprocess.Popen(*words, **options))
        return launched[-1]

    def note(number: int, frame: object) -> None:
        nonlocal pressed
        if pressed and launched:  # twice: somebody means it
            for process in launched:
                process.kill()
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    gateway: Any = pyspark.java_gateway
    popen, gateway.Popen = gateway.Popen, launch
    try:
        yield
    except KeyboardInterrupt:
        recycle()
        raise
    finally:
        gateway.Popen = popen
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _launch(settings: Settings) -> SparkSession:
    from pyspark.sql import SparkSession

    java.prepare()
    # Python workers are started by name: without this, by whatever `python3` is on the PATH
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder
    builder = builder.remote(settings.spark.remote) if settings.spark.remote else builder.master(settings.spark.master)
    conf = launch_conf(settings)
    if settings.on_s3:
        files = jars.located(settings)
        files = tuple(sorted(jars.fetch().glob("*.jar"))) if files is None else files
        conf["spark.jars"] = ",".join(part for part in (conf.get("spark.jars"), *map(str, files)) if part)
    for key, value in conf.items():
        builder = builder.config(key, value)
    cause: Exception | None = None
    try:
        with _uninterrupted(), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Connect sets everything a second time, and warns about what only a launch can
            session = builder.getOrCreate()
        if _alive(session):
            if executors.has_executors(session):
                executors.watch(session, settings.spark.executor_wait)
            return session
        reason = NO_MASTER  # then it gives up, and leaves a session that is stopped
    except Exception as error:  # py4j's, gRPC's and PySpark's errors have no common root
        reason, cause = _reason(error), error
    raise EngineUnreachable(f"Spark did not start: {reason}") from cause


def _connect(url: str) -> SparkSession:
    from pyspark.sql import SparkSession

    place = urlsplit(url.partition(";")[0].replace("sc://", "tcp://", 1))
    try:  # the client itself would try for minutes
        socket.create_connection((place.hostname or "", place.port or 15002), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        cure = "check spark.remote, and that the Spark Connect server runs"
        told = f"Spark Connect at {place.hostname}:{place.port or 15002}: {error}"
        raise EngineUnreachable(told, remedy=cure) from error
    try:
        return SparkSession.builder.remote(url).getOrCreate()
    except Exception as error:  # gRPC's, of whatever answers there
        raise EngineUnreachable(f"Spark Connect at {place.hostname}:{place.port or 15002}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line that says something; of a session whose master did not answer, that."""
    if "stopped SparkContext" in str(error):  # it gave up meanwhile
        return NO_MASTER
    lines = [line.strip(": ") for line in str(error).splitlines() if not line.startswith("An error occurred while")]
    return next((line for line in lines if line), type(error).__name__)


def adopt(session: Any) -> None:
    """Make it the calling thread's session.

    Spark asks the thread for its configuration in places where it could ask the session, in `groupBy().agg()` for one;
    a thread that has not started the session has none, and Spark's defaults are used: no TIME, the machine's time zone.
    """
    if not hasattr(session, "is_stopped"):  # not Spark Connect, which has no such place
        of_threads = session._get_j_spark_session_class(session._jvm)
        of_threads.setActiveSession(session._jsparkSession)


def _apply(session: SparkSession, settings: Settings) -> None:
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # where PySpark writes what it also raises
        PySparkLogger.getLogger(name).disabled = settings.spark.log_level == "off"
    conf = runtime_conf(settings)
    if settings.on_s3:
        hadoop = s3.runtime_conf(settings)
        if not settings.spark.remote:  # for every session of this JVM, `newSession()` included
            shared = session.sparkContext._jsc.hadoopConfiguration()
            for key, value in hadoop.items():
                shared.set(key, value)
        conf = hadoop | conf
    launched = launch_conf(settings) if not settings.spark.remote.startswith("sc://") else {}
    for key, value in conf.items():
        if session.conf.get(key, None) == value:
            continue
        try:
            session.conf.set(key, value)
        except Exception as error:
            if key in RUNTIME or key not in launched:
                raise BadSettings(
                    f"{key} can't be set on this Spark session: {str(error).splitlines()[0]}", place="spark.conf"
                ) from error


def _alive(session: Any) -> bool:
    if hasattr(session, "is_stopped"):  # Spark Connect
        return not session.is_stopped
    try:
        return session.sparkContext._jsc is not None and not session.sparkContext._jsc.sc().isStopped()
    except (OSError, Py4JError) as error:
        raise EngineLost("Spark's JVM is gone", remedy="start this process again") from error
