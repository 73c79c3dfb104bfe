"""Which bus: six places, first hit wins, and what a file may say."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.client.clone.config import BusChoice, candidates, check_template, discover, parse_route, write_clone_config
from bridge.client.clone.repository import find_repository
from bridge.errors import UsageError

ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def place(tmp_path):
    """A clone, and the environment of somebody who works in it."""
    top = tmp_path / "clone"
    (top / ".git").mkdir(parents=True)
    (top / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "config").mkdir()
    return top, {"KAKEYA_DATA_DIR": str(tmp_path / "data"), "KAKEYA_CONFIG_DIR": str(tmp_path / "config")}


def write(path, route):
    path.write_text(f'schema = 1\nroute = "{route}"\n')


def test_the_first_of_six_places_wins(place, tmp_path):
    top, environment = place
    chosen = []
    for option, layers in [(None, 0), (None, 1), (None, 2), (None, 3), (None, 4), ("option", 4)]:
        if layers >= 1:
            write(tmp_path / "config" / "config.toml", "user")
        if layers >= 2:
            write(top / "kakeya.toml", "committed")
        if layers >= 3:
            write(top / ".git" / "kakeya.toml", "clone")
        if layers >= 4:
            environment["KAKEYA_BUS"] = "environment"
        settings = discover(top, environment, option)
        chosen.append((settings.bus.source, settings.bus.route))
        assert [place.source for place in candidates(settings) if place.used] == [settings.bus.source]
    assert chosen == [
        ("embedded", None),
        ("user", "user"),
        ("committed", "committed"),
        ("clone", "clone"),
        ("KAKEYA_BUS", "environment"),
        ("--bus", "option"),
    ]


def test_a_file_without_route_and_id_does_not_decide(place):
    top, environment = place
    (top / "kakeya.toml").write_text('schema = 1\nbranch_template = "mac-bridge/{preset}-{id}"\n')
    assert discover(top, environment).bus.embedded


def test_a_file_that_begins_with_a_byte_order_mark_is_read(place):
    top, environment = place
    (top / "kakeya.toml").write_bytes(b'\xef\xbb\xbfschema = 1\r\nroute = "origin"\r\n')
    assert discover(top, environment).bus.route == "origin"


def test_embedded_can_be_insisted_on(place):
    top, environment = place
    write(top / ".git" / "kakeya.toml", "origin")
    assert discover(top, environment, "embedded").bus.embedded
    assert not discover(top, environment).bus.embedded


def test_results_lie_in_the_common_directory_also_of_a_linked_work_tree(place, tmp_path):
    top, environment = place
    linked = tmp_path / "linked"
    admin = top / ".git" / "worktrees" / "linked"
    admin.mkdir(parents=True)
    linked.mkdir()
    (linked / ".git").write_text(f"gitdir: {admin}\n")
    (admin / "commondir").write_text("../..\n")
    settings = discover(linked, environment)
    assert settings.repository.common_dir == top / ".git"
    assert settings.runs_dir == top / ".git" / "kakeya" / "runs"


def test_outside_of_a_clone_everything_is_in_the_data_directory(place, tmp_path):
    _, environment = place
    outside = tmp_path / "outside"
    outside.mkdir()
    settings = discover(outside, environment)
    assert settings.repository is None
    assert settings.runs_dir == tmp_path / "data" / "runs"


@contextmanager
def somebody():
    """Be somebody else for a while: to root every folder can be written."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_clone_that_cannot_be_written_keeps_its_state_in_the_data_directory():
    with tempfile.TemporaryDirectory(prefix="clone-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        settings = discover(folder, {"XDG_DATA_HOME": f"{name}-data"})
        for mode, inside in ((0o777, True), (0o555, False)):
            (folder / ".git").chmod(mode)
            with somebody():
                state = settings.state_dir
            assert state.is_relative_to(folder) is inside
            assert state.is_relative_to(settings.data_dir) is not inside


def test_a_broken_git_file_is_said(tmp_path):
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    with pytest.raises(UsageError, match="points to"):
        find_repository(tmp_path)


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("schema = 2\nroute = 'x'\n", "reads schema = 1"),
        ("route = 'x'\n", "reads schema = 1"),
        ("schema = 1\nroute = 'x'\nsecret = 'y'\n", "unknown key 'secret'; known: branch_template"),
        ("schema = 1\nrout = 'x'\n", "unknown key 'rout'; did you mean route?"),
        ("schema = 1\nroute = 7\n", "route is a text"),
        ("schema = 1\nroute = ''\n", "route is a text"),
        (f"schema = 1\nbus_id = '{ID[:-1]}'\n", "expected 32 hexadecimal digits"),
        ("schema = 1\nroute = 'x'\nrunner_keys = 'k'\n", "runner_keys is a list"),
        ("schema = 1\nroute = 'x'\nbranch_template = 'x/{id}'\n", "branch_template"),
        ("schema = 1\nroute = '-x'\n", "expected a remote name"),
        ("not toml", "not TOML"),
        ("schema = 1\nroute = '" + "x" * 70000 + "'\n", "has at most"),
    ],
)
def test_a_malformed_file_is_named_with_its_key(place, text, needle):
    top, environment = place
    (top / "kakeya.toml").write_text(text)
    with pytest.raises(UsageError, match=r"kakeya\.toml") as caught:
        discover(top, environment)
    assert needle in caught.value.message
    assert "kakeya.toml" in caught.value.remedy


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name)])
def test_what_is_no_file_is_no_configuration_that_is_passed_over(place, make):
    top, environment = place
    make(top / "kakeya.toml")
    with pytest.raises(UsageError, match=r"kakeya\.toml: it is no file that can be read") as caught:
        discover(top, environment)
    assert caught.value.remedy is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-oProxyCommand=x",
        "ext::sh -c x",
        "a b",
        "x\ny",
        "https://user:secret@host/x",
        "x#1234",
        "fd::3",
        "x#" + "g" * 32,
    ],
)
def test_a_route_that_could_mislead_is_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_route(text, "--bus", "--bus")
    assert "secret" not in caught.value.message


