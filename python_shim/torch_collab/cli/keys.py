"""Looks at the swarm's token and certificates as this site would use them; nothing is sent."""

from __future__ import annotations

import contextlib
import os
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

from torch_collab import native
from torch_collab.network.keys import CERTIFICATES, KNOBS

_FILES = ("token_file", *CERTIFICATES)
_SECRET = ("token_file", "tls_key")


def files_of(config: native.Settings) -> dict[str, str]:
    """Paths of token and certificate files, by knob, of the knobs that are set."""
    return {name: value for name, value, _ in config.values if name in _FILES and value}


def is_given(config: native.Settings) -> bool:
    return any(value for name, value, _ in config.values if name in KNOBS)


def unreadable(path: str) -> str | None:
    """Why the file cannot be read, or None."""
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def exposed(knob: str, path: str) -> str | None:
    """Which others can read a file that only its owner should read, or None."""
    if knob not in _SECRET:
        return None
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if not mode & 0o077:
        return None
    return f"others on this machine can read it or change it (mode {mode:04o}): chmod 600 {path}"


def expiry(files: dict[str, str]) -> datetime:
    """When this site's certificate expires.

    Two ends in this process shake hands with it, so that dialler and listener both check it against the authority, as
    other sites do. Raises ValueError with the message of the end that refuses.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # any certificate of the authority will do
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        for context in (client, server):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(files["tls_cert"], files["tls_key"])
            context.load_verify_locations(files["tls_ca"])
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # any certificate in that file is an authority
        dialler = client.wrap_bio(to_client, to_server)
        listener = server.wrap_bio(to_server, to_client, server_side=True)
        for end in (dialler, listener, dialler, listener):  # hello; answer; finished; verified
            _greet(end)
    except ssl.SSLCertVerificationError as error:
        raise _unfit(files, error.verify_message) from None
    except ssl.SSLError as error:
        raise ValueError(f"COLLAB_TLS_CERT={files['tls_cert']} cannot be used: {error} [tls.unusable]") from None
    # Python has no setting for the depth, and hides the chain before 3.13.
    if len(getattr(dialler, "_sslobj").get_verified_chain()) > 2:  # noqa: B009
        raise _unfit(files, "no certificate in COLLAB_TLS_CA signed it directly")
    until = ssl.cert_time_to_seconds(str((dialler.getpeercert() or {})["notAfter"]))
    return datetime.fromtimestamp(until, UTC)


def _unfit(files: dict[str, str], why: str) -> ValueError:
    return ValueError(
        f"COLLAB_TLS_CERT={files['tls_cert']}: {why}; other sites check it against "
        f"COLLAB_TLS_CA={files['tls_ca']}, both when it dials and when it is dialled [tls.unfit]"
    )


def _greet(end: ssl.SSLObject) -> None:
    with contextlib.suppress(ssl.SSLWantReadError):
        end.do_handshake()
