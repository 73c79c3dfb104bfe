"""`kakeya-runner keygen`: the key that signs this runner's results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.host.places import open_route, policy_or_none, route_of, state_of
from bridge.cli.host.signing import enrol, own_name
from bridge.cli.screen.answer import Answer, Line, Talk
from bridge.runner.state.attestations import newest
from bridge.trust import runner_key as keys
from bridge.trust.keyring import pin
from bridge.trust.signing_key import key_id

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import KeygenOptions


def keygen(call: HostCall[KeygenOptions]) -> Answer:
    """Make or rotate the runner's key, show its public half, and write it into the bus record when a bus is named.

    Raises:
        UsageError: there is a key already and nobody asked to rotate it.
    """
    options, state, policy = call.options, state_of(call.options), policy_or_none(call.options)
    name = own_name() if policy is None else policy.name
    route, by = route_of(options, policy), None if policy is None else policy.identity.value
    bus = None if route is None else open_route(route, state, by=by)
    if options.agent is not None:
        record = keys.use_agent(state.identity, name, Path(options.agent))
    elif options.rotate:
        record = keys.rotate(state.identity, name)
    elif bus is not None and keys.has_key(state.identity):
        keys.publish_as(state.identity, name)
        record = newest(state.identity)  # there is one already, and it is only to be named on a bus
    else:
        record = keys.generate(state.identity, name)
    where = "the ssh-agent" if options.agent else f"{keys.key_path(state.identity)} (mode 600)"
    lines: list[Line] = [
        pin(record),
        Talk("note", f"key {key_id(record.public)[:16]} of {name}, private half in {where}"),
    ]
    if bus is not None:
        enrol(bus, state, name, call.note, sign=True)
    lines.append(Talk("note", f"requesters pin it with: kakeya-mac init --runner-key {pin(record)}"))
    return Answer(lines=lines)
