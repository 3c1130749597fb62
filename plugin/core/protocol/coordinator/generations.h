// Which generation of the model a swarm trains, and which sites wait because they are at another one.
//
// The sites of a run may train several models one after the other (k-fold, sweeps, gradual unfreezing). Each is a
// generation, numbered from 1 by each site for itself; only sites of one generation are members together.
//
//   none --a site comes--> g --all have left for g + 1, or half of all wait ahead for too long--> g + 1
//
//   A site that comes while others train:  the same: let in | a later one: it waits | an earlier one: it is behind
//   A site that comes while none trains:   it waits while the sites that were here may come back, or go on elsewhere
//
// Pure. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace collab::protocol {

class Generations {
 public:
  struct Waiting {
    wire::Join join;
    TimePoint since{};       // kept if the site comes back on another link
    TimePoint tell{};        // when to tell it next that it waits
    bool announced = false;  // its wait was logged
  };

  // The generation of the sites that are here, or were here last. 0 if none ever was.
  [[nodiscard]] std::uint32_t current() const { return current_; }
  // The sites came from the previous generation, so there is no other site to wait for.
  [[nodiscard]] bool follows() const { return follows_; }
  void begin(std::uint32_t generation, TimePoint now);

  // ---- sites that wait
  // Returns the link that this one replaces, if any.
  std::optional<LinkId> wait(LinkId link, wire::Join join, TimePoint now);
  [[nodiscard]] bool full() const { return waiting_.size() >= wire::kMaxSites; }
  void forget(LinkId link, TimePoint now);  // the link is lost; its site may come back
  void drop(LinkId link);                   // it was refused
  [[nodiscard]] const std::map<LinkId, Waiting>& waiting() const { return waiting_; }
  void told(LinkId link, TimePoint again) { waiting_.at(link).tell = again; }  // it was told that it waits
  // Marks the wait as logged. False if it was logged before.
  [[nodiscard]] bool announce(LinkId link) { return !std::exchange(waiting_.at(link).announced, true); }
  // Remove and return the waiting sites of these generations.
  [[nodiscard]] std::map<LinkId, wire::Join> take(std::uint32_t generation);
  [[nodiscard]] std::map<LinkId, wire::Join> take_earlier_than(std::uint32_t generation);
  // The latest generation that a swarm trains already, as a waiting process was itself a member there. 0 if there is
  // none. A membership that a process read from a file proves nothing, as it may be of an earlier run. Nor does a
  // generation with fewer such sites than `trainers`, the number that train here.
  [[nodiscard]] std::uint32_t proven(std::size_t trainers) const;

  // ---- sites that have left for a later generation
  void left_for(const std::string& site, std::uint32_t generation, TimePoint now, TimePoint until);
  void came(const std::string& site) { expected_.erase(site); }
  [[nodiscard]] std::vector<std::string> expected(TimePoint now) const;       // their names
  [[nodiscard]] std::vector<std::string> expected_here(TimePoint now) const;  // in the current generation
  [[nodiscard]] std::uint32_t expected_generation(TimePoint now) const;       // the earliest; 0: no site is expected

  // A site trains here at this moment.
  void seen(TimePoint now) { last_seen_ = now; }
  // Call when no site trains here. Returns the generation that may begin now, if any. Sites that were here get the
  // grace to come back. Sites that left for the next generation get it to arrive.
  [[nodiscard]] std::optional<std::uint32_t> may_begin(TimePoint now, Duration grace, bool ended) const;
  [[nodiscard]] TimePoint next_deadline(TimePoint now, Duration grace, Duration join_timeout) const;

 private:
  template <class Wanted>
  std::map<LinkId, wire::Join> take_if(Wanted wanted);
  // The generations that waiting sites prove to be trained, and how many members of each wait.
  [[nodiscard]] std::map<std::uint32_t, std::size_t> find_trained() const;

  struct Expected {
    std::uint32_t generation = 0;
    TimePoint until{};
  };

  friend struct Inside;
  std::uint32_t current_ = 0;
  bool follows_ = false;
  TimePoint last_seen_{};
  std::map<LinkId, Waiting> waiting_;
  // Computed once for each change of the waiting sites, as each of them may name thousands of voters.
  mutable std::optional<std::map<std::uint32_t, std::size_t>> trained_;
  std::map<std::string, Expected> expected_;
  // Sites whose link was lost while they waited: since when they had waited, and until when that is remembered.
  std::map<std::string, std::pair<TimePoint, TimePoint>> lost_;
};

}  // namespace collab::protocol
