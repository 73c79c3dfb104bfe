from __future__ import annotations

import base64
import itertools
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.executor.command.redaction import MASK, Redactor, contains_secret, patterns

SECRETS = st.text(min_size=4, max_size=24).filter(lambda text: len(text.encode()) >= 4)
# Few letters make overlaps, prefixes and repetitions likely.
DENSE_SECRETS = st.text(alphabet="ab", min_size=4, max_size=9)


def stream(text: bytes, secrets: list[str], cuts: list[int]) -> tuple[bytes, int]:
    redactor = Redactor(secrets)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    out = b"".join(redactor.feed(text[start:end]) for start, end in itertools.pairwise(edges))
    return out + redactor.end(), redactor.count


def encodings(secret: str, padding: bytes) -> list[bytes]:
    raw = secret.encode()
    return [
        raw,
        raw.hex().encode(),
        raw.hex().upper().encode(),
        base64.b64encode(padding + raw + padding),
        base64.urlsafe_b64encode(padding + raw),
        urllib.parse.quote(raw, safe="").encode(),
        urllib.parse.quote_plus(raw).encode(),
    ]


@given(
    secrets=st.lists(st.one_of(SECRETS, DENSE_SECRETS), min_size=1, max_size=3),
    pieces=st.lists(st.tuples(st.binary(max_size=12), st.integers(0, 6), st.binary(max_size=4)), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=40),
)
def test_no_encoding_of_a_secret_passes_however_the_stream_is_cut(secrets, pieces, cuts):
    text = b""
    for index, (plain, which, padding) in enumerate(pieces):
        text += plain + encodings(secrets[index % len(secrets)], padding)[which]
    shown, _ = stream(text, secrets, cuts)

    for secret in secrets:
        for pattern in patterns(secret):
            assert pattern not in shown.replace(MASK, b"\0\0")


@given(
    secrets=st.lists(DENSE_SECRETS, min_size=1, max_size=3),
    text=st.text(alphabet="abc", max_size=120),
    cuts=st.lists(st.integers(0, 120), max_size=30),
)
def test_how_the_stream_is_cut_changes_nothing(secrets, text, cuts):
    assert stream(text.encode(), secrets, cuts) == stream(text.encode(), secrets, [])


@given(text=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=20))
def test_a_stream_without_secrets_is_not_changed(text, cuts):
    assert stream(text, [], cuts) == (text, 0)
    if b"zq-unlikely" not in text:
        assert stream(text, ["zq-unlikely-secret"], cuts) == (text, 0)


def test_only_what_might_become_a_secret_is_held_back():
    redactor = Redactor(["hunter2-hunter2"])

    assert redactor.feed(b"nothing here\n") == b"nothing here\n"
    assert redactor.feed(b"see hunt") == b"see "
    assert redactor.feed(b"ing") == b"hunting"
    assert redactor.feed(b" hunter2-hunter") == b" "
    assert redactor.feed(b"2!") == MASK + b"!"
    assert redactor.count == 1


def test_an_endless_secret_does_not_hold_back_without_end():
    redactor = Redactor(["aaaaaaaa"])
    shown = b"".join(redactor.feed(b"a" * 1000) for _ in range(50)) + redactor.feed(b"b") + redactor.end()

    assert shown == MASK + b"b"
    assert redactor.count == 1


def test_overlapping_secrets_are_masked_as_one_stretch():
    assert stream(b"xabcdefghijx", ["abcdefg", "efghij"], [6]) == (b"x" + MASK + b"x", 1)


@pytest.mark.parametrize("padding", [b"", b"x", b"xy", b"xyz"])
def test_base64_is_masked_at_every_alignment(padding):
    text = base64.b64encode(padding + b"correct horse battery" + b"tail")

    shown, count = stream(text, ["correct horse battery"], list(range(len(text))))

    assert count == 1
    assert len(shown.replace(MASK, b"")) <= 2 * 4 + len(base64.b64encode(padding + b"tail"))


def test_json_escapes_and_single_lines_of_a_secret_are_masked():
    secret = 'first"line-of-key\nsecond line of the key\n'

    for text in (b'{"k": "first\\"line-of-key\\nsecond line of the key\\n"}', b"second line of the key"):
        shown, count = stream(text, [secret], [])
        assert count == 1
        assert b"second line" not in shown


def test_secrets_too_short_to_tell_from_text_are_not_masked():
    assert stream(b"a 123 b", ["123"], []) == (b"a 123 b", 0)


def test_a_file_that_shows_a_secret_is_recognised():
    assert contains_secret(b"..." + b"hunter2-hunter2".hex().encode(), ["hunter2-hunter2"])
    assert not contains_secret(b"harmless", ["hunter2-hunter2"])
