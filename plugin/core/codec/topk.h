// topk64, topk128: the 64 or 128 elements of the largest magnitude in each group of 4096, with two bits each. Meant for
// use with error feedback (the selection and the feedback are SparseLoCo's, arXiv:2508.15706).
//
// The payload is one piece for each group of 4096 elements, the last one maybe shorter, with nothing between. With K =
// 64, r = 5 (topk64) or K = 128, r = 4 (topk128), a piece of a group of m elements is
//
//   byte 0         c, the number of elements kept, at most ceil(m K / 4096); with c = 0 nothing follows
//   bytes 1, 2     the lower level, bytes 3, 4 the upper level: little-endian bf16, positive
//   ceil(2 c / 8)  bytes: two bits each, first element first, from the lowest bit of the first byte: the first is the
//                  sign, the second tells the upper level from the lower one
//   ceil(r c / 8)  bytes: the gaps' r low bits each, in the same order; a gap is the number of elements skipped since
//                  the last kept one
//   up to 63       bytes: for each gap, in the same order, (gap >> r) zeros and a one (Rice's code)
//
// Left-over bits in the last byte of each of the three are 0. Elements that are not kept are +0; the others are a level
// with a sign.
//
// Elements below 2^-126 in magnitude are never kept. Of the others the ceil(m K / 4096) largest are kept; of equal ones
// the first. The upper elements are those not below the mean of the kept magnitudes. A level is the mean of its
// elements: sums and quotients in binary64 and in order, then rounded to float32 and to nearest bf16, ties to even, at
// most 0x7F7F. A level without elements equals the other one; the upper level is at least the lower one.
//
// Refused, because never written: a length that is not the pieces'; c too large; a level that is denormal, negative or
// not finite; an upper level below the lower one, or another one when no element has it; an element behind the last;
// a bit left over that is 1.
// Threads: stateless, shared.
#pragma once

#include "core/codec/path.h"

namespace collab::codec::COLLAB_CODEC_PATH {

inline constexpr std::size_t kGroup = 4096;
inline constexpr std::int32_t kSmallestKept = 0x0080'0000;  // 2^-126

// How many of `magnitudes` reach `least`.
inline std::size_t count_from(const std::int32_t* magnitudes, std::size_t n, std::int32_t least) {
  std::int32_t count = 0;
  for (std::size_t i = 0; i < n; ++i) count += magnitudes[i] >= least ? 1 : 0;
  return static_cast<std::size_t>(count);
}

// The largest bound that at least `wanted` of the magnitudes reach, or a lower one that exactly `wanted` reach;
// `least` if fewer reach that. No magnitude is above `largest`.
inline std::int32_t bound_for(const std::int32_t* magnitudes, std::size_t n, std::size_t wanted, std::int32_t least,
                              std::int32_t largest) {
  std::int32_t low = least;
  std::int32_t high = largest + 1;
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    const std::size_t count = count_from(magnitudes, n, middle);
    (count >= wanted ? low : high) = middle;
    if (count == wanted) break;
  }
  return low;
}

// A group's elements and, for each of 512 columns, the largest magnitude of the elements 512 apart.
struct Group {
  static constexpr std::size_t kColumns = 512;
  static constexpr std::size_t kRows = kGroup / kColumns;

  float values[kGroup];
  std::int32_t columns[kColumns];

  [[nodiscard]] std::int32_t magnitude(std::size_t i) const {
    return static_cast<std::int32_t>(bits_of(values[i]) & kMagnitude);
  }

  template <typename In>
  void take(In in, std::size_t used) {
    for (std::size_t i = 0; i < kColumns; ++i) columns[i] = 0;
    for (std::size_t row = 0; row < kGroup; row += kColumns) {
      if (row + kColumns <= used) {
        for (std::size_t i = 0; i < kColumns; ++i) values[row + i] = in[row + i];
      } else {
        for (std::size_t i = 0; i < kColumns; ++i) values[row + i] = row + i < used ? in[row + i] : 0.0F;
      }
      for (std::size_t i = 0; i < kColumns; ++i) {
        const std::int32_t here = magnitude(row + i);
        columns[i] = columns[i] > here ? columns[i] : here;
      }
    }
  }

  [[nodiscard]] std::int32_t largest() const {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < kColumns; ++i) most = most > columns[i] ? most : columns[i];
    return most;
  }
};

