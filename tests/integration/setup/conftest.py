"""One installed machine for every test of the set-up: to install takes long, and who changes it works on a twin."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.setup.machine import Host, linked_package


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> tuple[Host, dict[str, str], subprocess.CompletedProcess[str]]:
    host = Host(tmp_path_factory.mktemp("host"), linked_package(tmp_path_factory.mktemp("source")))
    before = host.files()
    done = host.setup()
    assert done.returncode == 0, done.stdout + done.stderr
    return host, before, done
