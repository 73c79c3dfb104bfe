from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.executor.network.client_hello import NoClientHelloError, server_name


def hello(name="data.example.org", **options):
    """Return what a real TLS client sends first."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    context.verify_mode = ssl.CERT_REQUIRED if name is not None else ssl.CERT_NONE
    for option, value in options.items():
        setattr(context, option, value)
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name).do_handshake()
    return sent.read()


def in_records(data, size):
    """Return the same handshake in records of `size` bytes."""
    body = data[5:]
    blocks = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(data[:3] + len(block).to_bytes(2, "big") + block for block in blocks)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_names_its_host_however_its_message_is_cut(version):
    data = hello("Data.example.org", maximum_version=version)

    assert server_name(data) == "data.example.org"
    assert server_name(in_records(data, 7)) == "data.example.org"
    assert server_name(data + b"\x17\x03\x03\x00\x01x") == "data.example.org"
    assert {server_name(data[:length]) for length in range(len(data))} == {None}


def with_names(*names):
    """Return a ClientHello whose extension lists these names."""
    listed = b"".join(b"\0" + len(name).to_bytes(2, "big") + name for name in names)
    content = len(listed).to_bytes(2, "big") + listed
    extension = b"\0\0" + len(content).to_bytes(2, "big") + content
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(extension).to_bytes(2, "big") + extension
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\3\1" + len(message).to_bytes(2, "big") + message


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (hello(None), "names 0 hosts"),
        (with_names(b"a.example.org", b"b.example.org"), "names 2 hosts"),
        (with_names("dätä.example.org".encode()), "not ASCII"),
        (b"GET / HTTP/1.1\r\n", "no TLS handshake"),
        (b"SSH-2.0-x\r\n", "no TLS handshake"),
        (b"\x16\x02\x01\x00\x05hello", "no known version"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "no ClientHello"),
        (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "announces 16777215 bytes"),
        (b"\x16\x03\x01\x00\x08\x01\x00\x00\x04\x03\x03\x00\x00", "longer than what it lies in"),
    ],
)
def test_what_names_no_host_is_an_error_with_a_reason(data, why):
    with pytest.raises(NoClientHelloError, match=why):
        server_name(data)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_no_bytes_of_a_stranger_raise_anything_else(data, cut):
    for text in (data, b"\x16\x03\x01" + data, with_names(b"a.example.org")[:cut] + data):
        with contextlib.suppress(NoClientHelloError):
            assert server_name(text) is None or isinstance(server_name(text), str)
