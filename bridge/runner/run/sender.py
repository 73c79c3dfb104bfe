"""Who sent the request of one run, and whether the host's lists still say so while it waits and runs.

Lets a request in once, judges its code, honours a cancel only from those who may cancel. Starts nothing.
"""

from __future__ import annotations

import logging
from typing import Final

from bridge.bus.views import ReceivedRequest, RequestRef
from bridge.errors import InfrastructureError, PolicyRefusedError, RequestRejectedError
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.model import Preset
from bridge.presets.parameters import is_commit_id
from bridge.records.request import Request
from bridge.request import UNSIGNED
from bridge.request.cancel import parse_cancel
from bridge.runner.authorisation.code_trust import judge_base, judge_code
from bridge.runner.authorisation.names import check_rights, check_unlisted, counts_as, facts_for
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.authorisation.signers import UnlistedSigner
from bridge.runner.connection.link import BusLink
from bridge.runner.state.ledger import Ledger
from bridge.runner.state.log import for_run
from bridge.system.clock import Clock
from bridge.trust.ssh_signatures import Signer, trust_command

CANCEL_LOOK_S: Final = 5.0
_ASK_AGAIN_S: Final = 5.0  # after a list changed and nobody could tell what of a signature


class Sender:
    """The sender of one run's request.

    Args:
        rules: what the owner allows, and whose keys count.
        ledger: the requests that were let in.
        ref: the request.
    """

    def __init__(
        self,
        rules: OwnerRules,
        ledger: Ledger,
        link: BusLink,
        ref: RequestRef,
        *,
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._rules, self._ledger, self._link, self._ref = rules, ledger, link, ref
        self._clock, self._log = clock, for_run(log, ref.id)
        self._asked: tuple[Request, bytes, bytes] | None = None
        self._signer: Signer | None = None
        self._listed: Signer | None = None
        self._unlisted: UnlistedSigner | None = None
        self._stamp: tuple[object, ...] = ()
        self._rested_s = float("-inf")
        self._cancel_known: tuple[float, bool] | None = None
        self._not_counting: tuple[tuple[object, ...], set[str]] = ((), set())

    @property
    def signer(self) -> Signer | None:
        """Who signed the request, as far as this host verified it; None when it is unsigned."""
        return self._signer

    @property
    def asker(self) -> str:
        """Who asked, as records say it: a verified name, or ``unsigned`` with what an unlisted key calls itself."""
        if self._signer is not None:
            return self._signer.principal
        return UNSIGNED if self._unlisted is None else str(self._unlisted)

    def as_counted(self, request: Request) -> Request:
        """Return the request as the owner's programs get it: without a name that nobody verified."""
        return request if self._unlisted is None else request.evolve(principal=UNSIGNED, signer=None)

    def let_in(self, request: Request, data: bytes, signature: bytes | None, claim: str) -> None:
        """Verify the signature and write the request into the ledger; nothing has run before this.

        Args:
            request: what was asked.
            data: its stored bytes, the signed ones.
            signature: what was pushed beside them, or None.
            claim: the first commit of the claim chain.

        Raises:
            RequestRejectedError: it names a principal without a signature, or was let in before.
            PolicyRefusedError: the signature does not hold here and now.
            InfrastructureError: nobody can tell now whether it does.
        """
        self._stamp = self._rules.signers.stamp()
        self._listed = self._rules.signers.request(request, data, signature)
        self._signer = counts_as(self._rules.policy, self._listed)
        if signature is not None:
            self._asked = (request, data, signature)
            if self._listed is None:
                self._unlisted = self._rules.signers.unlisted(request, data, signature)
        principal = UNSIGNED if self._signer is None else self._signer.principal
        self._ledger.admit(request, data, claim, principal)

    def limited(self, request: Request, preset: Preset) -> PolicyFacts:
        """Return what a job spec of this sender depends on, after its rights were checked.

        Raises:
            PolicyRefusedError: the rules of its name do not let it ask for this.
            ParameterError: the parameters are not the preset's.
        """
        if self._rules.embedded:
            return self._rules.facts
        check_rights(self._rules.policy, self._listed, request, preset)
        if self._unlisted is not None and self._asked is not None:
            remedy = trust_command(self._asked[2], self._unlisted.name)
            check_unlisted(self._rules.policy, self.asker, preset, remedy)
        return facts_for(self._rules.policy, self._listed, self._rules.facts)

    def trust(self, request: Request, preset: Preset) -> Trust:
        """Return what is known of the sender and of the code a request brings.

        Raises:
            RemoteError: the bus did not give the commits to decide it.
        """
        name = self.asker
        key = None if self._signer is None else self._signer.fingerprint
        if preset.code == "host" or request.workload is None:
            return Trust(principal=name, signer=key)
        if self._rules.embedded:
            return Trust(principal=name, signer=key, why="embedded: the requester owns this machine")
        with self._link.lock:
            history = self._link.bus.history
            code = judge_code(self._rules.policy, self._rules.signers, history, self._ref, request.workload)
            for base in (request.params.get(one) for one in preset.commits):
                if code.trust_class == "trusted" and is_commit_id(base):  # resolving refuses any other value
                    code = judge_base(self._rules.policy, self._rules.signers, history, self._ref, str(base))
        return Trust(principal=name, signer=key, sent_code=code.trust_class, why=code.why)

    def no_longer(self) -> str | None:
        """Return why a signed request is no longer one this host accepts, or None; cheap while no list changes."""
        if self._asked is None or (stamp := self._rules.signers.stamp()) == self._stamp:
            return None
        if self._clock.steady_s() < self._rested_s:
            return None
        try:
            listed_now = self._rules.signers.request(*self._asked)
        except (PolicyRefusedError, RequestRejectedError) as error:
            return error.message
        except (InfrastructureError, OSError) as error:
            self._log.warning("whether its signature still counts is not known yet: %s", error)
            self._rested_s = self._clock.steady_s() + _ASK_AGAIN_S
            return None
        if self._listed is not None and listed_now is None:
            return f"the owner took the key {self._listed.fingerprint} of {self._listed.principal} off the lists"
        self._stamp = stamp
        return None

    def may_be_cancelled(self) -> bool:
        """Return whether a cancel that was seen counts: any for an unsigned run, a signed one where signatures are on.

        Reads them at most every few seconds: a cancel that does not count stays on the bus.
        """
        if self._signer is None and not self._rules.policy.require_signature:
            return True
        now_s = self._clock.steady_s()
        if self._cancel_known is None or (not self._cancel_known[1] and now_s - self._cancel_known[0] > CANCEL_LOOK_S):
            first = self._cancel_known is None
            self._cancel_known = (now_s, self._signed_cancel())
            if first and not self._cancel_known[1]:
                self._log.info("a cancel does not count: neither requester nor owner signed it")
        return self._cancel_known[1]

    def _signed_cancel(self) -> bool:
        """Read the cancels that were not read before: however many others push, the one that counts has its turn."""
        if (stamp := self._rules.signers.stamp()) != self._not_counting[0]:
            self._not_counting = (stamp, set())
        seen = self._not_counting[1]
        try:
            with self._link.lock:
                asked = self._link.bus.history.cancels(self._ref.id, seen)
            for one in asked:
                if self._counts(one):
                    return True
                seen.add(one.ref.oid)
        except (InfrastructureError, OSError):
            return False  # not known yet: what is not among the seen ones is read again
        return False

    def _counts(self, received: ReceivedRequest) -> bool:
        try:
            cancel = parse_cancel(received.data, run_id=self._ref.id, bus_id=self._link.record.bus_id)
            who = self._rules.signers.cancel(cancel, received.data, received.signature).principal
        except (RequestRejectedError, PolicyRefusedError):
            return False
        return who in self._rules.policy.owners or (self._signer is not None and who == self._signer.principal)
