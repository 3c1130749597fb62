#include "collab/types.h"

#include "core/base/text.h"

namespace collab {

std::string to_hex(const Digest& digest) { return hexadecimal(digest.hi) + hexadecimal(digest.lo); }

std::string text_of(const ElementRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

}  // namespace collab
