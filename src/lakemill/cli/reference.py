"""Writes `docs/reference/`: every command, endpoint, setting, error code and table of ours, from the code itself.

`make docs` runs it, and a test holds the pages to it, so that no option, setting or code can go undocumented.
    python -m lakemill.cli.reference docs/reference
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from lakemill import errors
from lakemill.api.app import ROUTERS
from lakemill.api.problems import status_of
from lakemill.cli.main import commands
from lakemill.core import schema
from lakemill.lake.scan import Recorded
from lakemill.settings import ENV_PREFIX, Settings
from lakemill.store.migrate import migrations
from lakemill.store.queries import load_queries
from lakemill.telemetry import metrics
from lakemill.values import parse_size

NOTE = "<!-- Written by `make docs` from the code; edit the code instead. -->\n"


def pages() -> Mapping[str, str]:
    """File name → text."""
    return {
        "cli.md": cli_page(),
        "api.md": api_page(),
        "python.md": python_page(),
        "settings.md": settings_page(),
        "errors.md": errors_page(),
        "types.md": types_page(),
        "metadata.md": metadata_page(),
        "metrics.md": metrics.reference(),
    }


# ---------------------------------------------------------------- commands
def cli_page() -> str:
    parts = [
        "# The command line\n",
        NOTE,
        "Rows go to standard output, remarks and errors to standard error. `--format` and `--dir` may stand before the "
        "command; `--format` after it too. Exit codes: 0 done, 1 `doctor` found something wrong, 130 interrupted, "
        "and those of [errors.md](errors.md).\n",
    ]
    for path, text in _helps():
        parts.append(f"## {path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _helps() -> Iterator[tuple[str, str]]:
    root: Any = typer.main.get_command(commands)
    yield "lakemill", _help(root, "lakemill", None)
    context = root.make_context("lakemill", [], resilient_parsing=True)
    for name, command in root.commands.items():
        yield f"lakemill {name}", _help(command, name, context)
        if hasattr(command, "commands"):
            inner = command.make_context(name, [], parent=context, resilient_parsing=True)
            for below, leaf in command.commands.items():
                yield f"lakemill {name} {below}", _help(leaf, below, inner)


def _help(command: Any, name: str, parent: Any) -> str:
    context = command.make_context(
        name, [], parent=parent, resilient_parsing=True, terminal_width=100, max_content_width=100
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())


# ---------------------------------------------------------------- HTTP
def api_page() -> str:
    parts = [
        "# The HTTP API\n",
        NOTE,
        "`lakemill api`, and `lakemill serve`. [How to use it](../how-to/api.md); bodies, parameters and answers are "
        "described at `/docs` and `/openapi.json` of a running service, errors in [errors.md](errors.md). `/healthz`, "
        "`/readyz` and `/metrics` need no key.\n",
        "| method | path | what it does |\n|---|---|---|",
    ]
    for route in (route for module in ROUTERS for route in module.router.routes):
        about = (inspect.getdoc(route.endpoint) or "").partition("\n")[0]
        methods = ", ".join(sorted(route.methods))
        parts.append(f"| {methods} | `{route.path}` | {about} |")
    return "\n".join([*parts, ""])


# ---------------------------------------------------------------- Python
def python_page() -> str:
    from lakemill import client
    from lakemill.lake.publish import Published
    from lakemill.runtime import open as runtime
    from lakemill.runtime.dynamic import Created
    from lakemill.runtime.explain import Explained
    from lakemill.runtime.point import Placed, Point
    from lakemill.runtime.show import Described, Shown
    from lakemill.runtime.verify import Verified
    from lakemill.store.definitions import DynamicTable
    from lakemill.store.history import RefreshRecord
    from lakemill.store.points import KeptPoint

    parts = [
        "# Python\n",
        NOTE,
        '```python\nimport lakemill\n\nlake = lakemill.open("my-lake")\n```\n',
        "Everything is typed; errors are exceptions of one tree, `lakemill.errors.LakemillError` "
        "([errors.md](errors.md)). A lake is a context manager, and is used from one thread at a time.\n",
        _member("lakemill.open", runtime.open),
    ]
    read = (
        Recorded,
        Published,
        Created,
        RefreshRecord,
        Shown,
        Described,
        DynamicTable,
        Explained,
        Verified,
        Point,
        Placed,
        KeptPoint,
        client.Receipt,
        client.Result,
    )
    for owner in (runtime.Lake, runtime.Table, client.Client, *read):
        about = inspect.getdoc(owner) or ""
        about = "" if about.startswith(f"{owner.__name__}(") else about.replace("``", "`") + "\n"  # made by dataclass
        parts.append(f"## {owner.__name__}\n\n{about}")
        if dataclasses.is_dataclass(owner):
            parts += [f"- `{field.name}: {field.type}`" for field in dataclasses.fields(owner)] + [""]
            continue
        for name, member in vars(owner).items():
            if not name.startswith("_") and inspect.getdoc(member):
                parts.append(_member(f"{owner.__name__.lower()}.{name}", member))
    return "\n".join(parts)


def _member(name: str, member: Any) -> str:
    function = getattr(member, "func", None) or getattr(member, "fget", None) or member
    signature = inspect.signature(function)
    if member is not function:
        head = f"{name}: {signature.return_annotation}"
    else:
        head = f"{name}({', '.join(_parameters(signature))}) -> {signature.return_annotation}"
    return f"### `{head}`\n\n{(inspect.getdoc(member) or '').replace('``', '`')}\n"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        many = parameter.kind is parameter.VAR_POSITIONAL
        starred = starred or many
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        yield f"{'*' if many else ''}{parameter.name}: {parameter.annotation}{default}"


# ---------------------------------------------------------------- types
def types_page() -> str:
    parts = [
        "# Types\n",
        NOTE,
        "What a column of the lake is in DuckDB, and what a Spark scan gives. Structs, lists and maps of these too. "
        "`HUGEINT` is stored by DuckLake as a DOUBLE, so large values are already rounded in the file.\n",
        "| DuckLake | DuckDB | Spark |\n|---|---|---|",
    ]
    parts += [f"| `{name}` | `{duck}` | `{shown}` |" for name, (duck, _, shown) in schema._SCALARS.items()]
    parts += ["| `decimal(p,s)` | `DECIMAL(p,s)` | `decimal(p,s)` |", ""]
    parts.append("These are refused by Spark reads, with `UNSUPPORTED_TYPE`; DuckDB reads them:\n")
    parts.append("| DuckLake | why |\n|---|---|")
    parts += [f"| `{name}` | {why} |" for name, why in schema._REFUSED.items()]
    return "\n".join([*parts, ""])


# ---------------------------------------------------------------- what we keep in PostgreSQL
_COMMENT = re.compile(r"COMMENT ON (TABLE|VIEW|COLUMN) lakemill\.([\w.]+) IS '((?:[^']|'')*)';")


def metadata_page() -> str:
    views = [f"{query.text};" for query in load_queries("catalog_views").values()]
    texts = [*(text for _, _, text in migrations()), *views]
    told = [(kind, of, about.replace("''", "'")) for text in texts for kind, of, about in _COMMENT.findall(text)]
    parts = [
        "# What Lakemill keeps in PostgreSQL\n",
        NOTE,
        "Schema `lakemill` of the lake's database, beside the DuckLake catalog. The views are for SQL tools; "
        "the tables may change with any version, and are written by Lakemill only.\n",
        "## Views\n",
    ]
    for kind, view, about in told:
        if kind == "VIEW":
            parts.append(f"### lakemill.{view}\n\n{about}\n\n| column | meaning |\n|---|---|")
            columns = [(name, text) for of, name, text in told if of == "COLUMN"]
            parts += [f"| `{name.split('.')[1]}` | {text} |" for name, text in columns if name.split(".")[0] == view]
            parts.append("")
    parts.append("## Tables\n\n| table | holds |\n|---|---|")
    parts += [f"| `{name}` | {about} |" for kind, name, about in told if kind == "TABLE"]
    return "\n".join([*parts, ""])


# ---------------------------------------------------------------- settings
def settings_page() -> str:
    parts = [
        "# Settings\n",
        NOTE,
        "A setting comes from, the later ones winning: its default; for S3 the usual `AWS_*` variables; the file "
        "`lakemill.toml`, found from the working folder upward; a variable `LAKEMILL_GROUP__KEY`; a flag "
        "(`lakemill --set group.key=value`). Durations are written like `'2 days'`, sizes like `'512MB'`. All "
        "mistakes are reported at once, each with its place.\n",
        '```toml\n[lake]\ndata_path = "data/"\n\n[spark]\ndriver_memory = "2g"\n```\n',
    ]
    for group, field in Settings.model_fields.items():
        model = field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        parts.append(
            f"## {group}\n\n{field.description}\n\n| setting | default | meaning | variable |\n|---|---|---|---|"
        )
        for key, inner in model.model_fields.items():
            variable = f"`{ENV_PREFIX}{group.upper()}__{key.upper()}`"
            parts.append(f"| `{group}.{key}` | {_default(inner)} | {inner.description} | {variable} |")
        parts.append("")
    return "\n".join(parts)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    match value:
        case SecretStr() | "" | None:
            return ""
        case timedelta():
            return f"`{_duration(value)}`"
        case int() if any(getattr(rule, "func", None) is parse_size for rule in field.metadata):
            return f"`{value // 10**6}MB`"
        case bool():
            return f"`{str(value).lower()}`"
        case dict():
            return "`{}`"
    return f"`{value}`"


def _duration(value: timedelta) -> str:
    seconds = round(value.total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds and seconds % length == 0:
            count = seconds // length
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds}s"


# ---------------------------------------------------------------- errors
def errors_page() -> str:
    parts = [
        "# Errors\n",
        NOTE,
        "Every error that Lakemill raises on purpose has a stable code. The command line prints one line, "
        "`error[CODE] what is wrong → what to do`, and leaves with the exit code of its class; in Python it is an "
        "exception with `code`, `message`, `remedy`, `place` and `retry`. The HTTP service answers with "
        "`application/problem+json`: `code`, `message`, `retryable`, `where`, `remedy`, `trace_id`, under the status "
        "in the table.\n",
    ]
    for family in errors.LakemillError.__subclasses__():
        leaves = family.__subclasses__() or [family]
        parts.append(f"## {family.__name__}: exit code {family.exit_code}, retry: {family.retry.value}\n")
        parts.append("| code | exception | HTTP | meaning | what to do |\n|---|---|---|---|---|")
        parts += [
            f"| `{leaf.code}` | `{leaf.__name__}` | {status_of(leaf)} | {_meaning(leaf)} | {leaf.default_remedy} |"
            for leaf in leaves
        ]
        parts.append("")
    return "\n".join(parts)


def _meaning(leaf: type[errors.LakemillError]) -> str:
    return " ".join((inspect.getdoc(leaf) or "").split()) if leaf.__doc__ else MEANINGS.get(leaf.code, "")


# What a code means, in one line for people who meet it.
MEANINGS: Mapping[str, str] = {
    "BAD_SETTINGS": "A setting is unknown, or its value can't be what it should be.",
    "BAD_ARGUMENT": "Words of a command or arguments of a call that can't be meant.",
    "UNKNOWN_TABLE": "No table has this name at this snapshot.",
    "UNKNOWN_COLUMN": "No column has this name.",
    "UNKNOWN_SNAPSHOT": "There has never been a snapshot with this id.",
    "SQL_FAILED": "DuckDB can't run the statement; the place is its line and column.",
    "BAD_STATEMENT": "A statement about dynamic tables can't be read; the place is its line and column.",
    "UNKNOWN_DYNAMIC_TABLE": "No dynamic table has this name; a plain table may.",
    "UNKNOWN_PROFILE": "SPARK_PROFILE of a dynamic table names a profile that the settings don't define.",
    "TABLE_EXISTS": "There is a table of this name already.",
    "CYCLE": "Dynamic tables would read each other in a circle; the message names the way round.",
    "HAS_DEPENDENTS": "Other dynamic tables read this one; the message names them.",
    "NOT_INCREMENTAL": "REFRESH_MODE = INCREMENTAL was asked for, and the query has a part without a rule for deltas.",
    "OUTPUT_CHANGED": "A source was altered, and the query of the dynamic table has other columns by now.",
    "SOURCE_CHANGED": "A source lacks a column that a dynamic table reads, or has it in another type.",
    "NO_COMMON_POINT": "The tables hold no data snapshot in common.",
    "REFRESH_FAILED": "The first load of a dynamic table failed; nothing of it is left.",
    "UPSTREAM_FAILED": "A dynamic table that this one reads could not be refreshed, so this one was not tried.",
    "WRONG_TYPE": "A value or column can't become the table's type without loss.",
    "UNSUPPORTED_TYPE": "A column's type has no exact equivalent in Spark; DuckDB can read it.",
    "UNSUPPORTED_SQL": "Spark might answer a part of a query differently than DuckDB; the place is where it stands.",
    "UNSUPPORTED_LAKE": "The lake uses what Lakemill does not read: another format, encryption, puffin deletes.",
    "UNSUPPORTED_VERSION": "PostgreSQL is too old, or the database was made by a newer Lakemill.",
    "LAKE_EXISTS": "There is a lake already where a new one should be made.",
    "NO_LAKE": "There is no lake here.",
    "UNWRITABLE": "A folder or bucket can't be written.",
    "UNKNOWN_BUCKET": "The bucket of the data path does not exist.",
    "FILE_GONE": "A file that the catalog names, or that a query reads, is not there; the place is its path.",
    "MISSING_PART": "A program or library that is needed is not installed.",
    "BAD_REQUEST": "Fields of a request are not what they should be; `fields` names each.",
    "MALFORMED_BODY": "The body of a request can't be read as what it says to be.",
    "BODY_TOO_LARGE": "The body of a request is larger than api.max_body.",
    "UNSUPPORTED_MEDIA": "The body of a request is of a kind that is not taken there.",
    "UNKNOWN_ROUTE": "Nothing of the HTTP service has this address; /docs lists what there is.",
    "WRONG_METHOD": "The address is right, the HTTP method is not; `Allow` names those that are.",
    "UNAUTHENTICATED": "No key was sent, or one that is unknown, revoked or expired; or a JWT that does not hold.",
    "FORBIDDEN": "The caller is known, and has no role for this.",
    "UNKNOWN_KEY": "No API key has this id, among those that the caller sees.",
    "UNKNOWN_TENANT": "No tenant has this name.",
    "TENANT_EXISTS": "There is a tenant of this name already.",
    "UNKNOWN_QUERY": "The caller asked no such query, or it has ended.",
    "QUERY_RUNS": "A query with the id that was given runs already.",
    "UNKNOWN_PIN": "The caller holds no such pin; it may have run out.",
    "BAD_BODY": "The body of a request can't be read; the place is the field, where it is JSON.",
    "BAD_RECORDS": "Records of a request don't fit the table's columns; each is named with the path of its field.",
    "REQUEST_TOO_LARGE": "A request has more bytes or records than the settings allow.",
    "IDEMPOTENCY_CONFLICT": "The key was used before, for something else.",
    "BAD_TOKEN": "The text is not a token.",
    "TOKEN_OF_ANOTHER_LAKE": "The token was given out by another lake.",
    "NO_INGEST_TABLE": "The table is there, but takes no requests.",
    "REQUESTS_PENDING": "Requests were accepted that are not yet visible, and would be lost.",
    "UNKNOWN_LETTER": "No dead letter has this id.",
    "TABLE_GONE": "A table was dropped or replaced after requests for it had been accepted: they are dead letters.",
    "TABLE_SUSPENDED": "A dynamic table that has not seen the token yet is suspended, or one that it reads.",
    "STRICT_REFUSED": "The dynamic table would have to be loaded anew, which STRICT forbids.",
    "SNAPSHOT_GONE": "The snapshot was there once, and was expired.",
    "TABLE_REPLACED": "The name belongs to another table now, so that there is no delta between the two.",
    "COLUMNS_CHANGED": "The table's columns are not those that were recorded.",
    "ROW_COUNT_DIFFERS": "The table has another number of rows at the first snapshot than was recorded.",
    "DELETE_IN_DOUBT": "The catalog does not say at which of several snapshots rows were deleted.",
    "CATALOG_INCONSISTENT": "The catalog contradicts itself; guessing could give wrong rows.",
    "DELTA_INCONSISTENT": "A delta does not add up; it is refused rather than given wrong.",
    "PUBLISH_CONFLICT": "Somebody else changed the table since this work was planned.",
    "CLAIM_LOST": "The right to work on the table has passed to somebody else.",
    "NAME_TAKEN": "Another table or view has this name by now.",
    "DEFINITION_CHANGED": "The dynamic table was altered, replaced or dropped since this work was planned.",
    "FRONTIER_MOVED": "The dynamic table was refreshed by somebody else since this work was planned.",
    "STORE_UNAVAILABLE": "PostgreSQL does not answer.",
    "STORAGE_UNAVAILABLE": "The data path does not answer, or is full.",
    "ENGINE_LOST": "Spark or DuckDB died at work, or gave up on it.",
    "ENGINE_UNREACHABLE": "Spark did not start: no Java, no such master, no Spark Connect server. Nothing was begun.",
    "FOREIGN_LOCK": "Another program holds what is needed.",
    "PUBLISH_TIMED_OUT": "A publish took longer than its timeouts allow; nothing was published.",
    "QUERY_REFUSED": "A query holds something that queries may not: another statement, a function, a file, a catalog.",
    "QUERY_TOO_LARGE": "A query needed more memory, or more room to spill, than one may have; the others went on.",
    "RESULT_TOO_LARGE": "An answer has more rows or bytes than one may have.",
    "QUERY_CANCELLED": "Somebody cancelled the query.",
    "QUERIES_QUEUED": "Too many queries wait, or this one waited too long for its turn.",
    "QUERY_TIMED_OUT": "A query took longer than it may; its process was ended.",
    "BATCH_TIMED_OUT": "A batch of requests took longer than ingest.batch_timeout; it is tried again.",
    "REFRESH_TOO_LARGE": "The Spark jobs of a refresh held more than service.refresh_memory; nothing was published.",
    "REFRESH_TIMED_OUT": "A scheduled refresh took longer than service.refresh_timeout; nothing was published.",
    "STOPPED": "A worker was told to stop before the refresh had ended; nothing was published.",
    "BUSY": "As many requests as a process takes are under way.",
    "TOO_MANY_FAILURES": "More keys from this address did not hold than `api.failed_logins` allows.",
    "QUOTA_EXCEEDED": "A key or tenant is over its quota; `Retry-After` says for how long.",
    "ISSUER_UNAVAILABLE": "The keys of the issuer of JWTs could not be fetched.",
    "BACKLOGGED": "More is waiting to become visible than the settings allow, or the queue of requests is full.",
    "CONSISTENCY_TIMEOUT": "A token did not become visible within the time that was given.",
    "OUTCOME_UNKNOWN": "The connection broke at COMMIT; it may or may not have happened.",
    "INTERNAL_ERROR": "A mistake of Lakemill's own.",
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
