// Who of a world is silent: nothing was heard from it for the link grace, or it has not come in time.
//
// Those who fall silent at about the same time are judged together. Threads: one caller at a time. Ownership: plain
// values.
#pragma once

#include <cstdint>
#include <set>

#include "collab/clock.h"
#include "collab/types.h"

namespace collab::protocol {

struct HubWorld;

class HubSilence {
 public:
  explicit HubSilence(HubWorld& world) : world_(world) {}

  [[nodiscard]] bool is_suspect(RankId rank) const { return suspects_.contains(rank.value); }
  [[nodiscard]] bool is_silent(RankId rank) const;  // now; a suspect may have been heard since
  [[nodiscard]] TimePoint next_deadline() const;

  // Nobody is here: the others may take as long to come as for the first time.
  void await_ranks(bool returning);
  void expect_soon();  // they have been with another hub, and know that it is lost
  void stop_awaiting();
  void on_tick();

 private:
  [[nodiscard]] TimePoint silent_at(RankId rank) const;

  HubWorld& world_;
  std::set<std::uint32_t> suspects_;  // silent, and judged together
  TimePoint hold_ = kNever;           // others may have fallen silent with the first: until then nobody is judged
  TimePoint expected_by_ = kNever;    // ranks that have not come by then are silent
};

}  // namespace collab::protocol
