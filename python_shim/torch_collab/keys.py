"""The swarm's key as the Python side uses it: to sign what nodes and ranks tell one another in torch's stores.

The core makes it of the token, as it makes the links' own key under another label. Certificates are no secret that all
share: with them, as without a key, nothing is signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_collab import native

CERTIFICATES = ("tls_cert", "tls_key", "tls_ca")
KNOBS = ("token", "token_file", *CERTIFICATES)  # with them links are encrypted
_PURPOSE = "store entry"

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
    """From COLLAB_ variables and the options of a process group, which win. Raises ValueError in words.

    Looks at the key's knobs alone: who has another one wrong is still to tell the others so, signed.
    """
    names = {f"COLLAB_{name.upper()}": name for name in KNOBS}
    config = native.load_config(
        {variable: text for variable, text in variables.items() if variable in names},
        {name: text for name, text in options.items() if name in KNOBS},
    )
    if secret := native.swarm_secret(config, _PURPOSE):
        return SwarmKey("token", secret)
    certificates = any(name in CERTIFICATES and text for name, text, _ in config.values)
    return SwarmKey("certificates") if certificates else NO_KEY
