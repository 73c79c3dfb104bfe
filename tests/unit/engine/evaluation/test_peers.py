"""Every byte of a process nobody trusts is checked: one peer thread per lie, real pipes."""

from __future__ import annotations

import json
import os
import threading

import pytest

from engine.errors import PeerError, UsageError
from engine.isolation.peers import Ends, PipedPeer
from engine.measurement.drawn_prompts import MEMBERS, draw, words_of
from engine.types import StopReason

STOP = frozenset({1})
WORDS = tuple(sorted(f"w{chr(97 + a)}{chr(97 + b)}" for a in range(9) for b in range(9)))


class Talk:
    """A peer that says what a test wants, and a runner that says yes."""

    def __init__(self, says, grants=b"k", reply_s=240.0):
        self.pipes = [os.pipe() for _ in range(4)]
        (self.ask_r, self.ask_w), (self.reply_r, self.reply_w), (self.order_r, self.order_w), (done_r, self.done_w) = (
            self.pipes
        )
        self.says, self.grants, self.orders = says, grants, b""
        ends = Ends(self.ask_w, self.reply_r, self.order_w, done_r)
        self.peer = PipedPeer(ends, vocab_size=50, reply_s=reply_s)
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self._talk, self._grant)]
        for thread in self.threads:
            thread.start()

    def _talk(self):
        with os.fdopen(self.ask_r, "rb", closefd=False) as lines:
            for line in lines:
                self.says(self, json.loads(line))

    def _grant(self):
        while word := os.read(self.order_r, 1):
            self.orders += word
            os.write(self.done_w, self.grants)

    def reply(self, **value):
        os.write(self.reply_w, json.dumps(value).encode() + b"\n")

    def decode(self, budget=6):
        return list(self.peer.start((2, 3), budget, STOP).steps)

    def close(self):
        for end in (self.ask_w, self.order_w):
            os.close(end)
        for thread in self.threads:
            thread.join(5)


@pytest.fixture
def talk():
    made = []

    def start(says, **options):
        made.append(Talk(says, **options))
        return made[-1]

    yield start
    for conversation in made:
        conversation.close()


def replies(*groups):
    def says(talk, ask):
        for group in groups:
            talk.reply(tag=ask["tag"], tokens=group)

    return says


def test_tokens_arrive_in_steps_of_which_nothing_but_the_tokens_is_known(talk):
    steps = talk(replies([5], [6, 7], [8, 1])).decode()
    assert [step.tokens for step in steps] == [(5,), (6, 7), (8, 1)]
    assert (steps[0].prefill, steps[1].prefill) == (True, False)
    assert steps[-1].stop is StopReason.EOS
    assert all(step.accepted == step.drafted == step.target_forwards == 0 for step in steps)


def test_the_budget_ends_it_too_and_the_peer_can_be_asked_again(talk):
    conversation = talk(replies([5], [6, 7]))
    assert conversation.decode(3)[-1].stop is StopReason.BUDGET
    assert conversation.decode(3)[-1].stop is StopReason.BUDGET


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (([5, 6],), "the first token alone"),
        (([5], [6] * 9), "went on after the end"),
        (([5], [1, 6]), "went on after the end"),
        (([5], [50]), "outside of a vocabulary"),
        (([5], [-1]), "outside of a vocabulary"),
        (([5], [True]), "list of token ids"),
        (([5], ["6"]), "list of token ids"),
        (([5], []), "list of token ids"),
        ((None,), "list of token ids"),
    ],
)
def test_an_answer_that_is_none_is_refused(talk, groups, words):
    with pytest.raises(PeerError, match=words):
        talk(replies(*groups)).decode()


def test_silence_is_no_answer(talk):
    with pytest.raises(PeerError, match=r"did not reply within 0\.5 s"):
        talk(lambda talk, ask: None, reply_s=0.5).decode()


@pytest.mark.parametrize(
    "line", [b"[1]\n", b'"x"\n', b"nonsense\n", b"\xff\n", b"[" * 5000 + b"\n", b'{"tokens":[5]}\n']
)
def test_what_carries_no_tag_answers_nothing(talk, line):
    with pytest.raises(PeerError):
        talk(lambda talk, ask: os.write(talk.reply_w, line)).decode()


def test_the_answer_to_an_earlier_ask_is_refused(talk):
    tags = []

    def says(talk, ask):
        tags.append(ask["tag"])
        for tokens in ([5], [6, 1]):
            talk.reply(tag=tags[0], tokens=tokens)

    conversation = talk(says)
    conversation.decode()
    with pytest.raises(PeerError, match="does not carry the tag"):
        conversation.decode()


def test_an_answer_before_the_ask_is_refused(talk):
    conversation = talk(replies([5], [1]))
    conversation.reply(tag="0" * 32, tokens=[5])
    with pytest.raises(PeerError, match="replied to more than it was asked"):
        conversation.decode()


def test_a_flood_without_an_end_is_cut(talk):
    def says(talk, ask):
        for _ in range(4):
            os.write(talk.reply_w, b"x" * 30000)

    with pytest.raises(PeerError, match="longer than"):
        talk(says).decode()


def test_a_peer_that_hangs_up_has_ended(talk):
    with pytest.raises(PeerError, match="ended or closed"):
        talk(lambda talk, ask: os.close(talk.reply_w)).decode()


def test_a_peer_that_cannot_be_held_is_not_measured(talk):
    assert talk(replies()).peer.hold() is None
    conversation = talk(replies(), grants=b"x")
    with pytest.raises(PeerError, match="could not stop the peer"):
        conversation.peer.hold()


def test_started_by_hand_there_is_no_peer():
    with pytest.raises(UsageError, match="only a runner"):
        Ends.from_environment({})


def test_every_word_of_a_prompt_follows_from_the_nonce_and_is_drawn_once():
    text = draw("ab" * 32, 3, WORDS)
    assert text == draw("ab" * 32, 3, WORDS)
    assert len({draw("ab" * 32, number, WORDS) for number in range(50)}) == 50
    listed = text.split("fields = (")[1].rstrip(")").replace('"', "").split(", ")
    assert len(set(listed)) == MEMBERS
    assert set(listed) <= set(WORDS)


def test_words_come_from_headers_and_must_be_enough():
    header = 'class A:\n    """Hold one {}: {}.\n\n    Parts: x.\n    """\n'
    texts = tuple(header.format("a", ", ".join(WORDS[start : start + 9])) for start in range(0, 81, 9))
    assert words_of(texts) == WORDS
    with pytest.raises(UsageError, match="expected at least"):
        words_of(texts[:3])
