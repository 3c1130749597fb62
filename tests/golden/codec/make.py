"""Writes the codecs' golden files from the layouts in PROTOCOL.md, with numpy: a second implementation.

    python tests/golden/codec/make.py

inputs.txt:  one line a case, "name hex", the float32 input as little-endian bytes.
CODEC.txt:   one line a case, "name payload decoded", both as hex; the payload of that input, and what it decodes to.
A change of these files is a change of the wire format: see CHANGELOG.md ("Wire").
"""

from pathlib import Path

import numpy as np

BLOCK = 256
FLOAT_MAX = np.finfo(np.float32).max
DENORMAL = np.float32(2.0**-149)


def cases() -> dict[str, np.ndarray]:
    random = np.random.default_rng(20250101)

    def normal(n: int, scale: float = 1.0) -> np.ndarray:
        return (random.standard_normal(n) * scale).astype(np.float32)

    wide = (random.standard_normal(300) * 2.0 ** random.integers(-140, 120, 300)).astype(np.float32)
    ties = np.concatenate([np.arange(-127.5, 128, 1.0), [127.0]]).astype(np.float32)
    half_ties = (1.0 + (2.0 * np.arange(64) + 1.0) * 2.0**-11).astype(np.float32)
    bf16_ties = (1.0 + (2.0 * np.arange(64) + 1.0) * 2.0**-8).astype(np.float32)
    return {
        "empty": np.zeros(0, np.float32),
        "one": np.array([3.14159274], np.float32),
        "zeros": np.zeros(257, np.float32),
        "signed_zeros": np.array([0.0, -0.0, 1.0, -0.0], np.float32),
        "normal_255": normal(255),
        "normal_256": normal(256),
        "normal_257": normal(257),
        "small_deltas": normal(300, 2e-6),
        "large_deltas": normal(300, 1e4),
        "wide_range": wide,
        "integer_ties": ties,
        "half_ties": np.concatenate([half_ties, -half_ties]),
        "bf16_ties": np.concatenate([bf16_ties, -bf16_ties]),
        "denormals": (np.array([1, 2, 3, 5, 1000, 2**22, 2**23 - 1], np.float64) * 2.0**-149).astype(np.float32),
        "one_denormal": np.array([-DENORMAL], np.float32),
        "smallest_normals": np.array([2.0**-126, -(2.0**-126), 1.5 * 2.0**-126, 2.0**-119, DENORMAL], np.float32),
        "largest": np.array([FLOAT_MAX, -FLOAT_MAX, 1.0, DENORMAL, 2.0**127, FLOAT_MAX / 3], np.float32),
        "one_large_among_small": np.concatenate([normal(100, 1e-3), [1e6], normal(150, 1e-3)]).astype(np.float32),
    }


def blocks_of(x: np.ndarray) -> list[np.ndarray]:
    return [x[i : i + BLOCK] for i in range(0, len(x), BLOCK)]


def fp32(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    return x.astype("<f4").tobytes(), x


def bf16(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    words = []
    for bits in x.view(np.uint32).tolist():
        sign, magnitude = bits >> 31, bits & 0x7FFFFFFF
        kept, lost = divmod(magnitude, 1 << 16)
        kept += lost > 0x8000 or (lost == 0x8000 and kept % 2 == 1)
        words.append(sign << 15 | min(kept, 0x7F7F))
    encoded = np.array(words, "<u2")
    return encoded.tobytes(), (encoded.astype(np.uint32) << 16).view(np.float32)


def fp16(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    values, exponents, decoded = [], [], []
    for block in blocks_of(x):
        wide = block.astype(np.float64)
        largest = np.abs(wide).max()
        k = 126 if largest == 0 else min(14 - (int(np.frexp(largest)[1]) - 1), 126)
        limit = 2.0**15 - 2.0**4 if k == -113 else 2.0**15
        halves = np.clip((wide * 2.0**k).astype(np.float16).astype(np.float64), -limit, limit).astype("<f2")
        values.append(halves.tobytes())
        exponents.append(k)
        decoded.append((halves.astype(np.float64) * 2.0**-k).astype(np.float32))
    payload = b"".join(values) + np.array(exponents, np.int8).tobytes()
    return payload, np.concatenate([np.zeros(0, np.float32), *decoded])


def round_up_to_bf16(value: np.float32) -> np.float32:
    bits = int(value.view(np.uint32))
    return np.uint32(-(-bits // 65536) * 65536).view(np.float32)


def int8(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    values, scales, decoded = [], [], []
    smallest, bound = np.float32(2.0**-126), np.uint32(0x7C010000).view(np.float32)
    for block in blocks_of(x):
        largest = np.abs(block).max()
        if largest == 0:
            scale, steps = np.float32(0), np.zeros(len(block), np.float32)
        else:
            scale = min(max(round_up_to_bf16(largest / np.float32(127)), smallest), bound)
            steps = np.clip(np.rint(block * (np.float32(1) / scale)), -127, 127)
        values.append(steps.astype(np.int8).tobytes())
        scales.append(int(np.float32(scale).view(np.uint32)) >> 16)
        decoded.append(steps.astype(np.int8).astype(np.float32) * scale)
    payload = b"".join(values) + np.array(scales, "<u2").tobytes()
    return payload, np.concatenate([np.zeros(0, np.float32), *decoded])


def main() -> None:
    folder = Path(__file__).parent
    inputs = cases()

    def as_hex(raw: bytes) -> str:
        return raw.hex() or "-"

    text = [f"{name} {as_hex(x.astype('<f4').tobytes())}\n" for name, x in inputs.items()]
    (folder / "inputs.txt").write_text("".join(text))
    for codec in (fp32, bf16, fp16, int8):
        text = []
        for name, x in inputs.items():
            payload, decoded = codec(x)
            text.append(f"{name} {as_hex(payload)} {as_hex(decoded.astype('<f4').tobytes())}\n")
        (folder / f"{codec.__name__}.txt").write_text("".join(text))


if __name__ == "__main__":
    main()
