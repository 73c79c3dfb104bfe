from __future__ import annotations

import pytest

from bridge.executor.network.addresses import is_own, is_public


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111"])
def test_public_addresses_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
        ),
        *("192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::"),
        "data.example.org",
    ],
)
def test_addresses_of_a_machine_its_network_and_its_cloud_are_not_in_any_form(address):
    assert not is_public(address)


@pytest.mark.enable_socket  # binds one without a peer
def test_an_address_of_this_machine_is_its_own():
    assert is_own("127.0.0.1")
    assert not is_own("93.184.216.34")
