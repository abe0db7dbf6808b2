"""Makes a lake: a folder with `lakemill.toml`, a catalog in PostgreSQL, a data path that can be written.

Everything is checked before anything is made, the settings file comes last, and a failure on the way takes back what
this call made. A database that holds a lake already is adopted as it is; a catalog in a file is moved
(`lake/transfer.py`). Behind `lakemill init` and the demo.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakemill.errors import BadArgument, LakeExists, NoLake, StoreUnavailable, Unwritable
from lakemill.lake import duck
from lakemill.lake.catalog import reading
from lakemill.lake.storage import PROBE, Storage, open_storage
from lakemill.lake.transfer import Moved, move_catalog
from lakemill.settings import FILE_NAME, Settings
from lakemill.store import db
from lakemill.store.embedded import EmbeddedPostgres
from lakemill.store.migrate import migrate

# Inlined rows and deletion vectors are what Spark can't read in parallel; stock DuckDB reads a lake without them alike.
OPTIONS: Mapping[str, Any] = {
    "data_inlining_row_limit": 0,
    "write_deletion_vectors": False,
    "parquet_compression": "zstd",
}
_OPTIONS = {"lake.data_path": "--data-path", "lake.postgres": "--postgres"}
HEADER = "# A lake of Lakemill. `lakemill doctor` checks it; docs/reference/settings.md lists every setting.\n"


@dataclass(frozen=True, slots=True)
class Created:
    """The lake that is there now; `how` is created, adopted or moved."""

    how: str
    root: Path
    settings: Settings
    data_path: str
    moved: Moved | None = None


def create_lake(root: Path, flags: Mapping[str, object] | None = None, source: Path | None = None) -> Created:
    """Make `root` the folder of a lake with these settings; `source` is a catalog file to move."""
    root = root.expanduser().resolve()
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    if (root / FILE_NAME).exists():
        raise LakeExists(f"{root} is the folder of a lake already", remedy="use it, or choose another folder")
    # from the top of the file system, so that a lake around this folder does not lend it its settings
    settings = Settings.load(Path(root.anchor), given, _OPTIONS).model_copy(update={"root": root})
    with ExitStack() as undo:
        _folder(root, undo)
        _require_writable(root)
        dsn = settings.lake.postgres or _embedded(settings, undo)
        how, data_path, moved = _catalog(settings, dsn, "lake.data_path" in given, source, undo)
        with db.connect(dsn) as conn:
            migrate(conn, settings.lake.catalog_schema)
        given["lake.data_path"] = settings.lake.data_path if data_path == settings.data_path else data_path
        _write_settings(root / FILE_NAME, given)
        undo.pop_all()
    return Created(how, root, Settings.load(root / FILE_NAME), data_path, moved)


# ---------------------------------------------------------------- the catalog
def _catalog(
    settings: Settings, dsn: str, path_given: bool, source: Path | None, undo: ExitStack
) -> tuple[str, str, Moved | None]:
    """How the lake came about, where its data is, and what was moved."""
    there = _existing(settings, dsn)
    if there is not None and source is not None:
        raise LakeExists(
            f"PostgreSQL at {db.where(dsn)} holds a lake already, so none can be moved there",
            place="--from",
            remedy="name an empty database, or another lake.catalog_schema",
        )
    if there is not None:
        if path_given and there != settings.data_path:
            raise LakeExists(
                f"the lake in this database has its data in {there}, not in {settings.data_path}",
                place="--data-path",
                remedy="leave --data-path out to use that lake, or name an empty database",
            )
        return "adopted", there, None
    if source is not None:
        if path_given:
            raise BadArgument(
                "a moved lake's files stay where they are", place="--data-path", remedy="leave --data-path out"
            )
        moved = move_catalog(settings, dsn, source)
        return "moved", moved.data_path, moved
    storage = open_storage(settings.data_path, settings.s3)
    if not settings.on_s3:
        _folder(Path(storage.root), undo)
    _require_empty(storage)
    storage.check_writable()
    with duck.connect(settings, dsn, create=True, inline=0) as connection, duck.explained():
        for option, value in OPTIONS.items():
            connection.execute(f"CALL {duck.LAKE}.set_option(?, ?)", [option, value])
    return "created", settings.data_path, None


def _existing(settings: Settings, dsn: str) -> str | None:
    """The data path of the lake that the database holds, if any; one that we can't use is refused."""
    with _connected(settings, dsn) as conn:
        try:
            with reading(conn, settings.lake.catalog_schema) as catalog:
                return catalog.data_path
        except NoLake:
            return None


def _connected(settings: Settings, dsn: str) -> db.Connection:
    try:
        return db.connect(dsn, connect_timeout=settings.lake.connect_seconds)
    except StoreUnavailable as error:
        if re.search(r'database "[^"]*" does not exist', error.message):
            error.remedy = "create the database first; its owner should be the user that the DSN names"
        raise


def _embedded(settings: Settings, undo: ExitStack) -> str:
    server = EmbeddedPostgres(settings.embedded_dir)
    if not settings.embedded_dir.exists():
        _folder(settings.embedded_dir.parent, undo)
        undo.callback(server.remove)
    return server.start()


# ---------------------------------------------------------------- places
def _folder(folder: Path, undo: ExitStack) -> None:
    """Make a folder, and those above it; on failure remove those that were made and are still empty."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        try:
            place.mkdir(exist_ok=True)
        except OSError as error:
            raise Unwritable(f"the folder {folder} can't be made: {error.strerror}") from error
        undo.callback(_remove_empty, place)
    if not folder.is_dir():
        raise Unwritable(f"{folder} is not a folder", remedy="choose another place")


def _remove_empty(folder: Path) -> None:
    for probe in folder.glob(f"{PROBE}*"):  # a check of the data path that was interrupted
        probe.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _require_writable(folder: Path) -> None:
    probe = folder / f".lakemill-{secrets.token_hex(4)}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Unwritable(
            f"the folder {folder} can't be written: {error.strerror}", remedy="choose another folder"
        ) from error


def _require_empty(storage: Storage) -> None:
    """Two lakes on one data path would take each other's files for orphans."""
    found = next(iter(storage.list()), None)
    if found is not None:
        raise LakeExists(
            f"the data path {storage.root} is not empty ({found.path.removeprefix(storage.root)})",
            place="lake.data_path",
            remedy="choose an empty one: a lake removes files there that it does not know",
        )


# ---------------------------------------------------------------- the settings file
def settings_text(given: Mapping[str, object]) -> str:
    """The file's text: one table a group, only what was given; JSON's strings are TOML's."""
    groups: dict[str, list[str]] = {}
    for key, value in sorted(given.items()):
        group, _, name = key.partition(".")
        words = json.dumps(value if isinstance(value, bool | int | float) else str(value), ensure_ascii=False)
        quoted = name if name.replace("_", "").isalnum() and name.isascii() else json.dumps(name)
        groups.setdefault(group, []).append(f"{quoted} = {words}")
    tables = [f"\n[{group}]\n" + "".join(f"{line}\n" for line in lines) for group, lines in groups.items()]
    return HEADER + "".join(tables)


def _write_settings(file: Path, given: Mapping[str, object]) -> None:
    """Whole or not at all, and never over a file that somebody else made meanwhile; only for its owner to read."""
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(settings_text(given))
        os.link(fresh, file)
    except FileExistsError as error:
        raise LakeExists(f"{file.parent} became the folder of another lake meanwhile") from error
    except OSError as error:
        raise Unwritable(f"{file} can't be written: {error.strerror}", remedy="choose another folder") from error
    finally:
        fresh.unlink(missing_ok=True)
