"""`lakemill sql`: statements run by DuckDB, through the extension, on the lake.

A script is one transaction and so one snapshot: it happens as a whole or not at all. Where a statement is wrong, the
error names its line and column in what the user wrote.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemill.cli.options import FormatOption, given
from lakemill.cli.output import Format, Output
from lakemill.errors import BadArgument, LakemillError

if TYPE_CHECKING:
    from lakemill.lake.duck import Connection

BATCH = 10_000
_PICTURE = re.compile(r"LINE (\d+): (.*)\n( *)\^")


def command(
    context: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="One or more statements; `-` reads them from standard input."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A file with the statements.")] = None,
    at: Annotated[
        int | None, typer.Option(metavar="SNAPSHOT", help="Read the lake as it was at this snapshot.")
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Commit each statement by itself instead of all as one snapshot.")
    ] = False,
    format_: FormatOption = None,
) -> None:
    """Run SQL on the lake with DuckDB: queries, DDL and DML.

    Several statements are one transaction, and one snapshot: all of them happen, or none. A script with BEGIN and
    COMMIT of its own is run as it is.

        lakemill sql "CREATE TABLE t (id INTEGER, name VARCHAR)"
        lakemill sql "INSERT INTO t VALUES (1, 'one'); INSERT INTO t VALUES (2, 'two')"
        lakemill sql "SELECT * FROM t" --format json
        lakemill sql --at 1 "SELECT count(*) FROM t"
        lakemill sql -f report.sql
    """
    script = _script(text, file)
    output = given(context).output(format_)
    with given(context).lake() as lake:
        if at is None:
            _run(lake.duck, script, output, each=each)
            return
        from lakemill.lake import duck

        lake.snapshot(at)  # refuses one that is not there, and says why
        with duck.connect(lake.settings, lake.dsn, at=at) as past:
            # stock DuckDB can answer wrongly about the past with it (research: traps 9)
            past.execute("SET disabled_optimizers = 'statistics_propagation'")
            _run(past, script, output, each=each)


@dataclass(frozen=True, slots=True)
class Script:
    """What the user wrote, and the name of its place."""

    text: str
    name: str | None

    def place(self, offset: int, line: int, column: int) -> str:
        """A line and column of the statement that begins at `offset`, counted in the script."""
        before = self.text[:offset]
        first_line = before.count("\n")
        if line == 1:
            column += offset - (before.rfind("\n") + 1)
        return (
            f"{self.name}:{first_line + line}:{column}" if self.name else f"line {first_line + line}, column {column}"
        )


def _script(text: str | None, file: Path | None) -> Script:
    if (text is None) == (file is None):
        raise BadArgument("give either SQL or --file", remedy="see `lakemill sql --help`")
    if file is not None:
        try:
            return Script(file.read_text("utf-8"), str(file))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadArgument(f"{file} can't be read: {reason}", place="--file", remedy="name a text file") from error
    return Script(sys.stdin.read() if text == "-" else str(text), None)


def _run(duck: Connection, script: Script, output: Output, *, each: bool) -> None:
    duck.execute("SET python_enable_replacements = false")  # a table `output` is no variable of this program
    statements = list(_statements(duck, script))
    if not statements:
        raise BadArgument("there is no statement to run", remedy="see `lakemill sql --help`")
    own = any(kind == "TRANSACTION" for _, _, kind in statements)
    as_one = len(statements) > 1 and not each and not own
    shown = []
    if as_one:
        duck.execute("BEGIN")
    for number, (offset, statement, kind) in enumerate(statements):
        with _placed(script, offset, "" if as_one else _done_before(number, own)):
            duck.execute(statement)
            if as_one:
                shown.append((kind, *_fetched(duck)))  # nobody sees a result of what may yet be undone
            else:
                _show(output, kind, _columns(duck), _batches(duck))
    if as_one:
        with _placed(script, 0):
            duck.execute("COMMIT")
        for kind, columns, rows in shown:
            _show(output, kind, columns, iter(rows))


def _statements(duck: Connection, script: Script) -> Iterator[tuple[int, str, str]]:
    with _placed(script, 0):
        found = duck.extract_statements(script.text)
    position = 0
    for statement in found:
        query = statement.query.strip()
        offset = max(script.text.find(query, position), position)
        position = offset + len(query)
        yield offset, query, statement.type.name


class _placed:  # noqa: N801 - reads as a verb
    """Raise DuckDB's errors as ours, with the place in the script."""

    def __init__(self, script: Script, offset: int, done: str = "") -> None:
        self._script, self._offset, self._done = script, offset, done

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from lakemill.lake import duck

        if not isinstance(error, duck.DuckError):
            return
        ours = duck.explain(error)
        picture = _PICTURE.search(str(error))
        if picture is not None:
            ours = _with_place(ours, self._script, self._offset, picture)
        raise _with_remedy(ours, self._done) from error


def _with_place(error: LakemillError, script: Script, offset: int, picture: re.Match[str]) -> LakemillError:
    number, shown, caret = int(picture[1]), picture[2], len(picture[3]) - len(f"LINE {picture[1]}: ")
    lines = script.text[offset:].split("\n")
    whole = lines[number - 1] if number <= len(lines) else ""
    if shown.startswith("..."):  # DuckDB shows a window of a long line
        caret += whole.find(shown.removeprefix("...").removesuffix("...")) - 3
    message = re.sub(r";? *(LINE \d+|Candidate functions):.*$", "", error.message)
    return type(error)(message, remedy=error.remedy, place=script.place(offset, number, caret + 1))


def _with_remedy(error: LakemillError, done: str) -> LakemillError:
    state = done or "nothing was changed"
    error.remedy = f"{error.remedy or 'correct the statement'}; {state}"
    return error


def _done_before(number: int, own: bool) -> str:
    if own:
        return "what the script had not committed is undone"
    return f"the {number} before it {'is' if number == 1 else 'are'} committed" if number else ""


def _columns(duck: Connection) -> list[str]:
    return [column[0] for column in duck.description or []]


def _batches(duck: Connection) -> Iterator[Sequence[Any]]:
    while rows := duck.fetchmany(BATCH):
        yield from rows


def _fetched(duck: Connection) -> tuple[list[str], list[Sequence[Any]]]:
    return _columns(duck), list(_batches(duck)) if duck.description else []


def _show(output: Output, kind: str, columns: list[str], rows: Iterator[Sequence[Any]]) -> None:
    if not columns:
        return
    if columns == ["Count"] and kind != "SELECT" and output.format is Format.TABLE:
        count = next(iter(rows), (0,))[0]
        if kind in _DONE or count:
            output.text(f"{count} row{'' if count == 1 else 's'} {_DONE.get(kind, 'written')}")
        return
    if columns == ["Success"] and kind != "SELECT" and output.format is Format.TABLE:
        return
    output.rows(columns, rows, empty="no rows")


_DONE = {"INSERT": "inserted", "UPDATE": "updated", "DELETE": "deleted", "MERGE_INTO": "merged"}
