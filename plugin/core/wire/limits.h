// Size limits of everything on the wire. The decoder refuses larger input before it allocates; the encoder refuses to
// send it. Same numbers as in docs/protocol/wire.md.
// Threads: constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collab/transport.h"
#include "collab/types.h"

namespace collab::wire {

inline constexpr std::uint16_t kProtocolVersion = 1;

inline constexpr std::size_t kFrameHeaderBytes = 32;
inline constexpr std::size_t kMaxFrameBytes = kMaxHeadBytes;
inline constexpr std::size_t kMaxBodyBytes = kMaxFrameBytes - kFrameHeaderBytes;

inline constexpr std::size_t kMaxNameBytes = 256;     // swarms, sites, tensors, dtypes, settings
inline constexpr std::size_t kMaxAddressBytes = 256;  // "host:port"
inline constexpr std::size_t kMaxReasonBytes = 4096;  // sentences for people; longer ones are cut
inline constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxSettings = 256;
inline constexpr std::size_t kMaxModelEntries = 65536;
// The most bytes of a StatusReport's list of tensors: the rest of a frame after its JSON, settings and small fields.
inline constexpr std::size_t kMaxTensorsBytes = kMaxBodyBytes - kMaxJsonBytes - kMaxSettings * 1024;
inline constexpr std::size_t kMaxDims = 16;
inline constexpr std::uint64_t kMaxTerm = std::uint64_t{1} << 48;
// How far a rank's ballot may be above its hub's. For the terms of sites see term_limit.h.
inline constexpr std::uint64_t kMaxTermStep = std::uint64_t{1} << 24;
// The same for rounds: one per second for over a hundred years.
inline constexpr std::uint64_t kMaxRound = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kMaxRoundStep = std::uint64_t{1} << 32;
[[nodiscard]] inline constexpr bool is_too_far_ahead(RoundId said, RoundId known) {
  return said.value > known.value + kMaxRoundStep;
}
inline constexpr std::uint32_t kMaxGeneration = std::uint32_t{1} << 24;  // models that a run trains in turn
// The largest weight of a contribution, in samples: 2^53, up to which a double counts exactly; 4096 of them have a
// finite sum.
inline constexpr double kMaxWeight = 9'007'199'254'740'992.0;
inline constexpr std::size_t kMaxSites = 4096;    // members, participants, contributors
inline constexpr std::size_t kMaxSources = 64;    // of an anchor, in one InstallAnchor
inline constexpr std::size_t kMaxLacked = 64;     // sites whose parts an exchange lacks, in one Heartbeat
inline constexpr std::size_t kMaxRanks = 65536;   // of a world or a group of the collective hub
inline constexpr std::size_t kMaxGroups = 65536;  // of a world, pairs included
inline constexpr std::size_t kMaxSlices = 4096;
inline constexpr std::size_t kMaxProposals = 2;
inline constexpr std::size_t kMaxRecent = 8;
inline constexpr std::size_t kMaxSampledDelta = 256;
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;       // of a parameter vector
inline constexpr std::uint64_t kMaxChunkElements = std::uint64_t{1} << 26;  // with one byte each they fill a payload
inline constexpr std::uint32_t kMaxIntervalMs = 24 * 3600 * 1000;           // heartbeat and grace
inline constexpr std::uint32_t kMaxPeriod = 10'000;                         // steps, where the leader chooses
inline constexpr std::uint32_t kMillion = 1'000'000;                        // the whole, in parts per million
inline constexpr std::uint64_t kMaxMeasuredUs = 24ULL * 3600 * 1'000'000;   // of a step, of a round
inline constexpr std::uint32_t kMaxRateKbit = 1'000'000'000;                // a terabit per second

inline constexpr std::uint64_t kMaxFetchElements = std::uint64_t{1} << 24;  // as float32 they fill a payload

static_assert(kMaxRound + kMaxRoundStep < UINT64_MAX);
static_assert(kMaxChunkElements <= kMaxPayloadBytes);
static_assert(kMaxFetchElements * sizeof(float) <= kMaxPayloadBytes);

}  // namespace collab::wire
