"""The key that signs messages between nodes and ranks in torch's stores. It is derived from the swarm's token.

The core derives it, as it derives the links' key under another label. Certificates hold no secret that all share: with
them, as without a token, nothing is signed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_collab import log, native

CERTIFICATES = ("tls_cert", "tls_key", "tls_ca")
KNOBS = ("token", "token_file", *CERTIFICATES)  # with any of these, links are encrypted
_PURPOSE = "store entry"
_LOOK_AGAIN_SECONDS = 1.0

KINDS = {
    "token": "has a token (COLLAB_TOKEN)",
    "certificates": "has certificates (COLLAB_TLS_CERT)",
    "none": "has neither a token nor certificates",
}


@dataclass(frozen=True)
class SwarmKey:
    kind: str  # one of KINDS
    secret: bytes = field(default=b"", repr=False)  # 32 bytes derived from the token; empty without one
    older: bytes = field(default=b"", repr=False)  # from the previous token, while that is still accepted
    file: _TokenFile | None = field(default=None, repr=False, compare=False)

    def now(self) -> SwarmKey:
        """The key from the token's file as it is now."""
        return self if self.file is None else self.file.key(self)

    @property
    def missing(self) -> str:
        """The reason why this process has no secret, as text."""
        return "this node has certificates and no token" if self.kind == "certificates" else "this node has none"


NO_KEY = SwarmKey("none")


def read_key(variables: Mapping[str, str], options: Mapping[str, str]) -> SwarmKey:
    """Reads COLLAB_ variables and the options of a process group, which win. Raises ValueError with a message.

    Reads only the knobs for token and certificates. A process with another knob wrong still tells the others, signed.
    """
    names = {f"COLLAB_{name.upper()}": name for name in KNOBS}
    config = native.load_config(
        {variable: text for variable, text in variables.items() if variable in names},
        {name: text for name, text in options.items() if name in KNOBS},
    )
    path = {name: text for name, text, _ in config.values}["token_file"]
    file = _TokenFile(path, config) if path else None
    if secrets := native.swarm_secrets(config.raw, _PURPOSE):
        return _by_token(secrets, file)
    certificates = any(name in CERTIFICATES and text for name, text, _ in config.values)
    return SwarmKey("certificates") if certificates else NO_KEY


def _by_token(secrets: list[bytes], file: _TokenFile | None) -> SwarmKey:
    """`secrets`: one or two; the first one signs."""
    return SwarmKey("token", secrets[0], secrets[1] if len(secrets) > 1 else b"", file)


class _TokenFile:
    """Reads the file again when it changes, at most once a second. A file that becomes invalid changes nothing.

    Threads: any; two that read at once do the same.
    """

    def __init__(self, path: str, config: native.Settings) -> None:
        self._path, self._config = path, config
        self._seen = self._stamp()
        self._looked = time.monotonic()
        self._latest: SwarmKey | None = None

    def key(self, first: SwarmKey) -> SwarmKey:
        if time.monotonic() >= self._looked + _LOOK_AGAIN_SECONDS:
            self._looked = time.monotonic()
            seen = self._stamp()
            if seen != self._seen:
                self._seen = seen
                self._read()
        return self._latest or first

    def _read(self) -> None:
        try:
            self._latest = _by_token(native.swarm_secrets(self._config.raw, _PURPOSE), self)
        except ValueError as error:
            log.warning(
                "COLLAB_TOKEN_FILE has changed, but its new contents cannot be used, so the old ones still apply: "
                f"{error} [token.changed-unfit]"
            )

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
