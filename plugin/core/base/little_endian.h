// Unsigned integers as little-endian bytes.
//
// Threads: any. Ownership: none.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace collab {

template <std::unsigned_integral U>
void store_little(std::span<std::byte> out, U value) {
  for (std::size_t i = 0; i < sizeof(U); ++i) out[i] = static_cast<std::byte>(std::uint64_t{value} >> (8 * i));
}

template <std::unsigned_integral U>
[[nodiscard]] U load_little(std::span<const std::byte> in) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(U); ++i) value |= std::to_integer<std::uint64_t>(in[i]) << (8 * i);
  return static_cast<U>(value);
}

}  // namespace collab
