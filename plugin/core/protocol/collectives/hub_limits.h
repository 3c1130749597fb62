// How much of a hub's memory its ranks may take. Same numbers as in docs/protocol/collectives.md.
// Threads: constants.
#pragma once

#include <algorithm>
#include <cstddef>

namespace collab::protocol {

inline constexpr std::size_t kMaxHubPart = std::size_t{16} << 20;  // payload of one Contribute
inline constexpr std::size_t kMaxHubStep = std::size_t{64} << 20;  // payloads of a step, over its members

// Bytes of parts, with their texts, that the hub holds until all living ranks have taken the steps. The first limit is
// for one rank, the second for all groups and worlds together. Above the second limit a rank may still hold its equal
// share of it.
inline constexpr std::size_t kMaxRankParts = std::size_t{128} << 20;
inline constexpr std::size_t kMaxHubParts = std::size_t{512} << 20;
// The same limits for the hub's memory of a rank: its groups, completed steps, held results, closed groups, and waits
// for a sender.
inline constexpr std::size_t kMaxRankMemory = std::size_t{16} << 20;
inline constexpr std::size_t kMaxHubMemory = std::size_t{128} << 20;

// Approximate cost of each object, so that small ones are bounded, too.
inline constexpr std::size_t kPartCost = 8192;  // smallest buffer, names, and the text of its step's error
inline constexpr std::size_t kGroupCost = 512;
inline constexpr std::size_t kMemberCost = 64;  // for each member of a group
inline constexpr std::size_t kEntryCost = 256;  // a step, group or tag that a rank names

// How many results of steps that it has not reached a rank may hold in one group. All of them are errors. The awaited
// result is not counted.
inline constexpr std::size_t kMaxHeldOfGroup = 64;

// Limits on worlds. Worlds without a linked rank count too, because their ranks may come back. A world of at most
// kSmallWorld ranks finds room while there are fewer than kMaxWorlds. All larger worlds share kMaxWorldRanks.
inline constexpr std::size_t kMaxWorlds = 64;
inline constexpr std::size_t kMaxWorldsOfHost = 16;  // begun from one host
inline constexpr std::size_t kSmallWorld = 4096;
inline constexpr std::size_t kMaxWorldRanks = std::size_t{1} << 17;

// Bytes of a tensor in each step, the same at every rank of a group. All members together bring at most kMaxHubStep.
// One brings at most kMaxHubPart. Four parts of a rank take at most its share of a full hub. `split`: each of the
// `contributors` members gives every member a part of its own.
[[nodiscard]] constexpr std::size_t step_bytes(std::size_t world_ranks, std::size_t members, std::size_t contributors,
                                               bool split) {
  const std::size_t quarter = kMaxHubParts / (4 * std::max<std::size_t>(1, world_ranks));
  const std::size_t share = quarter > 4 * kPartCost ? quarter - 2 * kPartCost : quarter / 2;
  const std::size_t part = std::min({kMaxHubPart, share, kMaxHubStep / std::max<std::size_t>(1, contributors)});
  const std::size_t each = part / (split ? std::max<std::size_t>(1, members) : 1);
  return each < 64 ? std::max<std::size_t>(1, each) : each / 64 * 64;
}

}  // namespace collab::protocol
