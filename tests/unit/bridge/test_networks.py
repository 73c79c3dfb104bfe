from __future__ import annotations

import itertools

import pydantic
import pytest

from bridge.records.jobspec import SandboxSpec
from bridge.records.network import allows, describe_network, lesser

A, WILD = ("data.example.org",), ("*.example.org",)


def network(value):
    return SandboxSpec(mode="required", network=value).network


@pytest.mark.parametrize("value", [False, "internet", "host", A, WILD, ("data.example.org:8443", "*.b.example.org")])
def test_what_a_run_may_reach_is_taken_as_it_is_written(value):
    assert network(value) == value


def test_names_are_compared_in_lower_case_and_the_usual_port_is_left_out():
    assert network(("Data.Example.ORG:443", "*.B.example.org")) == ("data.example.org", "*.b.example.org")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (True, r"true is not taken.*\[\"data.example.org\".*\"internet\" or \"host\""),
        ("everything", "'everything': write names"),
        ((), "an empty list names nobody"),
        (("https://data.example.org",), "leave the scheme out"),
        (("data.example.org/path",), "without a scheme, a user or a path"),
        (("user@data.example.org",), "without a scheme, a user or a path"),
        (("data.example.org.",), "leave the dot at the end out"),
        (("93.184.216.34",), "is an address"),
        (("0x7f000001",), "is an address"),
        (("2130706433",), "is an address"),
        (("127.1",), "is an address"),
        (("[2606:4700::1111]:443",), "is an address"),
        (("::1",), "is an address"),
        (("dätä.example.org",), "write the ASCII form"),
        (("*",), "a star stands for what is before a name of two parts"),
        (("*.org",), "a star stands for"),
        (("*.*.example.org",), "a star stands for"),
        (("data.*.example.org",), "a star stands for"),
        (("localhost",), "no host name of two parts"),
        (("-a.example.org",), "no host name"),
        (("data.example.org:0",), "a port from 1 to 65535"),
        (("data.example.org:65536",), "a port from 1 to 65535"),
        (("data.example.org:",), "a port from 1 to 65535"),
        (("data.example.org:443:443",), "is an address"),
        (("data.example.org\r\nx.example.org",), "no host name"),
        (("a" * 300 + ".example.org",), "no host name"),
        (A * 65, "65 names: at most 64"),
    ],
)
def test_what_names_no_host_is_refused_with_what_to_write(value, why):
    with pytest.raises(pydantic.ValidationError, match=why):
        network(value)


@pytest.mark.parametrize(
    ("value", "name", "port", "answer"),
    [
        (A, "data.example.org", 443, True),
        (A, "data.example.org", 80, False),
        (A, "data.example.org.evil.org", 443, False),
        (A, "x.data.example.org", 443, False),
        (WILD, "data.example.org", 443, True),
        (WILD, "a.b.example.org", 443, True),
        (WILD, "example.org", 443, False),
        (WILD, "evilexample.org", 443, False),
        (("data.example.org:8443",), "data.example.org", 8443, True),
        (("data.example.org:8443",), "data.example.org", 443, False),
        ("internet", "anything.example.com", 443, True),
        ("internet", "anything.example.com", 80, True),
        ("internet", "anything.example.com", 22, False),
        ("host", "anything.example.com", 22, True),
        (False, "data.example.org", 443, False),
    ],
)
def test_a_name_is_allowed_by_itself_or_by_a_star_before_it_on_its_port(value, name, port, answer):
    assert allows(value, name, port) is answer


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (False, "host", False),
        ("host", "host", "host"),
        ("internet", "host", "internet"),
        ("internet", "internet", "internet"),
        (A, "internet", A),
        (A, WILD, A),
        (WILD, ("*.b.example.org", "*.example.net"), ("*.b.example.org",)),
        (WILD, ("*.example.org",), WILD),
        (A, ("other.example.org",), False),
        (A, ("data.example.org:8443",), False),
        (("data.example.org:8443", "data.example.org"), "internet", A),
        (("data.example.org:8443",), "internet", False),
    ],
)
def test_of_two_networks_what_both_allow_counts(a, b, both):
    assert lesser(a, b) == lesser(b, a) == both


def test_whatever_two_sides_allow_together_each_of_them_allows():
    values = [False, A, WILD, ("*.b.example.org", "data.example.org:80"), ("a.b.example.org:80",), "internet", "host"]
    names = ["data.example.org", "a.b.example.org", "b.example.org", "example.org", "x.example.com"]
    for a, b, name, port in itertools.product(values, values, names, (80, 443, 8443)):
        assert allows(lesser(a, b), name, port) is (allows(a, name, port) and allows(b, name, port)), (a, b, name, port)


def test_a_network_is_shown_in_words():
    assert [describe_network(value) for value in (False, A, "internet", "host")] == [
        "none", "data.example.org", "internet (every public name)", "host (all that this machine reaches)",
    ]  # fmt: skip
