"""Which address others dial."""

from __future__ import annotations

import pytest
from torch_collab.network import addresses


def test_an_advertised_host_wins() -> None:
    assert addresses.dial_address("gpu7.example", "0.0.0.0:0", ["127.0.0.1:1"]) == "gpu7.example"


def test_a_definite_listening_address_is_what_others_dial() -> None:
    assert addresses.dial_address("", "192.0.2.7:29400", []) == "192.0.2.7"


def test_a_swarm_on_this_machine_is_dialled_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert addresses.dial_address("", "0.0.0.0:0", ["127.0.0.1:29400"]) == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert addresses.dial_address("", "0.0.0.0:0", []) == "127.0.0.1"


def test_an_unknown_host_says_what_to_set() -> None:
    with pytest.raises(ValueError, match=r"no route to no-such-host\.invalid .*\[rendezvous.no-route\]"):
        addresses.dial_address("", "0.0.0.0:0", ["no-such-host.invalid:1"])


@pytest.mark.parametrize(
    ("text", "expected"), [("h:1", ("h", 1)), ("[::1]:80", ("::1", 80)), ("127.0.0.1:65535", ("127.0.0.1", 65535))]
)
def test_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert addresses.split_host_port(text) == expected
    assert addresses.join_host_port(*expected) == text


@pytest.mark.parametrize("text", ["h", "h:", ":1", "h:x", ""])
def test_a_malformed_address_is_refused_with_what_came(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        addresses.split_host_port(text)


def test_an_invalid_port_is_refused_with_the_allowed_range() -> None:
    with pytest.raises(ValueError, match=r"expected a port of 0\.\.65535, got 'h:70000' \[knob\.host-port\]"):
        addresses.split_host_port("h:70000")