def test_a_route_may_carry_the_pin():
    assert parse_route(f"origin#{ID}", "--bus", "--bus") == BusChoice("--bus", "--bus", "origin", ID)


def test_a_route_may_be_a_folder_whose_name_holds_spaces(place):
    top, environment = place
    choice = parse_route(f"/srv/my bus.git#{ID}", "clone", "x")
    assert (choice.route, choice.bus_id) == ("/srv/my bus.git", ID)
    write_clone_config(discover(top, environment), choice)
    assert discover(top, environment).bus.route == "/srv/my bus.git"
    for text in ("https://host/a b", "my bus", " /srv/bus", "/srv/a\nb"):
        with pytest.raises(UsageError):
            parse_route(text, "--bus", "--bus")


@pytest.mark.parametrize(
    "template", ["x", "{id}-{preset}", "a/../{preset}-{id}", "a//{preset}-{id}", "a b/{preset}-{id}"]
)
def test_a_template_that_cannot_carry_both_is_refused(template):
    with pytest.raises(UsageError):
        check_template(template, "here")


def test_what_init_writes_is_what_discovery_reads(place):
    top, environment = place
    template, keys = "AgentMemory/mac-bridge-{preset}-{id}-1f2e", ('ssh-ed25519 AAAA "a\\b"',)
    path = write_clone_config(discover(top, environment), BusChoice("clone", "x", "origin", ID, template, keys))
    assert path == top / ".git" / "kakeya.toml"
    assert path.stat().st_mode & 0o077 == 0
    bus = discover(top, environment).bus
    assert (bus.route, bus.bus_id, bus.branch_template, bus.runner_keys) == ("origin", ID, template, keys)


def test_folders_of_the_environment_are_the_same_from_every_folder(place, tmp_path):
    top, _ = place
    settings = discover(top, {"KAKEYA_DATA_DIR": "data", "KAKEYA_CONFIG_DIR": "config"}, None)
    assert settings.data_dir.is_absolute()
    assert settings.config_dir.is_absolute()


TEMPLATE = "AgentMemory/mac-bridge-{preset}-{id}-1f2e"


@pytest.mark.parametrize(
    ("named", "template"),
    [
        ("origin", TEMPLATE),
        (f"origin#{ID}", TEMPLATE),
        (f"origin#{'f' * 32}", None),
        ("other", None),
        ("embedded", None),
    ],
)
@pytest.mark.parametrize("by", ["option", "variable"])
def test_the_branches_of_a_route_are_those_of_its_file_however_the_route_is_named(place, named, template, by):
    top, environment = place
    write_clone_config(discover(top, environment), BusChoice("clone", "x", "origin", ID, TEMPLATE))
    if by == "variable":
        environment["KAKEYA_BUS"] = named
    bus = discover(top, environment, named if by == "option" else None).bus
    assert bus.branch_template == template
    assert bus.source == ("KAKEYA_BUS" if by == "variable" else "--bus")
