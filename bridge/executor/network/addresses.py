"""Resolve names, and tell public addresses from those of this machine, its network and its cloud."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv6 networks that carry an IPv4 address, which a router on the way may take out again: RFC 4291, 6052, 8215.
_CARRIERS: Final = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))
# Public by the registry, and answered by a cloud's own machines on a rented box: metadata and DNS of Azure.
_OF_CLOUDS: Final = (ipaddress.IPv4Address("168.63.129.16"),)


def resolve(name: str, port: int) -> tuple[str, ...]:
    """Return a name's addresses as this machine's resolver gives them.

    Raises:
        OSError: there are none, or the resolver does not answer.
    """
    answers = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))


def is_public(text: str) -> bool:
    """Return whether an address, and every address that it carries, is one of the public internet."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # with a zone, as link-local ones have
        return False
    return all(_is_public(carried) for carried in _carried(address))


def is_own(text: str) -> bool:
    """Return whether an address is one of this machine's: what listens on all of them answers there too."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((text, 0))
        except OSError:
            return False
    return True


def _carried(address: Address) -> Iterator[Address]:
    yield address
    if not isinstance(address, ipaddress.IPv6Address):
        return
    inner = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()))
    yield from (carried for carried in inner if carried is not None)
    if any(address in network for network in _CARRIERS):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return True  # what it carries decides
    closed = address.is_multicast or address.is_reserved or address.is_unspecified or not address.is_global
    return not closed and address not in _OF_CLOUDS
