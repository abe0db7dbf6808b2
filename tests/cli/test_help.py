"""The help teaches: every command says what it does, shows an example that is spelled right, and answers fast."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from lakemill.cli.main import commands
from lakemill.cli.reference import _helps
from tests.cli.conftest import Lakemill

HELPS = dict(_helps())
GROUPS = ("table", "letters", "upkeep", "keys", "tenants")
LEAVES = [name for name in HELPS if name.removeprefix("lakemill").strip() not in ("", *GROUPS)]


@pytest.mark.parametrize("name", LEAVES)
def test_shows_an_example(name: str) -> None:
    examples = [line.strip() for line in HELPS[name].splitlines() if re.match(r" {6}\S", line)]
    own = [line for line in examples if "lakemill" in line]
    assert any(set(name.split()) <= set(line.split()) for line in own), HELPS[name]


@pytest.mark.parametrize("name", HELPS)
def test_examples_parse(name: str) -> None:
    root: Any = typer.main.get_command(commands)
    for line in HELPS[name].splitlines():
        if not re.match(r" {6}lakemill ", line):
            continue
        words = shlex.split(line)[1:]
        context = root.make_context("lakemill", words, resilient_parsing=False)
        command_name, command, rest = root.resolve_command(context, [*context._protected_args, *context.args])
        inner = command.make_context(command_name, rest, parent=context)
        if hasattr(command, "commands"):
            leaf_name, leaf, words = command.resolve_command(inner, [*inner._protected_args, *inner.args])
            leaf.make_context(leaf_name, words, parent=inner)


def test_help_and_version_exit_with_zero(lakemill: Lakemill) -> None:
    assert lakemill("--help").code == 0
    assert lakemill("upkeep", "compact", "-h").code == 0
    assert re.fullmatch(r"lakemill \d+\.\d+\.\d+\n", lakemill("--version").out)


@pytest.mark.parametrize("words", [(), *((group,) for group in GROUPS)])
def test_a_group_by_itself_shows_its_help(lakemill: Lakemill, words: tuple[str, ...]) -> None:
    ran = lakemill(*words)
    assert (ran.code, ran.err) == (2, "")
    assert ran.out == lakemill(*words, "--help").out


def test_help_imports_no_engine() -> None:
    code = "import sys, lakemill.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"duckdb", "pyspark", "psycopg", "pyarrow", "obstore"} & set(done.stdout.split())
