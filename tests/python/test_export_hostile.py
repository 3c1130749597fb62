"""`collab export` of files that somebody else has written: an error in words or a model, never a traceback."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_collab import native
from torch_collab.cli import main

START = 24  # of the header
FORMAT = 7
FLOATS = 24
MODEL: list[tuple[str, str, list[int], int]] = [
    ("layers.0.weight", "float32", [4, 4], 1),
    ("layers.0.bias", "bfloat16", [8], 1),
    ("mask", "bool", [2], 0),
]


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<H", len(raw)) + raw


def record() -> bytes:
    anchor = struct.pack("<QQQQ", 7, 3, 0, 0)
    voters = [(0, "paris", 11, 0), (2, "oslo", 12, 1)]
    body = struct.pack("<QQIQQ", 11, 5, 1, 1, 2) + anchor + struct.pack("<I", len(voters))
    for site, name, acceptor, left in voters:
        body += struct.pack("<I", site) + text(name) + struct.pack("<QB", acceptor, left)
    return body + struct.pack("<II", 0, 0)


def header(digest: tuple[int, int] = (0, 0), **changed: Any) -> bytes:
    model = changed.get("model", MODEL)
    # As long as is hashed in one way whichever the width: the low half of the 128 bits is the hash of 64.
    body = text("swarm-" * 40) + text("paris") + struct.pack("<QQ", changed.get("run", 7), changed.get("round", 3))
    body += struct.pack("<QQQQ", *digest, 1, 2) + struct.pack("<QB", changed.get("elements", FLOATS), 0)
    body += record() + struct.pack("<IQQ", 0, 0, 0) + struct.pack("<I", len(model))
    for name, dtype, shape, kind in model:
        body += text(name) + text(dtype) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        body += struct.pack("<BQQ", kind, 0, 0)
    return body


def sealed(body: bytes, floats: int = FLOATS) -> bytes:
    """With the hash that it should have, as a hostile writer would."""
    hashed = torch.frombuffer(bytearray(struct.pack("<I", FORMAT) + body), dtype=torch.uint8)
    sum64 = int(native.digest(hashed)[-16:], 16)
    start = b"collabSF" + struct.pack("<IIQ", FORMAT, len(body), sum64) + body
    vector = torch.arange(floats, dtype=torch.float32).numpy().tobytes()
    return start + bytes(-len(start) % 64) + vector


class Exporter:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self.out, self.capsys = folder / "paris.collab", folder / "model.pt", capsys
        # The digest of the vectors is in no header yet: the refusal names it.
        status, told = self.run(sealed(header()))
        found = re.search(r"have digest ([0-9a-f]{16})([0-9a-f]{16})", told)
        assert status == 1 and found, told
        self.digest = int(found[2], 16), int(found[1], 16)

    def run(self, content: bytes) -> tuple[int, str]:
        """Fails where there is more than one line, or anything is raised."""
        self.path.write_bytes(content)
        status = main(["export", "--state", str(self.path), "--out", str(self.out)])
        told = self.capsys.readouterr()
        line = told.out if status == 0 else told.err
        assert status in (0, 1) and line.startswith("collab:") and line.count("\n") == 1, told
        assert not list(self.out.parent.glob("*.partial"))
        return status, line

    def described(self, **changed: Any) -> tuple[int, str]:
        return self.run(sealed(header(self.digest, **changed)))


@pytest.fixture
def exporter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Exporter:
    return Exporter(tmp_path, capsys)


def test_a_sound_directory_is_exported(exporter: Exporter) -> None:
    status, told = exporter.described()
    assert status == 0, told
    state = torch.load(exporter.out)
    assert state["layers.0.weight"].tolist() == torch.arange(16.0).reshape(4, 4).tolist()
    assert state["layers.0.bias"].dtype == torch.bfloat16 and "mask" not in state


@pytest.mark.parametrize(
    "model",
    [
        [("w", dtype, [FLOATS], 1)]
        for dtype in ("nosuch", "nn", "Tensor", "__dict__", "", "int8", "bool", "complex64", "save", "float32\x1b[2J")
    ]
    + [[("w", "float32", shape, 1)] for shape in ([25], [], [2**40], [2**40] * 8, [0], [0, 2**40], [5, 5], [23])]
    + [[("w", "float32", [12], 1), ("w", "float32", [12], 1)], [], [("w", "float32", [FLOATS], 0)]],
)
def test_a_description_of_another_anchor_is_refused(exporter: Exporter, model: list[Any]) -> None:
    status, told = exporter.described(model=model)
    assert status == 1 and "\x1b" not in told, told


def test_mutated_exports_end_with_an_error(exporter: Exporter) -> None:
    chance = random.Random(20261123)
    sound = header(exporter.digest)
    ended = []
    for _ in range(600):
        body = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(body))
            kind = chance.randrange(4)
            if kind == 0:
                body[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif kind == 2:
                del body[at : at + chance.randint(1, 8)]
            else:
                body[at:at] = chance.randbytes(chance.randint(1, 8))
        content = bytearray(sealed(bytes(body)))
        if chance.random() < 0.2:  # what is behind the hash's back
            content[chance.randrange(len(content))] ^= 0xFF
        if chance.random() < 0.1:
            del content[chance.randrange(len(content)) :]
        ended.append(exporter.run(bytes(content))[0])
    assert 0 in ended and ended.count(1) > 100, "some are harmless, and many are not"
