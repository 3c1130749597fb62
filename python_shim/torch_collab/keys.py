"""The swarm's key as the Python side uses it: to sign what nodes and ranks tell one another in torch's stores.

The links' own key is made of the same token by the transport `tcp`, under another label. Certificates are no secret
that all share: with them, as without a key, nothing is signed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_SALT = b"collab swarm key 1"
_PURPOSE = b"store entry"
_SHORTEST, _LONGEST = 32, 4096
_SPACE = b" \t\n\v\f\r"

KINDS = {
    "token": "has a swarm key (COLLAB_TOKEN)",
    "certificates": "has certificates (COLLAB_TLS_CERT)",
    "none": "has neither a swarm key nor certificates",
}


@dataclass(frozen=True)
class SwarmKey:
    kind: str  # one of KINDS
    secret: bytes = field(default=b"", repr=False)  # 32 bytes made of the token; empty without one

    @property
    def missing(self) -> str:
        """Why this process has no secret, in words."""
        return "this node has certificates and no token" if self.kind == "certificates" else "this node has none"


NO_KEY = SwarmKey("none")


def read_key(variables: Mapping[str, str], options: Mapping[str, str]) -> SwarmKey:
    """From COLLAB_ variables and the options of a process group, which win. Raises ValueError in words."""

    def given(name: str) -> str:
        return options.get(name, variables.get(f"COLLAB_{name.upper()}", ""))

    text, file = given("token").encode(), given("token_file")
    if file:
        if text:
            raise ValueError("collab: COLLAB_TOKEN and COLLAB_TOKEN_FILE are both set; set one of them")
        text = _contents(file)
    text = text.strip(_SPACE)
    if text:
        if len(text) < _SHORTEST:
            raise ValueError(
                f"collab: COLLAB_TOKEN: expected the text that `collab token` makes, got one of {len(text)} "
                f"characters; anything below {_SHORTEST} could be guessed"
            )
        return SwarmKey("token", hkdf(text, _SALT, _PURPOSE))
    if file:
        raise ValueError(f"collab: COLLAB_TOKEN_FILE: {file} is empty; make a token with `collab token`")
    return SwarmKey("certificates") if given("tls_cert") else NO_KEY


def hkdf(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """RFC 5869 with SHA-256, for one block of 32 bytes."""
    extracted = hmac.digest(salt, secret, hashlib.sha256)
    return hmac.digest(extracted, purpose + b"\x01", hashlib.sha256)


def _contents(file: str) -> bytes:
    try:
        with Path(file).open("rb") as stream:
            text = stream.read(_LONGEST + 1)
    except OSError as error:
        raise ValueError(f"collab: COLLAB_TOKEN_FILE: {file} cannot be read: {error.strerror}") from None
    if len(text) > _LONGEST:
        raise ValueError(f"collab: COLLAB_TOKEN_FILE: {file} is too long for a token")
    return text