// The indices of the `wanted` largest elements, ascending: a bound from the columns' maxima, which leaves few
// candidates, then the exact one from these.
struct Selection {
  std::uint16_t index[kGroup];
  std::int32_t magnitude[kGroup];
  std::size_t count;

  void take(const Group& group, std::int32_t largest, std::size_t wanted) {
    count = 0;
    if (largest < kSmallestKept) return;
    const std::int32_t bound = bound_for(group.columns, Group::kColumns, wanted, kSmallestKept, largest);
    gather(group, bound);
    if (count <= wanted) return;
    // All above the bound are kept, and of those equal to it the first ones.
    const std::int32_t exact = bound_for(magnitude, count, wanted, bound, largest);
    std::size_t equal = wanted - count_from(magnitude, count, exact + 1);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const bool keep = magnitude[i] > exact || (magnitude[i] == exact && equal > 0);
      if (magnitude[i] == exact && equal > 0) --equal;
      index[kept] = index[i];
      magnitude[kept] = magnitude[i];
      kept += keep ? 1 : 0;
    }
    count = kept;
  }

 private:
  void gather(const Group& group, std::int32_t bound) {
    std::uint16_t columns[Group::kColumns];
    std::size_t found = 0;
    for (std::size_t i = 0; i < Group::kColumns; ++i) {
      columns[found] = static_cast<std::uint16_t>(i);
      found += group.columns[i] >= bound ? 1 : 0;
    }
    std::uint64_t bitmap[kGroup / 64] = {};
    for (std::size_t j = 0; j < found; ++j) {
      for (std::size_t row = 0; row < kGroup; row += Group::kColumns) {
        const std::size_t i = row + columns[j];
        bitmap[i / 64] |= std::uint64_t{group.magnitude(i) >= bound} << (i % 64);
      }
    }
    for (std::size_t word = 0; word < kGroup / 64; ++word) {
      for (std::uint64_t left = bitmap[word]; left != 0; left &= left - 1) {
        const std::size_t i = word * 64 + static_cast<std::size_t>(__builtin_ctzll(left));
        index[count] = static_cast<std::uint16_t>(i);
        magnitude[count] = group.magnitude(i);
        ++count;
      }
    }
  }
};

// The two levels of a group's kept elements, as bf16, and the least magnitude of the upper elements.
struct Levels {
  std::uint32_t lower;
  std::uint32_t upper;
  double from;

  static std::uint32_t bf16_of(double mean) {
    const std::uint32_t bits = bits_of(static_cast<float>(mean));
    return smaller((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, 0x7F7F);
  }
  static double value_of(std::int32_t magnitude) { return float_of(static_cast<std::uint32_t>(magnitude)); }

  static Levels of(const Selection& kept) {
    double total = 0;
    for (std::size_t i = 0; i < kept.count; ++i) total += value_of(kept.magnitude[i]);
    const double mean = total / static_cast<double>(kept.count);
    double sums[2] = {0, 0};
    std::size_t counts[2] = {0, 0};
    for (std::size_t i = 0; i < kept.count; ++i) {
      const double value = value_of(kept.magnitude[i]);
      const std::size_t level = value >= mean ? 1 : 0;
      sums[level] += value;
      ++counts[level];
    }
    // Rounding may have put the mean of equal elements above or at all of them.
    const std::uint32_t lower = counts[0] > 0 ? bf16_of(sums[0] / static_cast<double>(counts[0])) : 0;
    const std::uint32_t upper = counts[1] > 0 ? bf16_of(sums[1] / static_cast<double>(counts[1])) : lower;
    return {counts[0] > 0 ? lower : upper, larger(lower, upper), mean};
  }
};

template <std::size_t kKept, std::size_t kRice>
struct TopK {
  static constexpr bool kFixedSize = false;
  static constexpr std::size_t kBlock = kGroup;
  static constexpr std::size_t kScaleBytes = 0;
  static constexpr std::size_t kHeader = 5;  // count and levels

  // A piece's kept elements.
  struct Piece {
    std::uint16_t index[kKept];
    float value[kKept];
    std::size_t count;
  };

