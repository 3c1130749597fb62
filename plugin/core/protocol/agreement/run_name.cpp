#include "core/protocol/agreement/run_name.h"

namespace collab::protocol {
namespace {

constexpr int kRandomBits = 30;  // of 64: the seconds above them last for centuries
constexpr std::uint64_t kRandom = (std::uint64_t{1} << kRandomBits) - 1;

}  // namespace

RunId run_name(std::chrono::seconds since_1970, std::uint64_t random) {
  const std::uint64_t time = static_cast<std::uint64_t>(since_1970.count()) << kRandomBits;
  return RunId{time | (random >> (64 - kRandomBits))};
}

RunId run_name_after(RunId known, RunId own) {
  constexpr std::uint64_t kNoClockShows = std::uint64_t{1} << 63;  // the year 2242
  if (known < own || known.value >= kNoClockShows) return own;
  const std::uint64_t next_time = ((known.value >> kRandomBits) + 1) << kRandomBits;
  return RunId{next_time + (own.value & kRandom)};
}

}  // namespace collab::protocol
