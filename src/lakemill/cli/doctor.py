"""stub"""

import typer


def command(context: typer.Context) -> None:
    """stub"""
