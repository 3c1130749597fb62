// A site's part in a round: ready, an attempt, done, the commit.
//
//                 training <--------------------------- applying -- an earlier round, and more was trained --> ready
//   RoundSkipped,   ^  |                                  ^
//   no answer       |  | Trigger                          | Commit
//                   |  v                                  |
//                 ready --StartAttempt--> linking         |
//                   ^  \                     | all links  |
//                   |   \                    v            |
//                   +----<-- exchanging <----+            |
//                   |              | complete             |
//                   |              v                      |
//                   +------------ done -------------------+
//
//   Back to ready: declined, unreachable, the coordinator is lost, the next StartAttempt. A finished attempt is kept
//   if the coordinator is lost.
//
// Ready is sent once the round is `ready` (or `done`) and the site is an active member, or has been welcomed back. It
// is sent again after anything that may have made the leader drop it: InstallAnchor, a confirmed commit.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/protocol/actions.h"
#include "core/protocol/fragments.h"
#include "core/protocol/site/contributed_work.h"

namespace collab::protocol {

struct SiteParts;

// The coordinator limits a round. If it fails to, the site does after this many of the round's limits.
inline constexpr int kRoundLimits = 6;
inline constexpr Duration kLinkLimit = std::chrono::seconds(20);  // links to all members of an attempt

class SiteRound {
 public:
  [[nodiscard]] bool is_training() const { return round_.phase == Phase::kTraining; }
  [[nodiscard]] bool is_applying() const { return round_.phase == Phase::kApplying; }
  [[nodiscard]] bool is_done() const { return round_.phase == Phase::kDone; }
  [[nodiscard]] bool owes_rebase() const { return owed_base_.has_value(); }
  [[nodiscard]] bool at_trigger() const { return !is_training() && !is_applying(); }
  [[nodiscard]] std::string waiting_text(TimePoint at) const;
  [[nodiscard]] TimePoint next_deadline() const;

  // ---- from the training process and the data plane
  void on_trigger(const Trigger& trigger);
  void on_exchanged(const ExchangeComplete& event);
  void on_unfit(const ContributionUnfit& event);
  void on_exchange_failed(const ExchangeFailed& event);
  void on_applied(const Applied& event);
  // ---- from the coordinator
  void on_start_attempt(const wire::StartAttempt& start);
  void on_commit(const wire::Commit& commit);
  void on_skipped(const wire::RoundSkipped& skipped);
  // ---- from links and time
  void pursue_links();  // kLinking: dials our part of the links; starts when all are there
  void link_lost(SiteId peer, const std::string& why);
  void coordinator_lost();
  void on_tick();
  // ---- from other parts
  void send_ready();  // if it is due and may be sent
  void retract_ready() { round_.ready_sent = false; }
  void back_to_ready(const std::string& why);  // an attempt is over for us
  void skip(const std::string& reason);        // answers the trigger without a round
  // The next contribution is another delta, or comes under another site number.
  void contribute_anew() { round_.exchanged_since = AttemptId{}; }
  // The leader's word on how many steps to train until the next round; 0: none, so the previous one stands.
  void follow(std::uint32_t period) { period_ = period != 0 ? period : period_; }
  [[nodiscard]] std::uint32_t period() const { return period_; }
  // Onto an anchor that was received (or held under another name) while our parameters had moved on.
  void rebase(const wire::InstallAnchor& install, bool received);

 private:
  friend struct SiteParts;
  friend struct Inside;
  enum class Phase : std::uint8_t {
    kTraining,    // no round is due
    kReady,       // parameters stand still; Ready is sent when active
    kLinking,     // a StartAttempt is here; links to its members are being made
    kExchanging,  // chunks flow
    kDone,        // the mean is here, Done is sent
    kApplying,    // committed; the outer step is being taken
  };
  // From one trigger to the next.
  struct Record {
    Phase phase = Phase::kTraining;
    Trigger trigger;
    TimePoint since = kNever;  // when the trigger came
    bool ready_sent = false;
    AttemptId exchanged_since{};  // our first attempt at this round, with these parameters and this anchor; 0: none
    std::optional<wire::StartAttempt> start;  // the newest; older ones are ignored
    std::uint32_t attempts = 0;               // that included us
    TimePoint link_by = kNever;               // kLinking
    TimePoint both_dial = kNever;             // kLinking: when both sides begin to dial
    bool declined = false;                    // our delta is unfit: take the anchor outright
    bool owed = false;                        // kApplying: the commit came before the trigger
    RoundDone result;                         // kApplying: reported once it is applied
  };

  // ---- an attempt
  [[nodiscard]] std::string nobody_leads_text(const std::string& within) const;
  [[nodiscard]] bool is_ready() const;                                           // and has sent Ready
  [[nodiscard]] std::string why_ignored(const wire::StartAttempt& start) const;  // empty: we take part
  [[nodiscard]] Fragments fragments() const;
  [[nodiscard]] bool in_attempt(RoundId number, AttemptId attempt) const;
  [[nodiscard]] bool exchanges_with(SiteId peer) const;      // in the current attempt
  [[nodiscard]] bool contributes() const;                    // to the current attempt
  [[nodiscard]] bool dials(const wire::Member& peer) const;  // we dial, not the peer
  void start_exchange();
  void send_done(const std::vector<Digest>& slices);
  void report_unreachable(SiteId peer, const std::string& reason);
  void lose_exchange_link(SiteId peer, const std::string& why);
  // ---- its end
  [[nodiscard]] bool is_counted(const wire::InstallAnchor& install) const;  // whether our open contribution is in it
  void confirm(const wire::Commit& commit);
  void apply(const wire::Commit& commit);
  [[nodiscard]] bool trigger_still_due() const;  // after an owed commit, for the next round
  void forget();                                 // all that belongs to the round after another anchor
  [[nodiscard]] TimePoint gives_up_at() const;   // when it gives up the round that it waits for

  SiteParts* all_ = nullptr;
  Record round_;
  ContributedWork work_;
  std::optional<wire::Commit> owed_;  // committed while we trained on: applied at the next trigger
  std::optional<Base> owed_base_;     // of a Rebase that waits for the next trigger, as the parameters move
  std::uint32_t skipped_ = 0;         // triggers in a row without a round
  std::uint32_t period_ = 0;          // as the leader chose it; 0: none
};

}  // namespace collab::protocol
