from __future__ import annotations

from typing import Any


def check_mixed(seed: int, report: Any, options: Any) -> None:
    raise NotImplementedError