  static constexpr std::size_t kept_of(std::size_t elements) { return (elements * kKept + kGroup - 1) / kGroup; }
  static constexpr std::size_t bytes_of(std::size_t bits) { return (bits + 7) / 8; }
  // Gaps add up to at most elements - count, so their high parts to that >> kRice.
  static constexpr std::size_t most_high_bytes(std::size_t elements, std::size_t count) {
    return bytes_of(count + ((elements - count) >> kRice));
  }
  static constexpr std::size_t before_high_bytes(std::size_t count) {
    return kHeader + bytes_of(2 * count) + bytes_of(kRice * count);
  }
  static constexpr std::size_t largest_piece(std::size_t elements) {
    return before_high_bytes(kept_of(elements)) + most_high_bytes(elements, kept_of(elements));
  }
  static std::size_t encoded_size(std::size_t n) {
    const std::size_t rest = n % kGroup;
    return n / kGroup * largest_piece(kGroup) + (rest == 0 ? 0 : largest_piece(rest));
  }

  template <typename In>
  static std::size_t encode(In in, std::size_t n, std::byte* out) {
    return encode_groups(in, n, out, nullptr);
  }

  template <typename In>
  static std::size_t encode_with_feedback(In in, const float* residual, std::size_t n, std::byte* out, float* next) {
    return encode_groups(Sum<In>{in, residual}, n, out, next);
  }

  template <typename Out>
  static std::size_t decode(const std::byte* in, std::size_t size, std::size_t n, Out out) {
    Piece piece;
    std::size_t at = 0;
    for (std::size_t first = 0; first < n; first += kGroup) {
      const std::size_t used = n - first < kGroup ? n - first : kGroup;
      const std::size_t length = read_piece(in + at, size - at, used, piece);
      if (length == 0) return first / kGroup;
      at += length;
      const Out here = out.from(first);
      if constexpr (Out::kOverwrites) {
        for (std::size_t i = 0; i < used; ++i) here.out[i] = 0.0F;
      }
      for (std::size_t i = 0; i < piece.count; ++i) here.put(piece.index[i], piece.value[i]);
    }
    return at == size ? kAllValid : (n + kGroup - 1) / kGroup;
  }

 private:
  // Unless it is null, `next` gets the residual: the part that the payload leaves out.
  template <typename In>
  static std::size_t encode_groups(In in, std::size_t n, std::byte* out, float* next) {
    Group group;
    Selection kept;
    Piece piece;
    std::size_t size = 0;
    for (std::size_t first = 0; first < n; first += kGroup) {
      const std::size_t used = n - first < kGroup ? n - first : kGroup;
      group.take(in.from(first), used);
      const std::int32_t largest = group.largest();
      if (largest >= static_cast<std::int32_t>(kInfinity)) return kNotFinite;
      kept.take(group, largest, kept_of(used));
      size += write_piece(group, kept, piece, out + size);
      if (next == nullptr) continue;
      for (std::size_t i = 0; i < used; ++i) next[first + i] = group.values[i];
      for (std::size_t i = 0; i < piece.count; ++i) {
        next[first + piece.index[i]] = group.values[piece.index[i]] - piece.value[i];
      }
    }
    return size;
  }

  static float value_of(std::uint32_t code, std::uint32_t lower, std::uint32_t upper) {
    return float_of(((code & 2) == 0 ? lower : upper) << 16 | (code & 1) << 31);
  }

  // Returns the length, and fills `piece` with the values written.
  static std::size_t write_piece(const Group& group, const Selection& kept, Piece& piece, std::byte* out) {
    piece.count = kept.count;
    out[0] = static_cast<std::byte>(kept.count);
    if (kept.count == 0) return 1;
    const Levels levels = Levels::of(kept);
    auto* const level = reinterpret_cast<Unaligned16*>(out + 1);
    level[0] = static_cast<std::uint16_t>(levels.lower);
    level[1] = static_cast<std::uint16_t>(levels.upper);
    std::uint8_t bits[largest_piece(kGroup) - kHeader] = {};
    std::uint8_t* const codes = bits;
    std::uint8_t* const low = codes + bytes_of(2 * kept.count);
    std::uint8_t* const high = low + bytes_of(kRice * kept.count);
    std::size_t low_bit = 0;
    std::size_t high_bit = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i < kept.count; ++i) {
      const std::size_t at = kept.index[i];
      const std::uint32_t upper = Levels::value_of(kept.magnitude[i]) >= levels.from ? 2 : 0;
      const std::uint32_t code = bits_of(group.values[at]) >> 31 | upper;
      piece.index[i] = kept.index[i];
      piece.value[i] = value_of(code, levels.lower, levels.upper);
      codes[i / 4] = static_cast<std::uint8_t>(codes[i / 4] | code << (2 * (i % 4)));
      const std::size_t gap = at - next;
      next = at + 1;
      const std::size_t low_part = (gap & ((1U << kRice) - 1)) << (low_bit % 8);
      low[low_bit / 8] = static_cast<std::uint8_t>(low[low_bit / 8] | low_part);
      if (low_part > 0xFF) low[low_bit / 8 + 1] = static_cast<std::uint8_t>(low_part >> 8);
      low_bit += kRice;
      high_bit += gap >> kRice;
      high[high_bit / 8] = static_cast<std::uint8_t>(high[high_bit / 8] | 1U << (high_bit % 8));
      ++high_bit;
    }
    const std::size_t length = static_cast<std::size_t>(high - bits) + bytes_of(high_bit);
    __builtin_memcpy(out + kHeader, bits, length);
    return kHeader + length;
  }

