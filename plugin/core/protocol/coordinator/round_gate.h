// Whether an attempt at the round may start: which sites are ready, which they wait for, and for how long.
//
//   no site is ready --> nothing
//   all that can come are ready, but fewer than a quorum --> no round: they train on
//   all are ready --> start, but wait first for helpers, and for joiners that take the anchor
//   all but resting stragglers (stragglers.h) are ready --> wait for three heartbeats, then start
//   most are ready --> wait for the grace (COLLAB_STRAGGLER_GRACE), then start without the others
//
// Guests are helpers, joiners, and sites that have not been in any round yet: anybody can be one, under any number of
// names. If rounds have waited for guests alone, without success, they wait for no guest for as long again.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <string>

#include "core/protocol/actions.h"
#include "core/protocol/agreement/quorum.h"
#include "core/protocol/coordinator/member.h"
#include "core/protocol/coordinator/stragglers.h"

namespace collab::protocol {

struct CoordinatorParts;

// How many heartbeats ready sites and sites in a collective may wait for each other. In a collective, a thread beside
// the training may wait, so the training can still come to its round. In a world-wide barrier the training itself waits
// and cannot come, so the round does not wait for it.
inline constexpr int kDeadlockHeartbeats = 5;
inline constexpr unsigned kMaxFailedWaits = 16;
// Heartbeats for which a round that is due waits for helpers that are not ready.
inline constexpr int kHelperHeartbeats = 3;

class RoundGate {
 public:
  struct Verdict {
    enum class What : std::uint8_t { kNotYet, kSkip, kStart };
    What what = What::kNotYet;
    std::string why{};  // kSkip: the reason; kStart: why missing sites cannot come, or empty
  };
  [[nodiscard]] Verdict judge();
  [[nodiscard]] TimePoint next_deadline() const;  // while no attempt is in flight

  void calls_under_way(std::map<std::string, InCall> calls) { calls_ = std::move(calls); }
  void joiner_arrived();
  void begin_round();  // nothing has been waited for yet
  void started(const std::set<SiteId>& with);
  void missed(SiteId site);  // the round waited for it, and it did not come
  void forget();             // the swarm
  // This process has slept for `time`; that does not count as a wait for guests.
  void slept(Duration time);

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  struct Count {
    std::size_t all = 0;      // sites that train, less unready resting stragglers
    std::size_t settled = 0;  // of those, voters or ready
    std::size_t ready = 0;
    bool helped = true;  // every helper is ready, and every straggler that has a rest
    Quorum quorum;       // of ready sites, helpers too
  };
  struct Deadlock {
    std::string text;    // empty: there is none
    bool stands = true;  // at every other site the training itself waits in its call
  };
  struct Waits {
    bool rests = false;       // no guest is waited for
    bool all = false;         // all sites that train are ready
    bool whole = false;       // and all helpers, or the wait for them is over
    bool deadlocked = false;  // the others stand in calls that wait for the ready sites
    std::string deadlock{};   // names these calls
  };
  [[nodiscard]] Verdict look();
  [[nodiscard]] Count count_eligible() const;
  [[nodiscard]] Waits update_waits(const Count& count);
  [[nodiscard]] Verdict without_quorum(const Waits& waits);
  [[nodiscard]] Verdict with_quorum(const Count& count, const Waits& waits);
  [[nodiscard]] Deadlock find_deadlock() const;
  [[nodiscard]] bool waits_for_joiners();
  Verdict wait_for_guests();
  [[nodiscard]] bool wait_failed() const;

  CoordinatorParts* all_ = nullptr;
  Stragglers stragglers_;
  std::map<std::string, InCall> calls_;  // by site name, as last reported
  unsigned failed_waits_ = 0;            // for joiners that did not come, less those that came since
  bool guests_missing_ = false;          // at the last look, only guests were missing
  TimePoint guests_since_ = kNever;      // since when only guests are missing
  std::size_t ready_then_ = 0;           // how many sites were ready then
  TimePoint guests_rest_ = {};           // until then no guest is waited for
  TimePoint majority_since_ = kNever;    // most of the expected sites are ready
  TimePoint joiners_since_ = kNever;     // nothing is missing but joiners that take the anchor
  TimePoint joiners_progressed_{};       // when one of them last received part of the anchor
  TimePoint joiners_until_ = kNever;     // then the round goes on without them
  TimePoint helpers_until_ = kNever;     // likewise: all sites are ready, a helper is not
  TimePoint deadlock_since_ = kNever;    // all others are in calls that wait for the ready sites
  TimePoint deadlock_until_ = kNever;    // then the round starts without the others, or is skipped
};

}  // namespace collab::protocol
