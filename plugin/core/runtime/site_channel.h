// How the ranks of one site act as one: every rank reports, the leader decides, every rank takes the result.
//
// Ranks on one machine use the shared-memory arena; ranks on several use the site's own process group; a site of
// one rank needs neither. Threads: one caller. Ownership: per implementation; parameters are borrowed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "collab/session.h"
#include "core/arena/arena.h"
#include "core/runtime/data/data_plane.h"

namespace collab {

using RankReport = ArenaWriter::RankReport;

// What the leader tells the other ranks at the end of a call, as raw memory: all ranks run the same build.
struct Decision {
  ElementRange range = kWholeVector;  // the elements that changed
  RoundId round;
  ParameterChange change = ParameterChange::kUnchanged;
  std::uint32_t period = 0;  // steps until the next round, where the swarm's leader chooses
  bool took_anchor = false;  // parameters were unfit and were replaced: optimizer state needs a look
  bool leaving = false;      // the site leaves after this round
  bool alone = false;        // the site has left the swarm, and trains on
  bool in_flight = false;    // a round runs behind the training from here on
  bool skipped = false;      // no round came about, though the anchor may be a newer one
  bool stays_due = false;    // the next step asks again
  std::array<std::uint8_t, 2> zeros{};
};
static_assert(std::is_trivially_copyable_v<Decision> && std::has_unique_object_representations_v<Decision>);

struct CallResult : Decision {
  std::string error;  // not empty: why the call failed, on every rank
  [[nodiscard]] bool ok() const { return error.empty(); }
};

class SiteChannel {
 public:
  virtual ~SiteChannel() = default;
  // Calls are numbered from 1, the same on every rank. The leader gets all reports, its own first; others nothing.
  virtual Result<std::vector<RankReport>> report(const RankReport& own) = 0;
  // Leader: gives `mine` and, over a process group, its parameters. Others: `mine` is ignored; on return their
  // parameters are changed and the result is the leader's.
  virtual Result<CallResult> share(std::uint64_t call, const CallResult& mine) = 0;
  // The step of the next round as the leader announced it, 0 for none; `mine` is the leader's news, 0 for none.
  // `steps`: the caller's. If the caller is so far ahead that the leader could still announce its step, it waits for
  // the leader: on a GPU no gradient keeps the ranks of a site in step.
  virtual Result<std::uint64_t> announcement(std::uint64_t mine, std::uint64_t steps) = 0;
  // Whether announcement() would make a caller that has taken so many steps wait.
  [[nodiscard]] virtual bool is_ahead(std::uint64_t) const { return false; }
};

[[nodiscard]] std::unique_ptr<SiteChannel> make_solo_channel();
[[nodiscard]] std::unique_ptr<SiteChannel> make_arena_leader_channel(ArenaWriter& arena, std::uint32_t ranks,
                                                                     std::chrono::milliseconds limit);
[[nodiscard]] std::unique_ptr<SiteChannel> make_arena_follower_channel(std::unique_ptr<ArenaReader> arena,
                                                                       std::uint32_t rank, ParameterVector& parameters,
                                                                       const MergeSettings& merge,
                                                                       std::chrono::milliseconds limit);
[[nodiscard]] std::unique_ptr<SiteChannel> make_group_channel(SiteGroup& group, bool leader,
                                                              ParameterVector& parameters);

}  // namespace collab
