// Whether an attempt at the round may start: which sites are ready, which they wait for, and for how long.
//
//   no site is ready --> nothing
//   fewer than a quorum can be ready: all are, or cannot come --> no round: they train on
//   all are ready --> start, but wait first for helpers, and for joiners that take the anchor
//   all but stragglers that have a rest (stragglers.h) --> wait for three heartbeats, then start
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
    std::string why{};  // kSkip; kStart: why sites that are not ready cannot come, or empty
  };
  [[nodiscard]] Verdict judge();
  [[nodiscard]] TimePoint next_deadline() const;  // while no attempt is in flight

  void calls_under_way(std::map<std::string, InCall> calls) { calls_ = std::move(calls); }
  void joiner_arrived();
  void begin_round();  // nothing was waited for yet
  void started(const std::set<SiteId>& with);
  void missed(SiteId site);  // the round waited for it, and it did not come
  void forget();             // the swarm
  // This process has slept for so long; that does not count as a wait for guests.
  void slept(Duration time);

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  struct Count {
    std::size_t all = 0;      // that train
    std::size_t settled = 0;  // of those, voters or ready
    std::size_t ready = 0;
    bool helped = true;  // every helper is ready, and every straggler that has a rest
    Quorum quorum;       // of ready sites, helpers too
  };
  struct Deadlock {
    std::string text;    // empty: there is none
    bool stands = true;  // the training of each of the others stands in its call
  };
  struct Waits {
    bool rests = false;       // no guest is waited for
    bool all = false;         // sites that train are ready
    bool whole = false;       // and helpers, or they were waited for
    bool deadlocked = false;  // the others stand in calls that wait for the ready sites
    std::string deadlock{};   // these calls
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
  std::map<std::string, InCall> calls_;  // by site's name, as last told
  unsigned failed_waits_ = 0;            // for joiners that did not come, less those that came since
  bool guests_missing_ = false;          // as last looked: nothing else is
  TimePoint guests_since_ = kNever;      // since when
  std::size_t ready_then_ = 0;           // how many were, then
  TimePoint guests_rest_ = {};           // until then none is waited for
  TimePoint majority_since_ = kNever;    // most of the expected sites are ready
  TimePoint joiners_since_ = kNever;     // nothing is missing but joiners that take the anchor
  TimePoint joiners_progressed_{};       // one of them took part of the anchor last
  TimePoint joiners_until_ = kNever;     // then it goes on without them
  TimePoint helpers_until_ = kNever;     // likewise: all sites are ready, a helper is not
  TimePoint deadlock_since_ = kNever;    // all others are in calls that wait for the ready sites
  TimePoint deadlock_until_ = kNever;    // then the round starts without the others, or is skipped
};

}  // namespace collab::protocol
