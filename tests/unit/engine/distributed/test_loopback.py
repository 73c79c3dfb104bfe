"""Addresses that other machines reach are refused, with the reason and what to do."""

from __future__ import annotations

import pytest

from engine.distributed.loopback import check_loopback
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


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "unix:relative", "localhost:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        check_loopback(address, "serving at")
