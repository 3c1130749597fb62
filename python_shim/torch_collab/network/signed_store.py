"""A torch Store with entries signed by the swarm's token: what is read was written by a holder of the token.

An entry is `CLS1`, 64 hexadecimal digits of HMAC-SHA256 over scope, name and value, and then the value itself. The
scope names the run that the entry belongs to, so an entry copied from another run, or to another name, is invalid.
Without a token entries are plain, and signed ones are refused. Counters, and the presence of an entry, cannot be
signed: anyone who reaches the port can count, delete and wait for ever, but is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch_collab.network.keys import SwarmKey

_MARK = b"CLS1"
_DIGITS = 64


class SignatureError(RuntimeError):
    """An entry is not of this swarm. The message, from "collab:" on, says where, which entry, and what to do."""


class SignedStore:
    """Threads: as the store below. `where` is the store's name in messages."""

    def __init__(self, store: Any, key: SwarmKey, scope: Sequence[str], where: str, prefix: str = "") -> None:
        self.plain = store  # torch's, for torch's own counters and for entries that must be readable without a token
        self.key = key
        self.where = where
        self._scope = tuple(scope)
        self._prefix = prefix

    def part(self, name: str) -> SignedStore:
        """A part of this store under a prefix, like a PrefixStore."""
        return SignedStore(self.plain, self.key, self._scope, self.where, self._name(name))

    # ---- as torch's Store --------------------------------------------------------------------------

    def set(self, name: str, value: str | bytes) -> None:
        self.plain.set(self._name(name), self._sign(name, value))

    def get(self, name: str) -> bytes:
        return self._open(name, self.plain.get(self._name(name)))

    def multi_get(self, names: Sequence[str]) -> list[bytes]:
        """All these entries must exist."""
        keys = [self._name(name) for name in names]
        texts = self.plain.multi_get(keys) if self.plain.has_extended_api() else [self.plain.get(key) for key in keys]
        return [self._open(name, text) for name, text in zip(names, texts, strict=True)]

    def compare_set(self, name: str, expected: str | bytes, value: str | bytes) -> bytes:
        """`expected` is the plain value; "" for no entry. Signatures are deterministic, so entries can be compared."""
        mine = self._sign(name, value)
        there = self._compare(name, self._sign(name, expected) if expected else "", mine)
        found = self._open(name, there)
        data = expected.encode() if isinstance(expected, str) else expected
        if expected and there != mine and found == data:  # signed with the previous token
            return self._open(name, self._compare(name, there, mine))
        return found

    def _compare(self, name: str, before: str | bytes, value: bytes) -> bytes:
        return bytes(self.plain.compare_set(self._name(name), before, value))

    def check(self, names: Sequence[str]) -> bool:
        return bool(self.plain.check([self._name(name) for name in names]))

    def wait(self, names: Sequence[str], timeout: timedelta | None = None) -> None:
        self.plain.wait([self._name(name) for name in names], *(() if timeout is None else (timeout,)))

    def add(self, name: str, amount: int) -> int:
        return int(self.plain.add(self._name(name), amount))

    @property
    def timeout(self) -> timedelta:
        found: timedelta = self.plain.timeout
        return found

    # ---- signatures --------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _sign(self, name: str, value: str | bytes) -> bytes:
        data = value.encode() if isinstance(value, str) else value
        secret = self.key.now().secret
        return _MARK + self._digits(secret, name, data) + data if secret else data

    def _digits(self, secret: bytes, name: str, value: bytes) -> bytes:
        made = hmac.new(secret, digestmod=hashlib.sha256)
        for text in (*self._scope, self._name(name)):
            data = text.encode()
            made.update(len(data).to_bytes(4, "little") + data)
        made.update(value)
        return made.hexdigest().encode()

    def _open(self, name: str, text: bytes) -> bytes:
        signed = text.startswith(_MARK)
        entry = f"collab: {self.where} holds an entry ({self._name(name)})"
        if not self.key.secret:
            if not signed:
                return text
            raise SignatureError(
                f"{entry} that was signed with a token, and {self.key.missing}. Give it the COLLAB_TOKEN "
                "(or COLLAB_TOKEN_FILE) that the others have [token.missing]"
            )
        value = text[len(_MARK) + _DIGITS :]
        digits = text[len(_MARK) : len(_MARK) + _DIGITS]
        key = self.key.now()
        for secret in (key.secret, key.older):
            if signed and secret and hmac.compare_digest(digits, self._digits(secret, name, value)):
                return value
        raise SignatureError(
            f"{entry} that was not signed with this swarm's token "
            f"({'another signature' if signed else 'no signature'}): a node there has another COLLAB_TOKEN, or none, "
            "or a stranger has written to it. Give all nodes the same token, and let only them reach the port "
            "[token.other-signature]"
        )
