"""What the pages show works: each page is walked from top to bottom, its commands, SQL and Python run as written.

A block marked ``sh`` or ``python`` is run, one marked ``sql`` by `lakemill sql`; ``sh skip`` needs what a test has not.
``sql refused`` and ``sql full`` hold queries of dynamic tables, a line each, with the code that they get.
One page is one reader: a folder, a database, one Python. `docs/how-to/s3.md` has a test of its own, next to the S3
server, and `docs/how-to/api.md`, next to the API's; pages that are written from the code have `test_reference.py`.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from lakemill.cli.main import run
from lakemill.cli.reference import NOTE
from lakemill.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
RUN = [page for page in PAGES if re.search(r"^```(sh|sql|python)$", page.read_text("utf-8"), re.MULTILINE)]
RUN = [page for page in RUN if NOTE not in page.read_text("utf-8") and page.name not in ("s3.md", "api.md")]


def blocks(page: Path, *languages: str) -> Iterator[tuple[str, str]]:
    for language, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        if language in languages:
            yield language, text


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows(
    page: Path, tmp_path: Path, database: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEMILL_LAKE__POSTGRES", database)  # a page's `init` would start a server of its own
    names: dict[str, Any] = {}
    try:
        for language, text in blocks(page, "sh", "sql", "sql refused", "sql full", "python"):
            if language == "python":
                with redirect_stdout(io.StringIO()):
                    exec(compile(text, str(page), "exec"), names)
            elif language == "sql":
                assert run(["sql", text]) == 0, text
            elif language.startswith("sql "):
                for line in text.splitlines():
                    _judged(line, refused=language == "sql refused")
            else:
                for line in text.splitlines():
                    _shell(line, tmp_path, monkeypatch)
                if page.name == "README.md" and (tmp_path / "my-lake").is_dir():
                    monkeypatch.chdir(tmp_path)  # the README speaks from the folder above
    finally:
        if "lake" in names:
            names["lake"].close()


def _shell(line: str, start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)
    match words:
        case []:
            return
        case ["cd", folder]:
            monkeypatch.chdir(Path.cwd() / folder)
        case ["lakemill", *rest]:
            assert run(rest) == 0, line
        case ["make", *targets]:
            subprocess.run(["make", "-n", "-C", ROOT, *targets], check=True, capture_output=True)
        case _:
            pytest.fail(f"a test can't run this; mark its block `sh skip`: {line}")


def _judged(line: str, refused: bool) -> None:
    query, _, code = line.rpartition(" -- ")
    told = io.StringIO()
    with redirect_stdout(told):
        left = run(["validate", f"CREATE DYNAMIC TABLE x TARGET_LAG = '1 day' AS {query}", "--format", "json"])
    (found,) = json.loads(told.getvalue())
    assert found["valid"] is not refused, line
    assert (left != 0) is refused, line
    assert code in told.getvalue(), f"{line}: {told.getvalue()}"


def test_every_reason_of_a_refresh_is_explained() -> None:
    page = (ROOT / "docs" / "explanation" / "refreshing.md").read_text("utf-8")
    for module in sorted((ROOT / "src" / "lakemill").glob("*/*.py")):
        for code in re.findall(r"\b(?:Reason|NotIncremental)\(\s*\"([A-Z_]+)\"", module.read_text("utf-8")):
            assert f"`{code}`" in page, f"{module.name}: {code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_that_a_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("LAKEMILL_", "AWS_"))]:
        monkeypatch.delenv(name)
    for _, text in blocks(page, "toml"):
        tomllib.loads(text)
        (tmp_path / "lakemill.toml").write_text(text)
        Settings.load(tmp_path)


def test_words_that_would_be_claims() -> None:
    """Figures belong to `bench/`; until they are there, no page says how fast anything is."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        assert not re.search(r"\d+(\.\d+)?\s?[×x] (faster|slower)", page.read_text("utf-8")), page
