"""How another program gets at the lake: the statements that a DuckDB client of the right version needs.

They come from the same functions with which Lakemill itself attaches; with secrets masked they are for reading, and
with secrets they work as they are. Runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemill.lake import duck
from lakemill.settings import without_password

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake

MASK = "***"


def attach_script(lake: Lake, *, at: int | None = None, read_only: bool = False, secrets: bool = False) -> list[str]:
    """INSTALL and LOAD, the S3 secret where there is one, ATTACH and USE."""
    settings = lake.settings
    names = ["ducklake", "postgres", *(["httpfs"] if settings.on_s3 else [])]
    statements = [f"{verb} {name}" for name in names for verb in ("INSTALL", "LOAD")]
    if settings.on_s3:
        statements.append(_secret(lake, secrets))
    if at is not None:
        # stock DuckDB can answer wrongly about the past with it
        statements.append("SET disabled_optimizers = 'statistics_propagation'")
    attach = duck.attach_statement(lake.dsn, settings.lake.catalog_schema, at=at, read_only=read_only)
    statements += [attach if secrets else without_password(attach), f"USE {duck.LAKE}"]
    return statements


def _secret(lake: Lake, shown: bool) -> str:
    statement = duck.s3_secret(lake.settings)
    if shown:
        return statement
    s3 = lake.settings.s3
    for hidden in (s3.secret_access_key.get_secret_value(), s3.session_token.get_secret_value()):
        if hidden:
            statement = statement.replace(duck.literal(hidden), duck.literal(MASK))
    return statement
