#include "collab/types.h"

#include <string_view>

namespace collab {

std::string to_hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(32);
  for (const std::uint64_t word : {digest.hi, digest.lo}) {
    for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[(word >> shift) & 0xF]);
  }
  return text;
}

std::string text_of(const ElementRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

}  // namespace collab
