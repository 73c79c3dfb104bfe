from __future__ import annotations

import os
import pwd

import pytest

from bridge.executor.sandbox.private_paths import own_homes

LISTED = tuple(home for home in [pwd.getpwuid(os.getuid()).pw_dir] if home != "/")


@pytest.mark.parametrize(
    ("named", "more"), [("/srv/runner", ("/srv/runner",)), ("/", ()), ("", ()), ("relative", ()), (None, ())]
)
def test_a_home_that_only_the_variable_names_is_one_too(monkeypatch, named, more):
    if named is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", named)

    assert own_homes() == (*LISTED, *more)
