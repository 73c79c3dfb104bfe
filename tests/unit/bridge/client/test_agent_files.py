"""What is in an agent's files stays; ours goes in once and comes out without a trace."""

from __future__ import annotations

import json
import tomllib

import pytest

from bridge.client.maintenance.agent_files import AGENTS, merge_json, merge_section, merge_toml, server_entry
from bridge.errors import UsageError
from tests.fakes.requester import Requester

OTHERS = {"mcpServers": {"other": {"command": "x"}}, "theme": "dark"}
SERVER = server_entry("kakeya-mac")


@pytest.mark.parametrize(
    ("merge", "before"),
    [
        (merge_json("mcpServers"), json.dumps(OTHERS, indent=2) + "\n"),
        (merge_json("servers"), ""),
        (merge_toml, '# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "y"\n'),
        (merge_toml, ""),
        (merge_section, "# House rules\n\nBe kind.\n"),
        (merge_section, ""),
    ],
)
def test_in_twice_is_in_once_and_out_again_is_as_before(merge, before):
    once = merge(before, SERVER)
    assert once != before
    assert merge(once, SERVER) == once
    assert merge(once, "") == before


def test_other_entries_stay_beside_ours():
    merged = json.loads(merge_json("mcpServers")(json.dumps(OTHERS), SERVER))
    assert merged == {**OTHERS, "mcpServers": {**OTHERS["mcpServers"], "kakeya": json.loads(SERVER)}}
    table = tomllib.loads(merge_toml('[mcp_servers.other]\ncommand = "y"\n', SERVER))
    assert table["mcp_servers"] == {"other": {"command": "y"}, "kakeya": {"command": "kakeya-mac", "args": ["mcp"]}}


@pytest.mark.parametrize(
    ("merge", "text"),
    [
        (merge_json("mcpServers"), '{"mcpServers": {"kakeya": {"command": "theirs"}}}'),
        (merge_json("mcpServers"), "{// a comment\n}"),
        (merge_json("mcpServers"), "[]"),
        (merge_json("mcpServers"), '{"mcpServers": []}'),
        (merge_toml, '[mcp_servers.kakeya]\ncommand = "theirs"\n'),
        (merge_toml, "no toml"),
    ],
)
def test_what_cannot_be_merged_is_refused(merge, text):
    with pytest.raises(UsageError):
        merge(text, SERVER)


def test_install_and_uninstall_leave_the_files_of_a_clone_as_they_were(tmp_path):
    requester = Requester(tmp_path, environment={"HOME": str(tmp_path / "home")})
    (tmp_path / ".mcp.json").write_text(json.dumps(OTHERS, indent=2) + "\n")
    (tmp_path / "AGENTS.md").write_text("# House rules\n")
    before = {path: path.read_text() for path in (tmp_path / ".mcp.json", tmp_path / "AGENTS.md")}
    every = [f"--{name}" for name in AGENTS]
    assert requester.run("agent", "install", *every).code == 0
    assert "kakeya" in json.loads((tmp_path / ".cursor" / "mcp.json").read_text())["mcpServers"]
    assert (tmp_path / "home" / ".codex" / "config.toml").exists()
    assert "unchanged" in requester.run("agent", "install", *every).out
    assert requester.run("agent", "uninstall", *every).code == 0
    left = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == before


def test_one_file_that_cannot_be_merged_leaves_all_as_they_were(tmp_path):
    requester = Requester(tmp_path, environment={"HOME": str(tmp_path / "home")})
    (tmp_path / ".mcp.json").write_text("{// mine\n}")
    ran = requester.run("agent", "install", "--claude", "--cursor")
    assert ran.code == 2
    assert str(tmp_path / ".mcp.json") in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mcp.json"]