  // The next eight bytes, or fewer if `size` is smaller.
  static std::uint64_t word_at(const std::byte* in, std::size_t size) {
    if (size >= 8) return *reinterpret_cast<const Unaligned64*>(in);
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < size; ++i) word |= static_cast<std::uint64_t>(in[i]) << (8 * i);
    return word;
  }

  static bool nothing_above(std::byte last, std::size_t bits) {
    return bits % 8 == 0 || static_cast<std::uint32_t>(last) >> (bits % 8) == 0;
  }

  // Returns the length; 0 if no encoder writes such a piece.
  static std::size_t read_piece(const std::byte* in, std::size_t size, std::size_t used, Piece& piece) {
    if (size == 0) return 0;
    const auto count = static_cast<std::size_t>(in[0]);
    piece.count = count;
    if (count == 0) return 1;
    const std::size_t before = before_high_bytes(count);
    if (count > kept_of(used) || size < before) return 0;
    const auto* const level = reinterpret_cast<const Unaligned16*>(in + 1);
    const std::uint32_t lower = level[0];
    const std::uint32_t upper = level[1];
    if (lower < 0x0080 || upper < lower || upper > 0x7F7F) return 0;
    const std::byte* const codes = in + kHeader;
    const std::byte* const low = codes + bytes_of(2 * count);
    const std::byte* const high = in + before;
    if (!nothing_above(low[-1], 2 * count) || !nothing_above(high[-1], kRice * count)) return 0;

    const std::size_t most = most_high_bytes(used, count);
    const std::size_t high_bytes = size - before < most ? size - before : most;
    std::uint32_t all = 3;
    std::uint32_t any = 0;
    std::size_t found = 0;
    std::size_t next = 0;  // the least index of the next kept element
    std::size_t end = 0;   // the position after the last 1 bit
    for (std::size_t at = 0; found < count; at += 8) {
      if (at >= high_bytes) return 0;
      for (std::uint64_t left = word_at(high + at, high_bytes - at); left != 0 && found < count; left &= left - 1) {
        const std::size_t place = 8 * at + static_cast<std::size_t>(__builtin_ctzll(left));
        const std::size_t zeros = place - end;
        end = place + 1;
        const std::size_t low_bit = kRice * found;
        std::size_t two = static_cast<std::size_t>(low[low_bit / 8]);
        if (low_bit % 8 + kRice > 8) two |= static_cast<std::size_t>(low[low_bit / 8 + 1]) << 8;
        const std::size_t index = next + (zeros << kRice | (two >> (low_bit % 8) & ((1U << kRice) - 1)));
        if (index >= used) return 0;
        const std::uint32_t code = static_cast<std::uint32_t>(codes[found / 4]) >> (2 * (found % 4)) & 3;
        all &= code;
        any |= code;
        piece.index[found] = static_cast<std::uint16_t>(index);
        piece.value[found] = value_of(code, lower, upper);
        next = index + 1;
        ++found;
      }
    }
    if (!nothing_above(high[bytes_of(end) - 1], end)) return 0;
    if (((all & 2) != 0 || (any & 2) == 0) && lower != upper) return 0;
    return before + bytes_of(end);
  }
};

}  // namespace collab::codec::COLLAB_CODEC_PATH
