// How much of a hub's memory its ranks may take. Same numbers as in docs/protocol/collectives.md.
// Threads: constants.
#pragma once

#include <algorithm>
#include <cstddef>

namespace collab::protocol {

inline constexpr std::size_t kMaxHubPart = std::size_t{16} << 20;  // payload of one Contribute
inline constexpr std::size_t kMaxHubStep = std::size_t{64} << 20;  // payloads of a step, over its members

// Bytes of parts, with their texts, that the hub holds until all living ranks have taken the steps: for one rank, and
// for all groups and worlds together. Above the second limit a rank may still hold its equal share of it.
inline constexpr std::size_t kMaxRankParts = std::size_t{128} << 20;
inline constexpr std::size_t kMaxHubParts = std::size_t{512} << 20;
// Likewise what a rank makes the hub remember: groups, what it has completed, holds and has closed, whose sender it
// waits for.
inline constexpr std::size_t kMaxRankMemory = std::size_t{16} << 20;
inline constexpr std::size_t kMaxHubMemory = std::size_t{128} << 20;

// What each costs, about, so that small ones are bounded, too.
inline constexpr std::size_t kPartCost = 8192;  // its buffer's least, its names, and what its step's error may say
inline constexpr std::size_t kGroupCost = 512;
inline constexpr std::size_t kMemberCost = 64;  // what is known of each member of a group
inline constexpr std::size_t kEntryCost = 256;  // a step, group or tag that a rank names

// Results of a group that a rank holds and has not come to, all of them errors; it may hold the one that it awaits,
// too.
inline constexpr std::size_t kMaxHeldOfGroup = 64;

// Worlds, including those without a linked rank, which ranks may still ask for. A world of at most kSmallWorld ranks
// finds room while there are fewer than kMaxWorlds; all larger ones share kMaxWorldRanks.
inline constexpr std::size_t kMaxWorlds = 64;
inline constexpr std::size_t kMaxWorldsOfHost = 16;  // begun from one host
inline constexpr std::size_t kSmallWorld = 4096;
inline constexpr std::size_t kMaxWorldRanks = std::size_t{1} << 17;

// Bytes of a tensor in each step, at every rank of a group alike: what all members bring together is at most a step,
// what one brings is at most a part, and four parts of a rank are at most its share of a full hub. `split`: each member
// gets a part of its own, from `contributors` members.
[[nodiscard]] constexpr std::size_t step_bytes(std::size_t world_ranks, std::size_t members, std::size_t contributors,
                                               bool split) {
  const std::size_t quarter = kMaxHubParts / (4 * std::max<std::size_t>(1, world_ranks));
  const std::size_t share = quarter > 4 * kPartCost ? quarter - 2 * kPartCost : quarter / 2;
  const std::size_t part = std::min({kMaxHubPart, share, kMaxHubStep / std::max<std::size_t>(1, contributors)});
  const std::size_t each = part / (split ? std::max<std::size_t>(1, members) : 1);
  return each < 64 ? std::max<std::size_t>(1, each) : each / 64 * 64;
}

}  // namespace collab::protocol
