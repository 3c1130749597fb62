"""Writes the codecs' golden files from the layouts in docs/protocol/codecs.md, with numpy: a second implementation.

    python tests/golden/codec/make.py

inputs.txt:       one line a case, "name hex", the float32 input as little-endian bytes.
long_inputs.txt:  the same, longer than a group of top-k's, for these codecs only.
CODEC.txt:        one line a case, "name payload decoded", both as hex: that input's payload, and what it decodes to.
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


def long_cases() -> dict[str, np.ndarray]:
    random = np.random.default_rng(20250202)
    # Sixteenths: many elements are as large as the smallest kept one. The second group is short and has a long gap.
    coarse = np.rint(random.standard_normal(4096 + 1900) * 16) / 16
    coarse[4096 + 40 : 4096 + 1850] = 0
    return {"coarse": coarse.astype(np.float32)}


def blocks_of(x: np.ndarray, block: int = BLOCK) -> list[np.ndarray]:
    return [x[i : i + block] for i in range(0, len(x), block)]


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


def word(value: np.float32) -> int:
    return int(np.float32(value).view(np.uint32))


def round_to_bf16(value: np.float32) -> np.float32:
    kept, lost = divmod(word(value), 1 << 16)
    kept += lost > 0x8000 or (lost == 0x8000 and kept % 2 == 1)
    return np.uint32(kept << 16).view(np.float32)


def packed(codes: list[int], block: int, bits: int) -> bytes:
    """The codes of one block: part after part of it, from the lowest bits up."""
    codes = codes + [0] * (block - len(codes))
    width = block * bits // 8
    return bytes(sum(codes[part * width + i] << (bits * part) for part in range(8 // bits)) for i in range(width))


def joined(values: list[bytes], scales: list[np.float32], decoded: list[np.ndarray]) -> tuple[bytes, np.ndarray]:
    payload = b"".join(values) + np.array([word(scale) >> 16 for scale in scales], "<u2").tobytes()
    return payload, np.concatenate([np.zeros(0, np.float32), *decoded]).astype(np.float32)


def int4(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    values, scales, decoded = [], [], []
    bound = np.uint32(0x7DFF0000).view(np.float32)
    for block in blocks_of(x, 128):
        largest = np.abs(block).max()
        if largest < 2.0**-123:
            scale, steps = np.float32(0), np.zeros(len(block), np.float32)
        else:
            scale = min(round_up_to_bf16(largest / np.float32(8)), bound)
            if not (block == -largest).any():
                scale = -scale
            steps = np.minimum(np.rint(block * (np.float32(1) / scale)), 7)
        values.append(packed([int(q) & 15 for q in steps], 128, 4))
        scales.append(scale)
        decoded.append(steps.astype(np.int8).astype(np.float32) * scale)
    return joined(values, scales, decoded)


def e3m0(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    values, scales, decoded = [], [], []
    bound = np.uint32(0x7F7F0000).view(np.float32)
    powers = np.concatenate([[0], 2.0 ** np.arange(-6, 1)])
    for block in blocks_of(x, 128):
        largest = np.abs(block).max()
        scale = np.float32(0) if largest < 2.0**-126 else min(round_up_to_bf16(largest), bound)
        codes = []
        for element in block:
            if scale == 0:
                codes.append(0)
                continue
            t = float(np.abs(element) * (np.float32(1) / scale))
            k = max(range(8), key=lambda k: (-abs(t - powers[k]), k))  # the nearest, the upper one of two
            codes.append(k + 8 if k > 0 and element < 0 else k)
        values.append(packed(codes, 128, 4))
        scales.append(scale)
        signed = np.array([(-1 if q > 8 else 1) * powers[q % 8] for q in codes], np.float32)
        decoded.append(signed * scale)
    return joined(values, scales, decoded)


def sum_in_lanes(terms: np.ndarray) -> np.float32:
    lanes = np.zeros(16, np.float32)
    for row in terms.reshape(4, 16):
        lanes = lanes + row
    for width in (8, 4, 2, 1):
        lanes = lanes[:width] + lanes[width : 2 * width]
    return lanes[0]


def int2(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    values, scales, decoded = [], [], []
    bound = np.uint32(0x7EAA0000).view(np.float32)
    for block in blocks_of(x, 64):
        used = len(block)
        magnitude = np.zeros(64, np.float32)
        magnitude[:used] = np.abs(block)
        small = magnitude * np.float32(2.0**-8)
        total = sum_in_lanes(small)
        large = magnitude >= total * (np.float32(320) / np.float32(used))
        weight = np.float32(used + 8 * int(large.sum()))
        fit = (total + np.float32(2) * sum_in_lanes(np.where(large, small, np.float32(0)))) / weight
        scale = min(round_to_bf16(fit * np.float32(256)), bound)
        if scale < 2.0**-126:
            scale = np.float32(0)
            codes, signed = [0] * used, np.zeros(used, np.float32)
        else:
            threes = magnitude[:used] >= np.float32(2) * scale
            codes = [int(np.signbit(v)) + 2 * int(t) for v, t in zip(block, threes, strict=True)]
            signed = np.where(np.signbit(block), -1, 1) * np.where(threes, 3, 1)
        values.append(packed(codes, 64, 2))
        scales.append(scale)
        decoded.append(signed.astype(np.float32) * scale)
    return joined(values, scales, decoded)


def as_bytes(bits: str) -> bytes:
    """A text of 0 and 1, the first one the lowest bit of the first byte."""
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))


def top_k(x: np.ndarray, keep: int, rice: int) -> tuple[bytes, np.ndarray]:
    payload, decoded = b"", np.zeros(len(x), np.float32)
    for first in range(0, len(x), 4096):
        group = x[first : first + 4096]
        magnitude = np.abs(group).astype(np.float64)
        order = sorted((i for i in range(len(group)) if magnitude[i] >= 2.0**-126), key=lambda i: (-magnitude[i], i))
        kept = sorted(order[: -(-len(group) * keep // 4096)])
        payload += bytes([len(kept)])
        if not kept:
            continue
        mean = sum(magnitude[i] for i in kept) / len(kept)
        parts = [
            [magnitude[i] for i in kept if magnitude[i] < mean],
            [magnitude[i] for i in kept if magnitude[i] >= mean],
        ]
        limit = np.uint32(0x7F7F0000).view(np.float32)
        means = [min(round_to_bf16(np.float32(sum(part) / len(part))), limit) if part else None for part in parts]
        lower = means[0] if parts[0] else means[1]
        upper = max(means[1] if parts[1] else lower, lower)
        payload += np.array([word(lower) >> 16, word(upper) >> 16], "<u2").tobytes()
        codes = low = high = ""
        following = 0
        for i in kept:
            is_upper = magnitude[i] >= mean
            codes += ("1" if group[i] < 0 else "0") + ("1" if is_upper else "0")
            gap = i - following
            following = i + 1
            low += format(gap % 2**rice, f"0{rice}b")[::-1]
            high += "0" * (gap >> rice) + "1"
            decoded[first + i] = np.copysign(upper if is_upper else lower, group[i])
        payload += as_bytes(codes) + as_bytes(low) + as_bytes(high)
    return payload, decoded


def topk64(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    return top_k(x, 64, 5)


def topk128(x: np.ndarray) -> tuple[bytes, np.ndarray]:
    return top_k(x, 128, 4)


def main() -> None:
    folder = Path(__file__).parent
    inputs = cases()
    long_inputs = long_cases()

    def as_hex(raw: bytes) -> str:
        return raw.hex() or "-"

    for file, vectors in (("inputs.txt", inputs), ("long_inputs.txt", long_inputs)):
        text = [f"{name} {as_hex(x.astype('<f4').tobytes())}\n" for name, x in vectors.items()]
        (folder / file).write_text("".join(text))
    named = {"int4-e3m0": e3m0} | {
        codec.__name__: codec for codec in (fp32, bf16, fp16, int8, int4, int2, topk64, topk128)
    }
    for name_of_codec, codec in named.items():
        text = []
        for name, x in (inputs | (long_inputs if codec in (topk64, topk128) else {})).items():
            payload, decoded = codec(x)
            text.append(f"{name} {as_hex(payload)} {as_hex(decoded.astype('<f4').tobytes())}\n")
        (folder / f"{name_of_codec}.txt").write_text("".join(text))


if __name__ == "__main__":
    main()
