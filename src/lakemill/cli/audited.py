"""Administrative commands in the audit log, as the HTTP service writes its own there."""

from __future__ import annotations

import getpass
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakemill.errors import LakemillError, UserError

if TYPE_CHECKING:
    from lakemill.runtime.open import Lake
    from lakemill.store.audit import Action


def who() -> str:
    """Whoever runs the command, as the machine knows them."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name, as containers have them
        return "cli"


@contextmanager
def audited(lake: Lake, action: str, about: str) -> Iterator[Action]:
    """The body goes into the audit log, refused or done; it may add what it comes to know."""
    from lakemill.store import audit

    entry = audit.Action(who(), action, secrets.token_hex(16), about=about)
    try:
        yield entry
    except LakemillError as error:
        entry.outcome = audit.Ended.REFUSED if isinstance(error, UserError) else audit.Ended.FAILED
        entry.code = error.code
        raise
    finally:
        if not lake.conn.closed:
            audit.record(lake.conn, entry)
