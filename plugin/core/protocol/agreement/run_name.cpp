#include "core/protocol/agreement/run_name.h"

namespace collab::protocol {
namespace {

constexpr int kRandomBits = 20;  // of 64: the time above them has room for centuries

}  // namespace

RunId run_name(std::chrono::milliseconds since_1970, std::uint64_t random) {
  const std::uint64_t time = static_cast<std::uint64_t>(since_1970.count()) << kRandomBits;
  return RunId{time | (random >> (64 - kRandomBits))};
}

}  // namespace collab::protocol
