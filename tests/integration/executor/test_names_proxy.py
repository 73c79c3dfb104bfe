"""The proxy of a run by names, over real sockets: what it refuses, that it says why, and that it goes on."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import pytest

from bridge.executor.network import proxy as proxies
from bridge.executor.network.ledger import LISTED_MAX_COUNT, Ledger
from bridge.executor.network.proxy import NamesProxy
from tests.support.waiting import until
from tests.unit.bridge.executor.test_client_hello import hello

RULES = ("data.example.org", "*.example.net", "plain.example.org:80")
TARGET = b"CONNECT data.example.org:443 HTTP/1.1\r\n"
NOT_PUBLIC = "the name leads to an address that is not public"


class Site:
    """A proxy in front of an own server, which stands in for every public address."""

    def __init__(self, stack, network=RULES):
        self.ledger, self.lookups, self.answers, self.dialled = Ledger(), [], {}, []
        self.server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.place = self.server.getsockname()
        stack.enter_context(NamesProxy(network, self.ledger, self.look_up, self.dial).serve(self.listener))

    def dial(self, address, port):
        self.dialled.append((address, port))
        return connected(self.place)

    def look_up(self, name, port):
        self.lookups.append((name, port))
        return self.answers.get(name, ("93.184.216.34",))


def connected(place):
    client = socket.socket()
    try:
        client.connect(place)
    except OSError:
        client.close()
        raise
    return client


@pytest.fixture
def site():
    with contextlib.ExitStack() as stack:
        yield Site(stack)


def ask(site, data, *, finish=False):
    """Return the whole answer to what a client sends."""
    with connected(("127.0.0.1", site.port)) as client:
        client.settimeout(20)
        with contextlib.suppress(OSError):
            client.sendall(data)
            if finish:
                client.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while block := client.recv(65536):
                answer += block
        return answer


def refusals(site):
    return {(refused.target, refused.reason): refused.count for refused in site.ledger.use().refused}


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (b"GET http://data.example.org/ HTTP/1.1\r\nHost: data.example.org\r\n\r\n", 405, "the method GET"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400, "bytes came behind the request"),
        (b"CONNECT other.example.org:443 HTTP/1.1\r\n\r\n", 403, "may not reach this name and port"),
        (b"CONNECT data.example.org:22 HTTP/1.1\r\n\r\n", 403, "may not reach this name and port"),
        (b"CONNECT example.net:443 HTTP/1.1\r\n\r\n", 403, "may not reach this name and port"),
        (b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", 403, "is an address"),
        (b"CONNECT 2130706433:443 HTTP/1.1\r\n\r\n", 403, "is an address"),
        (b"CONNECT [::1]:443 HTTP/1.1\r\n\r\n", 403, "an address was asked for"),
        (b"CONNECT *:443 HTTP/1.1\r\n\r\n", 403, "is no host name"),
        (b"CONNECT *.example.net:443 HTTP/1.1\r\n\r\n", 403, "is no host name"),
        (b"CONNECT user@data.example.org:443 HTTP/1.1\r\n\r\n", 403, "without a scheme, a user or a path"),
        (b"CONNECT xn--dta-qla.example.org:443 HTTP/1.1\r\n\r\n", 403, "may not reach this name and port"),
        (b"CONNECT data.example.org.:443 HTTP/1.1\r\n\r\n", 403, "leave the dot at the end out"),
        (b"CONNECT data.example.org HTTP/1.1\r\n\r\n", 400, "no name with a port"),
        (b"CONNECT https://data.example.org:443/ HTTP/1.1\r\n\r\n", 403, "an address was asked for"),
        (b"CONNECT d\xc3\xa4ta.example.org:443 HTTP/1.1\r\n\r\n", 400, "no CONNECT request"),
        (b"CONNECT data.example.org:443 HTTP/2.0\r\n\r\n", 400, "no CONNECT request"),
        (b"CONNECT  data.example.org:443 HTTP/1.1\r\n\r\n", 400, "no CONNECT request"),
        (b"connect data.example.org:443 HTTP/1.1\r\n\r\n", 400, "no CONNECT request"),
        (TARGET + b"Content-Length: 5\r\n\r\n", 400, "has no content-length"),
        (TARGET + b"Transfer-Encoding: chunked\r\n\r\n", 400, "has no transfer-encoding"),
        (TARGET + b"Host: other.example.org:443\r\n\r\n", 400, "the Host header names another host"),
        (TARGET + b"A: b\r\n folded\r\n\r\n", 400, "a header line is malformed"),
        (TARGET + b"A : b\r\n\r\n", 400, "a header line is malformed"),
        (TARGET + b"A: b\nHost: other.example.org\r\n\r\n", 400, "a header line is malformed"),
        (TARGET + b"A: \0\r\n\r\n", 400, "a header line is malformed"),
        (TARGET + b"\r\n" + b"CONNECT other.example.org:443 HTTP/1.1\r\n\r\n", 400, "bytes came behind the request"),
        (b"\x16\x03\x01" + bytes(20), 400, "the request was cut off"),
    ],
)
def test_a_request_that_is_none_is_refused_with_the_reason_and_written_down(site, data, status, reason):
    answer = ask(site, data, finish=True)

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert reason.encode() in answer
    ((written, count),) = refusals(site).items()
    assert (reason in written[1], count) == (True, 1)
    assert site.lookups == []
    assert site.ledger.use().reached == ()


def test_a_gigabyte_of_header_is_cut_after_its_first_kilobytes(site):
    block = b"A: " + b"x" * 60_000 + b"\r\n"
    with connected(("127.0.0.1", site.port)) as client:
        client.settimeout(20)
        client.sendall(TARGET)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 30:
                client.sendall(block)
                sent += len(block)
    assert sent < 1 << 28

    assert refusals(site) == {("CONNECT data.example.org:443 HTTP/1.1", "a request of more than 8192 bytes"): 1}


def test_who_never_finishes_is_cut_off_and_keeps_nobody_waiting(site, monkeypatch):
    monkeypatch.setattr(proxies, "_FIRST_BYTES_S", 2.0)  # whoever sends something does so within it on a busy machine
    with connected(("127.0.0.1", site.port)) as silent:
        silent.sendall(TARGET + b"\r\n")  # at once: this too has no more time than the slow one
        assert silent.recv(100).startswith(b"HTTP/1.1 200 ")
        with connected(("127.0.0.1", site.port)) as slow:
            assert ask(site, b"CONNECT other.example.org:443 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")
            answer = b""
            while not answer:  # a byte now and then does not prolong the time for the whole
                with contextlib.suppress(OSError):
                    slow.sendall(b"C")
                slow.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    answer = slow.recv(1000)
        silent.settimeout(20)
        alert = silent.recv(100)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert alert[:1] == b"\x15"
    assert {reason for _target, reason in refusals(site)} == {
        "the run may not reach this name and port",
        "its first bytes: no TLS ClientHello within 2 s",
        "no whole request within 2 s",
    }


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("93.184.216.34", "169.254.169.254"),
        ("10.0.0.1", "192.168.0.1"),
        ("::ffff:10.0.0.1",),
        ("fe80::1%lo",),
        ("fd00::1",),
        (),
    ],
)
def test_a_name_that_leads_anywhere_else_than_to_public_addresses_is_refused_each_time(site, addresses):
    for answer in (addresses, ("93.184.216.34",), addresses):
        site.answers["data.example.org"] = answer
        whole = ask(site, TARGET + b"\r\n", finish=True)
        assert whole.startswith(b"HTTP/1.1 200 ") == (answer != addresses)
        assert (NOT_PUBLIC.encode() in whole) == (answer == addresses)

    assert site.lookups == [("data.example.org", 443)] * 3
    assert site.dialled == [("93.184.216.34", 443)]
    assert refusals(site)["data.example.org:443", NOT_PUBLIC] == 2


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello("other.example.org"), "a TLS ClientHello for another host"),
        (hello(None), "it names 0 hosts"),
        (b"GET / HTTP/1.1\r\n\r\n", "it is no TLS handshake"),
        (b"", "no TLS ClientHello"),
    ],
)
def test_a_tunnel_whose_first_bytes_name_another_host_closes_before_any_of_them_passes(site, first, reason):
    with connected(("127.0.0.1", site.port)) as client:
        client.settimeout(20)
        client.sendall(TARGET + b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        client.sendall(first)
        client.shutdown(socket.SHUT_WR)
        arrived, _ = site.server.accept()
        with arrived:
            assert arrived.recv(100) == b""
        assert client.recv(100) == b"\x15\x03\x01\x00\x02\x02\x31"

    assert refusals(site) == {("data.example.org:443", f"its first bytes: {reason}"): 1}
    assert site.ledger.use().reached == ()


def tunnel(site, name, port):
    client = connected(("127.0.0.1", site.port))
    client.settimeout(20)
    client.sendall(f"CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
    assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    return client


def test_bytes_pass_both_ways_each_end_ends_by_itself_and_all_is_counted(site):
    first, body = hello("a.example.net"), b"x" * 3_000_000
    with tunnel(site, "a.example.net", 443) as client:
        client.sendall(first)
        arrived, _ = site.server.accept()
        with arrived:
            received = bytearray()
            reading = threading.Thread(target=lambda: received.extend(read_all(arrived)))
            reading.start()
            client.sendall(body)
            client.shutdown(socket.SHUT_WR)
            reading.join(20)
            arrived.sendall(b"answer")
        assert read_all(client) == b"answer"
    until(lambda: site.ledger.use().reached[0].received_bytes == 6)

    (reached,) = site.ledger.use().reached
    assert bytes(received) == first + body
    assert (reached.host, reached.port, reached.connections) == ("a.example.net", 443, 1)
    assert reached.sent_bytes == len(first) + len(body)


def read_all(connection):
    data = bytearray()
    while block := connection.recv(1 << 20):
        data += block
    return bytes(data)


def test_what_is_not_spoken_in_tls_passes_on_the_port_for_that_alone(site):
    with tunnel(site, "plain.example.org", 80) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        arrived, _ = site.server.accept()
        with arrived:
            assert arrived.recv(100) == b"GET / HTTP/1.1\r\n\r\n"


def test_more_connections_than_a_run_may_have_are_told_so_and_the_others_go_on(site):
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [site.server.accept()[0].close() for _ in range(proxies.CONNECTIONS_MAX_COUNT)])
        for _ in range(proxies.CONNECTIONS_MAX_COUNT):
            stack.enter_context(tunnel(site, "plain.example.org", 80))
        assert ask(site, TARGET + b"\r\n").startswith(b"HTTP/1.1 503 ")
    until(lambda: ask(site, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 "))


def test_a_run_that_asks_for_ever_new_names_fills_no_record(site):
    for index in range(LISTED_MAX_COUNT + 5):
        ask(site, f"CONNECT n{index}.example.org:443 HTTP/1.1\r\n\r\n".encode())

    use = site.ledger.use()
    assert (len(use.refused), use.unlisted) == (LISTED_MAX_COUNT, 5)


def test_with_the_proxy_every_connection_ends():
    with contextlib.ExitStack() as outer:
        stack = contextlib.ExitStack()
        with stack:
            site = Site(stack)
            client = outer.enter_context(tunnel(site, "plain.example.org", 80))
            arrived, _ = site.server.accept()
            outer.enter_context(arrived)
        assert client.recv(10) == b""
        assert arrived.recv(10) == b""
        with pytest.raises(OSError, match="refused"):
            connected(("127.0.0.1", site.port))
    until(lambda: not {thread.name for thread in threading.enumerate()} & {"kakeya-proxy", "kakeya-tunnel"})


def test_a_real_client_speaks_tls_through_it(site):
    """The name that the client checks is the name that the proxy let through."""
    context = ssl.create_default_context()
    with tunnel(site, "data.example.org", 443) as client:
        thread = threading.Thread(target=lambda: site.server.accept()[0].close())  # noqa: PLW0108 - in the thread
        thread.start()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(client, server_hostname="data.example.org")
        thread.join()
    assert site.ledger.use().reached[0].host == "data.example.org"
