"""Addresses that other machines reach are refused, with the reason and what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from engine.distributed.loopback import check_loopback, check_unserved
from engine.errors import UsageError


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.8.9.1:5", "127.8.9.1:5"),
        ("localhost:50051", "127.0.0.1:50051"),
        ("[::1]:7", "[::1]:7"),
        ("unix:/run/drafter", "unix:/run/drafter"),
    ],
)
def test_an_address_of_this_machine_is_taken(address: str, read: str) -> None:
    assert check_loopback(address, "serving at") == read


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "[::]:1", "10.0.0.7:5", "example.org:80", ":5", "[::ffff:10.0.0.1]:3"]
)
def test_one_that_others_reach_is_refused_with_the_way_there(address: str) -> None:
    with pytest.raises(UsageError, match=r"is refused: the stream is not encrypted.*ssh -L"):
        check_loopback(address, "serving at")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "127.0.0.1:000001",
        pytest.param("127.0.0.1:" + "1" * 4301, id="a port of 4301 digits"),
        "unix:relative",
        "localhost:²",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        check_loopback(address, "serving at")


@pytest.mark.parametrize("path", ["/run/a\0b", "/run/a\nb", "/run/a%20b", "/run/a?b", "/run/a#b", "/" + "x" * 107])
def test_a_path_that_both_ends_would_not_read_alike_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="expected a path of at most 107 bytes"):
        check_loopback(f"unix:{path}", "serving at")


def test_a_path_is_free_unless_somebody_serves_or_something_else_lies_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    check_unserved("127.0.0.1:0")
    check_unserved(f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        served.listen()
        with pytest.raises(UsageError, match="somebody serves at"):
            check_unserved(f"unix:{path}")
    check_unserved(f"unix:{path}")  # nobody listens at what is left of it
    path.unlink()
    path.write_text("a file of somebody's")
    with pytest.raises(UsageError, match="is no socket"):
        check_unserved(f"unix:{path}")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is no socket"):
        check_unserved(f"unix:{tmp_path}/link")
    with pytest.raises(UsageError, match="no folder"):
        check_unserved(f"unix:{tmp_path}/missing/s")
