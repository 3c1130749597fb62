// The round being agreed on: attempts are formed, watched, formed again, and committed.
//
//   ready ... --the gate opens (round_gate.h)--> attempt: StartAttempt to all ready sites
//     ^                                            |  all are done and have the same mean
//     |                                            |      --> Commit: the anchor is the next one
//     +--a site is lost, declines, cannot exchange, has another mean, or nothing moves: the next attempt
//
// round.cpp takes messages and forms attempts. round_attempt.cpp watches the attempt in flight. round_end.cpp leads
// from `Done` to the commit, or to another attempt if means differ (digest_check.h).
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/allocation/bandwidth_partition.h"
#include "core/protocol/coordinator/exchange_watch.h"
#include "core/protocol/coordinator/member.h"
#include "core/protocol/coordinator/reachability.h"

namespace collab::protocol {

struct CoordinatorParts;

class Round {
 public:
  // A participant that was lost, but may have contributed.
  struct Gone {
    std::string name;
    double weight = 0;
    AttemptId since;
    std::uint64_t samples = 0;
  };

  [[nodiscard]] RoundId number() const;  // of the next round
  [[nodiscard]] const std::optional<wire::StartAttempt>& attempt() const { return round_.attempt; }  // in flight
  [[nodiscard]] TimePoint attempt_started() const { return round_.started; }  // of the last attempt
  [[nodiscard]] const std::map<SiteId, Gone>& gone() const { return round_.gone; }
  // Members that hold the anchor and were not left out. Stale members first take the anchor, at their own trigger.
  [[nodiscard]] bool is_eligible(const Member& member) const;
  [[nodiscard]] std::set<SiteId> ready_sites() const;
  [[nodiscard]] bool waits_for_sites() const { return round_.waiting.running() && !round_.attempt; }
  [[nodiscard]] std::string waiting_text() const;  // which sites it waits for; empty while all train
  [[nodiscard]] TimePoint next_deadline() const;

  void on_ready(Member& member, wire::Ready ready);
  void on_done(Member& member, const wire::Done& done);
  void on_decline(Member& member, const wire::Decline& decline);
  void on_peer_unreachable(Member& member, const wire::PeerUnreachable& unreachable);
  void on_exchanged(const Member& member, const wire::Exchanged& exchanged);
  void on_tick();
  void advance();  // an attempt may be finished, or started

  void begin_term(TermId term);
  void begin_anchor();                                // another anchor was chosen
  void keep_slices(std::vector<wire::Slice> slices);  // of an attempt that a predecessor gave up
  void lost(const Member& gone);                      // it is no longer a member
  void end_without_ready();                           // begins again if no site waits for the round
  void discard_exchange();  // nothing of its exchange counts any more: the attempt in flight is given up
  void retract(Member& member) { member.round.ready_.reset(); }  // the member will report ready once more
  void reform_if_owners_undialable();  // if the attempt in flight needs a link that no site can make
  void slept(Duration time) { watch_.slept(time); }
  void judge_exchange();
  void forget();

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  // Cleared at the commit.
  struct Record {
    WaitProgress waiting;  // from the first Ready on
    TimePoint limit = kNever;
    std::uint32_t attempts = 0;                 // formed so far
    std::optional<wire::StartAttempt> attempt;  // in flight
    std::size_t here = 0;                       // of the attempt's participants, those still here
    std::size_t done = 0;                       // of the participants here, those that are done
    TimePoint started{};
    std::uint32_t limits = 0;         // time limits of the exchange that have passed
    std::vector<wire::Slice> slices;  // of the last attempt
    // Participants that owned nothing and were lost since; the owners may hold all that they sent.
    std::map<SiteId, Gone> gone;
    std::set<SiteId> declined;  // reported that their delta is unfit
    std::string cut_because;    // why the last pair cannot exchange, or empty
  };

  // ---- towards an attempt
  [[nodiscard]] std::set<SiteId> eligible_sites() const;
  void try_to_start();
  [[nodiscard]] std::set<SiteId> exclude_unreachable(std::set<SiteId> sites);
  void start(const std::set<SiteId>& sites);
  [[nodiscard]] Reachability::Sites addresses_of(const std::set<SiteId>& sites) const;
  [[nodiscard]] std::vector<Line> lines_of(const std::set<SiteId>& sites) const;
  // ---- the attempt in flight
  [[nodiscard]] bool in_attempt(AttemptId attempt, RoundId number) const;
  [[nodiscard]] std::vector<SiteId> waited_for() const;  // by the attempt in flight, or by the one to form
  void drop_participant(const Member& lost);             // a participant of the attempt that is given up
  void abandon_attempt();                                // it will not be committed; another may be formed
  void on_limit();
  [[nodiscard]] std::set<SiteId> open_newcomers(const std::set<SiteId>& open) const;  // the newcomers among `open`
  void abandon_attempt_of(const std::set<SiteId>& late, const std::string& why);
  // ---- its end
  void finish_attempt();  // all are done: compare, then commit or try again
  void commit();
  void skip(const std::string& reason);  // ready sites train on; the anchor stays as it is
  void begin_again();
  void clear();

  CoordinatorParts* all_ = nullptr;
  Record round_;
  ExchangeWatch watch_;  // of the attempt in flight
  Reachability reachability_;
  std::pair<RoundId, std::string> last_skipped_;  // reported once, not at every trigger
  // No two attempts of a round have the same number, even under two terms or after a lost round is agreed on again:
  // chunks of one attempt must not be mistaken for another's.
  std::uint32_t attempt_base_ = 0;
  std::uint32_t highest_attempt_ = 0;
};

}  // namespace collab::protocol
