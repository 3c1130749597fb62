"""Entries signed with the swarm's token: what is believed, and what is said of what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch.distributed import HashStore
from torch_collab import log
from torch_collab.cli import token
from torch_collab.network import keys
from torch_collab.network.keys import NO_KEY, SwarmKey, read_key
from torch_collab.network.signed_store import SignatureError, SignedStore

KEY = read_key({"COLLAB_TOKEN": "k" * 40}, {})
OTHER = read_key({"COLLAB_TOKEN": "o" * 40}, {})
CERTIFICATES = SwarmKey("certificates")
UNSIGNED = "not signed with this swarm's token"


@pytest.fixture
def store() -> HashStore:
    return HashStore()


def part(store: HashStore, key: SwarmKey, *scope: str) -> SignedStore:
    return SignedStore(store, key, scope or ("run", "nonce"), "the rendezvous at h:1").part("a")


def test_a_holder_of_the_key_reads_what_was_written(store: HashStore) -> None:
    part(store, KEY).set("name", "value")
    assert part(store, KEY).get("name") == b"value" and part(store, KEY).multi_get(["name"]) == [b"value"]
    assert part(store, KEY).check(["name"]) and not part(store, KEY).check(["other"])
    assert part(store, KEY).compare_set("name", "", "mine") == b"value", "it is there already"
    assert part(store, KEY).compare_set("name", "value", "next") == b"next"
    assert part(store, KEY).add("count", 2) == 2
    part(store, KEY).wait(["name"])


def test_the_bytes_are_those_of_the_document(store: HashStore) -> None:
    part(store, KEY).set("name", "value")
    digits = "b33227ad36fac53c5a72b636edbbc951f412937ffa8461f044203095247b123f"  # by hashlib: the token is stretched
    assert store.get("a/name") == f"CLS1{digits}value".encode()


def test_readers_with_another_key_with_none_and_entries_without_a_signature(store: HashStore) -> None:
    part(store, KEY).set("name", "value")
    with pytest.raises(SignatureError, match=rf"the rendezvous at h:1 holds an entry \(a/name\).*{UNSIGNED}.*another"):
        part(store, OTHER).get("name")
    with pytest.raises(SignatureError, match=r"signed with a token, and this node has none.*\[token.missing\]"):
        part(store, NO_KEY).get("name")
    with pytest.raises(SignatureError, match="this node has certificates and no token"):
        part(store, CERTIFICATES).get("name")
    part(store, NO_KEY).set("plain", "value")
    with pytest.raises(SignatureError, match=rf"{UNSIGNED} \(no signature\).*\[token.other-signature\]"):
        part(store, KEY).get("plain")
    assert part(store, CERTIFICATES).get("plain") == b"value"


def test_a_value_a_stranger_put_first_is_not_believed(store: HashStore) -> None:
    store.compare_set("a/list", "", '{"id": "x", "closer": "", "nodes": []}')
    with pytest.raises(SignatureError, match=UNSIGNED):
        part(store, KEY).compare_set("list", "", "ours")


@pytest.mark.parametrize(
    ("name", "scope", "change"),
    [
        ("other", ("run", "nonce"), lambda text: text),  # moved to another name
        ("name", ("run2", "nonce"), lambda text: text),  # seen in another run
        ("name", ("run", "nonce2"), lambda text: text),  # seen in an earlier meeting of this run
        ("name", ("runn", "once"), lambda text: text),  # the parts are told apart
        ("name", ("run", "nonce"), lambda text: text + b"!"),
        ("name", ("run", "nonce"), lambda text: b"CLS1" + b"0" * 64 + text[68:]),
        ("name", ("run", "nonce"), lambda text: text[:30]),
        ("name", ("run", "nonce"), lambda text: b"CLS1"),
        ("name", ("run", "nonce"), lambda text: b"CLS1" + "é".encode() * 32 + text[68:]),
    ],
)
def test_an_entry_that_was_moved_or_changed_is_refused(
    store: HashStore, name: str, scope: tuple[str, ...], change: Callable[[bytes], bytes]
) -> None:
    part(store, KEY).set("name", "value")
    store.set(f"a/{name}", change(store.get("a/name")))
    with pytest.raises(SignatureError, match=UNSIGNED):
        part(store, KEY, *scope).get(name)


def test_where_the_key_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("k" * 40 + "\r\n")
    assert read_key({"COLLAB_TOKEN_FILE": str(file)}, {}) == KEY
    assert read_key({"COLLAB_TOKEN": "o" * 40}, {"token": "k" * 40}) == KEY, "options win"
    assert KEY != OTHER and KEY.kind == "token" and len(KEY.secret) == 32 and "secret" not in repr(KEY)
    assert read_key({}, {}) == NO_KEY
    assert read_key({"COLLAB_TLS_CERT": "c.pem"}, {}) == CERTIFICATES


def test_a_token_is_replaced_without_a_stop(
    store: HashStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keys, "_LOOK_AGAIN_SECONDS", 0.0)
    old, new = token.make(), token.make()
    only = {text: read_key({"COLLAB_TOKEN": text}, {}) for text in (old, new)}
    file = tmp_path / "swarm.key"
    file.write_text(old + "\n")
    key = read_key({"COLLAB_TOKEN_FILE": str(file)}, {})
    part(store, key).set("name", "value")
    token.rotate(file, new)
    assert file.read_text().split() == [new, old] and file.stat().st_mode & 0o077 == 0
    assert part(store, key).get("name") == b"value", "signed with the older one"
    assert part(store, key).compare_set("name", "value", "next") == b"next"
    assert part(store, only[new]).get("name") == b"next", "the first one signs"
    part(store, only[old]).set("late", "value")
    assert part(store, key).get("late") == b"value", "of a node that has not got the file yet"
    file.write_text("short\n")
    assert part(store, key).get("late") == b"value"
    assert log.flush() and "[token.changed-unfit]" in caplog.text
    file.write_text(new + "\n")
    with pytest.raises(SignatureError, match=UNSIGNED):
        part(store, key).get("late")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("", "is empty"),
        ("short", "could be guessed"),
        ("k" * 5000, "too long"),
        (f"{'k' * 40}\n" * 3, "holds 3 tokens"),
    ],
)
def test_a_file_without_a_usable_key_is_refused_with_the_reason(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_key({"COLLAB_TOKEN_FILE": str(file)}, {})


def test_a_token_and_a_file_of_it_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="both set"):
        read_key({"COLLAB_TOKEN": "k" * 40, "COLLAB_TOKEN_FILE": "f"}, {})
