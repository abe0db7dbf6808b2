"""The reference is the code: generated pages are up to date, and nothing that a user meets is missing from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakemill import errors
from lakemill.cli.reference import MEANINGS, _helps, pages
from lakemill.settings import Settings

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_what_the_code_says(name: str) -> None:
    assert (REFERENCE / name).read_text("utf-8") == PAGES[name], "run `make docs`"


def test_every_setting_is_there() -> None:
    text = PAGES["settings.md"]
    for group, field in Settings.model_fields.items():
        for key, inner in getattr(field.annotation, "model_fields", {}).items():
            assert f"`{group}.{key}`" in text
            assert inner.description, f"{group}.{key} has no description"


def leaves(family: type[errors.LakemillError]) -> list[type[errors.LakemillError]]:
    below = family.__subclasses__()
    return [leaf for kind in below for leaf in leaves(kind)] if below else [family]


def test_every_error_code_is_there_with_its_meaning() -> None:
    found = leaves(errors.LakemillError)
    codes = [leaf.code for leaf in found]
    assert len(set(codes)) == len(codes)
    for leaf in found:
        assert f"| `{leaf.code}` | `{leaf.__name__}` |" in PAGES["errors.md"]
        assert leaf.__name__ in (errors.__doc__ or ""), "the tree in the docstring lacks it"
    assert set(MEANINGS) == set(codes), "write down what each code means"


def test_every_command_is_there() -> None:
    for path, _ in _helps():
        assert f"## {path}\n" in PAGES["cli.md"]
    readme = (ROOT / "README.md").read_text("utf-8")
    for command in ("init", "sql", "tables", "snapshots", "changes", "attach", "doctor"):
        assert re.search(rf"lakemill (-C \S+ )?{command}\b", readme), command


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} → {target}"


def test_decisions_are_numbered_and_complete() -> None:
    pages_ = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    for page in pages_:
        number = re.match(r"(\d{4})-[a-z0-9-]+\.md", page.name)
        assert number is not None, page.name
        text = page.read_text("utf-8")
        assert text.startswith(f"# {int(number[1])}. "), page.name
        for part in ("## Context", "## Choice", "## Cost"):
            assert part in text, f"{page.name} has no {part}"
