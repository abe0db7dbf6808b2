"""`lakemill init`: make a lake, adopt one, or move one from a catalog file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format
from lakemill.settings import without_password


def command(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The lake's folder; made where there is none.")
    ] = None,
    data_path: Annotated[
        str | None,
        typer.Option(metavar="PATH|s3://…", help="Where the Parquet files go; DIR/data by default."),
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="The PostgreSQL (15 or newer) for the catalog; an embedded one by default."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Move the lake whose catalog is this DuckDB or SQLite file, with all its snapshots.",
        ),
    ] = None,
    format_: FormatOption = None,
) -> None:
    """Make a lake, adopt one, or move one to PostgreSQL.

    A lake is a folder with a settings file, a catalog in PostgreSQL, and a place for Parquet files.

    A database that holds a lake already is used as it is. With `--from`, the catalog is copied to PostgreSQL and
    compared snapshot by snapshot; the data files stay where they are.

        lakemill init my-lake
        lakemill init my-lake --data-path s3://bucket/lake --postgres "host=db dbname=lake"
        lakemill init my-lake --from metadata.ducklake
    """
    from lakemill.runtime.create import create_lake

    common = given(context)
    output = common.output(format_)
    flags = {**common.flags, "lake.data_path": data_path, "lake.postgres": postgres}
    place = folder or common.folder or Path()
    created = create_lake(place, flags, source)
    record: dict[str, Any] = {
        "lake": created.how,
        "folder": str(created.root),
        "data_path": created.data_path,
        "postgres": without_password(created.settings.lake.postgres) or f"embedded, in {created.settings.embedded_dir}",
    }
    if created.moved is not None:
        moved = created.moved
        record |= {"moved_from": str(source), "snapshots": moved.snapshots, "tables": moved.tables}
        record |= {"reads_compared": f"{moved.compared} of {moved.reads}, all equal"}
    output.record(record)
    if created.moved is not None:
        output.remark(f"{source} was left as it is; don't write through it any more: both name the same data files")
    if output.format is Format.TABLE:
        then = "tables" if created.how != "created" else 'sql "CREATE TABLE t AS SELECT 1 AS id"'
        output.remark(f"next: lakemill -C {place} {then}")
