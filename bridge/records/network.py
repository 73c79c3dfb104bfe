"""What a run may reach: nothing, hosts by their names, every public name, or the host's whole network; and what it did.

The order is none < names < internet < host. Knows names and ports; addresses, and how any of it is enforced, are the
executor's.
"""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from bridge.records.base import Count, Record, Text

HTTPS_PORT: Final = 443
INTERNET_PORTS: Final = (80, HTTPS_PORT)
RULES_MAX_COUNT: Final = 64
_NAME_MAX_CHARS: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_WRITE: Final = 'write names (["data.example.org", "*.example.net"]), "internet" or "host"'


def split_port(text: str) -> tuple[str, int]:
    """Return the name and the port of ``name`` or ``name:port``.

    Raises:
        ValueError: what stands behind the colon is no port.
    """
    name, colon, port = text.partition(":")
    if not colon:
        return name, HTTPS_PORT
    if not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        raise ValueError(f"{text[:80]!r}: expected a port from 1 to 65535 behind the colon")
    return name, int(port)


def check_name(name: str) -> str:
    """Return a host name as it is compared: in lower case.

    Raises:
        ValueError: it is no full host name, with the reason.
    """
    shown = repr(name[:80])
    if "/" in name or "@" in name:
        raise ValueError(f"{shown}: a name stands alone, without a scheme, a user or a path")
    if not name.isascii():
        raise ValueError(f"{shown}: write the ASCII form of a name, with xn-- for what is none")
    if name.endswith("."):
        raise ValueError(f"{shown}: leave the dot at the end out")
    labels = name.lower().split(".")
    if name.startswith("[") or ":" in name or re.fullmatch(r"(0x[0-9a-f]+|[0-9]+)", labels[-1]):
        raise ValueError(f"{shown} is an address: names are checked before they are resolved, so a name is needed")
    if len(name) > _NAME_MAX_CHARS or len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{shown} is no host name of two parts or more, of letters, digits and hyphens")
    return name.lower()


def check_rule(text: str) -> str:
    """Return a rule as it is written down: ``name``, ``*.name``, each with ``:port`` unless that is 443.

    Raises:
        ValueError: it is none, with the reason.
    """
    if "://" in text:
        raise ValueError(f"{text[:80]!r}: leave the scheme out; the port says what is spoken")
    if text.count(":") > 1:
        raise ValueError(
            f"{text[:80]!r} is an address: names are checked before they are resolved, so a name is needed"
        )
    name, port = split_port(text)
    wild = name.startswith("*.")
    try:
        plain = check_name(name.removeprefix("*."))
    except ValueError as error:
        if wild or "*" in name:
            raise ValueError(
                f"{text[:80]!r}: a star stands for what is before a name of two parts or more (*.example.org); "
                'for every public name write network = "internet"'
            ) from error
        raise
    rule = f"*.{plain}" if wild else plain
    return rule if port == HTTPS_PORT else f"{rule}:{port}"


def check_network(value: Any) -> Any:
    """Return what a run may reach as it is written down; what is of another kind altogether is left to the field.

    Raises:
        ValueError: it is none of the four, with what to write.
    """
    if value is True:
        raise ValueError(f'true is not taken: {_WRITE}; "host" is what true was: all that this host reaches')
    if isinstance(value, str) and value not in ("internet", "host"):
        raise ValueError(f"{value[:80]!r}: {_WRITE}, or false")
    if not isinstance(value, list | tuple):
        return value
    if not value:
        raise ValueError(f"an empty list names nobody: write false, or {_WRITE}")
    if len(value) > RULES_MAX_COUNT:
        raise ValueError(f"{len(value)} names: at most {RULES_MAX_COUNT}, and a star stands for many")
    return tuple(check_rule(rule) if isinstance(rule, str) else rule for rule in value)


Network = Annotated[
    Literal[False] | Literal["internet", "host"] | tuple[str, ...],
    BeforeValidator(check_network),
]
"""``False``: none. Rules: TLS to hosts of these names. ``internet``: to every public name. ``host``: as the host."""


def allows(network: Network, name: str, port: int) -> bool:
    """Return whether a run may open a connection to a name; one to an address it may only as the host.

    Args:
        network: what it may reach.
        name: as `check_name` returns it.
        port: where to.
    """
    if isinstance(network, tuple):
        return any(port == rule_port and _covers(rule, name) for rule, rule_port in map(split_port, network))
    return network == "host" or (network == "internet" and port in INTERNET_PORTS)


def _covers(rule: str, name: str) -> bool:
    return name.endswith(rule[1:]) if rule.startswith("*.") else name == rule


def lesser(first: Network, second: Network) -> Network:
    """Return what both sides allow."""
    if first is False or second is False:
        return False
    if first == "host" or second == "host":
        return second if first == "host" else first
    if isinstance(first, tuple) and isinstance(second, tuple):
        shared = [rule for rule in first if any(_within(rule, outer) for outer in second)]
        shared += [rule for rule in second if any(_within(rule, outer) for outer in first)]
        return tuple(sorted(set(shared))) or False
    rules = first if isinstance(first, tuple) else second
    if not isinstance(rules, tuple):
        return "internet"
    return tuple(rule for rule in rules if split_port(rule)[1] in INTERNET_PORTS) or False


def _within(rule: str, outer: str) -> bool:
    """Whether every name and port that a rule allows is allowed by another one."""
    (name, port), (outer_name, outer_port) = split_port(rule), split_port(outer)
    return port == outer_port and (name == outer_name or _covers(outer_name, name.removeprefix("*")))


def describe_network(network: Network) -> str:
    """Return what a run may reach in the words of people."""
    if network is False:
        return "none"
    if isinstance(network, tuple):
        return ", ".join(network)
    return f"{network} (every public name)" if network == "internet" else "host (all that this machine reaches)"


class ReachedHost(Record):
    """What a run exchanged with one name and port, over all of its connections."""

    host: Text
    port: Count
    connections: Count
    sent_bytes: Count
    received_bytes: Count


class RefusedContact(Record):
    """What a run asked its proxy for in vain, and why; `count` times."""

    target: Text
    reason: Text
    count: Count


class NetworkUse(Record):
    """What a run did with its network, as its proxy saw it.

    Attributes:
        reached, refused: the first ones, in the order in which they came.
        unlisted: how many further connections, reached or refused, went to what is on neither list.
    """

    reached: tuple[ReachedHost, ...] = ()
    refused: tuple[RefusedContact, ...] = ()
    unlisted: Count = 0


def describe_use(network: Network, use: NetworkUse | None) -> str:
    """Return what a run could reach, and what it did with that, in one line for people."""
    words = describe_network(network)
    if use is None:
        return words
    if not use.reached and not use.refused:
        return f"{words}: nothing was asked for"
    parts = [
        f"{host.host}:{host.port} ({host.connections} connections, {host.sent_bytes} bytes sent, "
        f"{host.received_bytes} received)"
        for host in use.reached
    ]
    parts += [f"refused {contact.target or 'a request'}: {contact.reason} ({contact.count})" for contact in use.refused]
    parts += [f"{use.unlisted} more"] if use.unlisted else []
    return f"{words}: {'; '.join(parts)}"
