// The part of a round's exchange that outlives an attempt: when the attempt is formed again, contributions that an
// owner holds are neither dropped nor sent again.
//
// Parameters stand still from a site's trigger to the round's end, and a slice stays with its owner while the owner is
// here. So a contribution sent in an earlier attempt has the same bytes. Participant::since says from which attempt on
// that holds for a site; between two sites, the later one counts. A sender skips what it has sent over a link that
// still stands, because a link loses nothing while it stands. The owner keeps all that may still count, also for slices
// that are not its own now: between two attempts that a site knows there may have been others.
//
// Pure. Threads: one caller at a time. Ownership: shares the payloads.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/protocol/actions.h"
#include "core/wire/rules.h"

namespace collab::protocol {

template <typename Payload>
class Carryover {
 public:
  enum class Arrival {
    kTake,    // it is held now
    kHeld,    // it is here already, from an earlier attempt
    kRepeat,  // it is here already, from this very attempt
    kStale,   // of an attempt that does not count any more
  };

  // Another attempt, of the same round or of a later one. links[i] reaches start.participants[i].
  void begin(const wire::StartAttempt& start, SiteId self, const std::vector<LinkId>& links) {
    if (start.run != run_ || start.round != round_) clear();  // in another run numbers may mean other sites
    run_ = start.run;
    round_ = start.round;
    attempt_ = start.attempt;
    since_.clear();
    links_.clear();
    const wire::Participant* const us = participant_of(start, self);
    ours_ = us == nullptr ? start.attempt : us->since;
    for (std::size_t i = 0; i < start.participants.size(); ++i) {
      since_[start.participants[i].site] = std::max(start.participants[i].since, ours_);
      links_[start.participants[i].site] = links[i];
    }
    std::erase_if(held_, [this](const auto& entry) { return entry.second.attempt < since(std::get<0>(entry.first)); });
    std::erase_if(sent_, [this](const auto& entry) { return entry.second.attempt < since(std::get<0>(entry.first)); });
  }

  // Nothing held counts any more: the parameters move, or the anchor does.
  void clear() {
    held_.clear();
    sent_.clear();
    late_ = 0;
  }

  // The contributions from this site are wrong: it has to send them again, over another link.
  void drop(SiteId from) {
    std::erase_if(held_, [from](const auto& entry) { return std::get<0>(entry.first) == from; });
  }

  void sent(SiteId owner, const ElementRange& range) { sent_[key(owner, range)] = Sent{attempt_, links_.at(owner)}; }

  [[nodiscard]] Arrival arrived(SiteId from, const ElementRange& range, AttemptId attempt, Payload payload) {
    if (attempt < since(from)) return Arrival::kStale;
    const auto [entry, fresh] = held_.try_emplace(key(from, range), Held{attempt, std::move(payload)});
    if (fresh) return Arrival::kTake;
    return entry->second.attempt == attempt ? Arrival::kRepeat : Arrival::kHeld;
  }

  // Counts a chunk that came when another site owned its slice already.
  void took_late(const ElementRange& range) { late_ += range.size(); }
  [[nodiscard]] std::uint64_t elements_late() const { return late_; }

  // Null if it is not held.
  [[nodiscard]] const Payload* find(SiteId from, const ElementRange& range) const {
    const auto entry = held_.find(key(from, range));
    return entry == held_.end() ? nullptr : &entry->second.payload;
  }

  [[nodiscard]] std::vector<ContributionArrived> held() const {
    std::vector<ContributionArrived> all;
    for (const auto& [at, held] : held_) all.push_back({std::get<0>(at), {std::get<1>(at), std::get<2>(at)}});
    return all;
  }

  // The contributions that the links of this attempt have carried.
  [[nodiscard]] std::vector<SendContribution> delivered() const {
    std::vector<SendContribution> all;
    for (const auto& [at, sent] : sent_) {
      const SiteId owner = std::get<0>(at);
      const auto link = links_.find(owner);
      if (link == links_.end() || link->second != sent.link) continue;
      all.push_back({owner, {std::get<1>(at), std::get<2>(at)}});
    }
    return all;
  }

 private:
  using Key = std::tuple<SiteId, std::uint64_t, std::uint64_t>;  // the other site, the range
  struct Held {
    AttemptId attempt;
    Payload payload;
  };
  struct Sent {
    AttemptId attempt;
    LinkId link;
  };

  static Key key(SiteId site, const ElementRange& range) { return {site, range.begin, range.end}; }

  // For a site that takes no part in this attempt, only our own value is known; it may come back into the round.
  [[nodiscard]] AttemptId since(SiteId site) const {
    const auto known = since_.find(site);
    return known == since_.end() ? ours_ : known->second;
  }

  RunId run_;
  RoundId round_;
  AttemptId attempt_;
  AttemptId ours_;
  std::map<SiteId, AttemptId> since_;  // per peer: the later of its `since` and ours
  std::map<SiteId, LinkId> links_;
  std::map<Key, Held> held_;
  std::map<Key, Sent> sent_;
  std::uint64_t late_ = 0;
};

}  // namespace collab::protocol
