"""Which transport is chosen from what is given, and that nothing goes over the open internet in the clear unasked."""

from __future__ import annotations

import pytest
from torch_collab import native
from torch_collab.network import links


def config(**knobs: str) -> native.Settings:
    return native.load_config({f"COLLAB_{name.upper()}": value for name, value in knobs.items()}, {})


KEY = "clb_" + "k" * 40


@pytest.fixture(autouse=True)
def ucx_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "ucx_problem", lambda: None)


def test_ucx_is_used_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_at() -> None:
        raise AssertionError("UCX is not opened unasked, even to look")

    monkeypatch.setattr(native, "ucx_problem", looked_at)
    assert links.choose(config()).kind == "tcp"
    assert links.choose(config(coordinator="10.1.2.3:29400,[fd00::1]:29400")).kind == "tcp"
    assert links.make(config(), "")["kind"] == "tcp"


@pytest.mark.parametrize(("transport", "kind"), [("auto", "tcp"), ("tcp", "tcp"), ("ucx", "ucx")])
def test_the_chosen_transport_is_made(transport: str, kind: str) -> None:
    assert links.make(config(transport=transport), "")["kind"] == kind


def test_a_key_asks_for_encryption() -> None:
    choice = links.choose(config(token=KEY))
    assert choice.kind == "tcp" and "encrypted by COLLAB_TOKEN" in choice.reason and KEY not in str(choice)


@pytest.mark.parametrize("key", [{"token": KEY}, {"token_file": "/key"}, {"tls_cert": "/cert"}])
@pytest.mark.parametrize("transport", ["ucx", "gloo"])
def test_a_key_is_not_dropped_silently(transport: str, key: dict[str, str]) -> None:
    name = f"COLLAB_{next(iter(key)).upper()}"
    with pytest.raises(RuntimeError, match=rf"{name} .*{transport} .*\[link\.key-unused\]"):
        links.choose(config(transport=transport, **key), one_world=True)
    choice = links.choose(config(transport=transport, insecure="1", **key), one_world=True)
    assert choice.kind == transport and choice.key_unused
    assert f"not encrypted: {name} is given and not used" in choice.reason


@pytest.mark.parametrize("transport", ["auto", "ucx", "tcp", "gloo"])
def test_an_unencrypted_link_is_called_so(transport: str) -> None:
    choice = links.choose(config(transport=transport), one_world=True)
    assert "not encrypted" in choice.reason and not choice.key_unused


def test_tcp_is_chosen_without_ucx_and_ucx_by_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "ucx_problem", lambda: "no libucp.so")
    assert links.choose(config()).kind == "tcp"
    with pytest.raises(RuntimeError, match=r"no libucp.so.*\[link\.ucx-missing\]"):
        links.choose(config(transport="ucx"))


def test_gloo_joins_one_world_only() -> None:
    assert links.choose(config(transport="gloo"), one_world=True).kind == "gloo"
    with pytest.raises(RuntimeError, match=r"\[link\.gloo-outside\]"):
        links.choose(config(transport="gloo"))


@pytest.mark.parametrize("transport", ["auto", "ucx", "tcp"])
@pytest.mark.parametrize(
    "knobs", [{"coordinator": "93.184.216.34:29400"}, {"advertise": "2606:4700::1111"}, {"advertise": "100.64.0.1"}]
)
def test_the_open_internet_needs_a_key_or_a_word(transport: str, knobs: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match=r"`collab token`.*\[link\.in-the-clear\]"):
        links.choose(config(transport=transport, **knobs))
    assert "not encrypted" in links.choose(config(transport=transport, insecure="1", **knobs)).reason
    assert links.choose(config(token=KEY, **knobs)).kind == "tcp"
