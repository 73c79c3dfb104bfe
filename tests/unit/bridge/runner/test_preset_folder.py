"""A host's folder of preset files, edited while its runner serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.presets.installed import registry
from bridge.runner.policy.file import read_policy
from bridge.runner.policy.live_presets import LivePresets
from bridge.runner.policy.policy_file import REST_S
from tests.fakes.bus_actors import FakeClock
from tests.support.runner_site import PRESET


class Host:
    """A preset folder, and what a runner that serves goes by."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.lines = folder / "presets", FakeClock(), list[str]()
        self.folder.mkdir(mode=0o700)
        self.write("count")
        self.presets = self.start()

    def start(self) -> LivePresets:
        policy = read_policy(f'schema = 1\nname = "mini"\n[presets]\nfolder = "{self.folder}"\n'.encode())
        return LivePresets(policy, self.clock, self.lines.append)

    def write(self, name: str, text: str = PRESET, mode: int = 0o600) -> None:
        path = self.folder / f"{name}.toml"
        path.write_text(text.replace('name = "count"\nstatus', f'name = "{name}"\nstatus'))
        path.chmod(mode)

    def own(self) -> dict[str, float]:
        """Return the wall limits of the folder's presets, by name, once the files were left alone."""
        set(self.presets)
        self.clock.advance(REST_S)
        return {name: self.presets[name].limits.wall_s for name in self.presets if name not in registry()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_preset_file_that_is_edited_added_or_removed_counts_without_a_restart(host: Host) -> None:
    assert host.own() == {"count": 300.0}
    host.write("count", PRESET.replace("wall_s = 300.0", "wall_s = 60.0"))
    host.write("more")
    assert host.own() == {"count": 60.0, "more": 300.0}
    (host.folder / "count.toml").unlink()
    assert host.own() == {"more": 300.0}
    assert [line.split(":")[0] for line in host.lines] == [
        "preset count was read anew", "preset more was read anew", "preset count is offered no more"
    ]  # fmt: skip
    assert set(registry()) < set(host.presets)


def test_a_file_that_is_being_written_offers_what_it_did_before(host: Host) -> None:
    host.write("count", PRESET.replace("wall_s = 300.0", "wall_s = 60.0"))
    for _ in range(3):
        assert host.presets["count"].limits.wall_s == 300.0
        host.clock.advance(REST_S / 2)
        host.write("count", PRESET.replace("wall_s = 300.0", "wall_s = 50.0"))
    assert host.own() == {"count": 50.0}


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [("schema = 1\n", 0o600, "count.toml, "), (PRESET, 0o646, "count.toml: "), ("schema = ", 0o600, "count.toml: ")],
)
def test_a_file_that_became_wrong_offers_nothing_until_it_is_right_and_its_owner_is_told_once(host, text, mode, words):
    host.write("count", text, mode)
    assert host.own() == {}
    assert host.own() == {}
    [line] = host.lines
    assert (line.startswith("preset count is not offered: preset file"), words in line) == (True, True), line
    host.write("count")
    assert host.own() == {"count": 300.0}


def test_a_mistake_that_is_there_at_the_start_stops_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.write("wrong", "schema = 1\n")
    with pytest.raises(UsageError, match=r"preset file wrong\.toml"):
        host.start()
