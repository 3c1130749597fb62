// The link to a coordinator: which candidate is dialled, whether it is heard, and what follows when it is lost.
//
//   dialling --connected--> heard --closed, dropped--> dialling, from the first candidate
//      ^  | no answer             +-------silent-----> dialling, from the candidate after the silent one
//      +--+ the next candidate, after the last one a back-off. Likewise if a coordinator commits an attempt in which
//           this site was not done
//
// The table says what a site does when its coordinator is gone: the link was closed, or was silent for
// COLLAB_LINK_GRACE. lose() begins this; then each part does its own row:
//
//   the site was                          what it does                                         in
//   leaving                               has left                                             SiteMembership
//   not let in yet                        asks the next candidate; fails after                 dial_again(),
//                                         COLLAB_JOIN_TIMEOUT in all                           SiteMembership
//   let in for the first time, and not    asks for COLLAB_JOIN_TIMEOUT again, once             SiteMembership
//   training yet
//   taking an anchor                      stops                                                AnchorInstallation
//   training                              trains on; at its trigger it stands, as `ready`      SiteRound
//   at its trigger: ready                 stands still; says Ready to the next coordinator     SiteRound
//   at its trigger: linking, exchanging   cancels the exchange, and is ready                   SiteRound
//   at its trigger: done                  keeps the mean: the next leader may commit it        SiteRound
//   applying a commit                     applies it                                           SiteRound
//   each of these, if it has trained      keeps its links to other sites, and its record;      dial_again()
//                                         dials from the first candidate on, without end
//
//   and then
//   COLLAB_LINK_GRACE passes              at its trigger it trains on (RoundSkipped), with a   SiteRound: on_tick(),
//                                         snapshot of what it put into an exchange; later      skip(), on_trigger()
//                                         triggers are answered so at once
//   a candidate is connected              sends Join with its record; promises and accepts     SiteMembership
//                                         if that one is to be elected; once it is
//                                         welcomed, it says Ready
//   the next leader commits what it was   applies it: at its trigger, or at the next one       SiteRound: on_commit()
//   done with
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collab/config.h"
#include "core/protocol/actions.h"
#include "core/protocol/site/backoff.h"

namespace collab::protocol {

struct SiteParts;

inline constexpr Duration kLeastAnswerLimit = std::chrono::seconds(3);

class CoordinatorLink {
 public:
  [[nodiscard]] bool is_up() const { return link_.has_value(); }
  [[nodiscard]] const std::optional<LinkId>& link() const { return link_; }
  [[nodiscard]] std::uint32_t candidate() const { return candidate_; }
  [[nodiscard]] const std::string& address() const;  // of that candidate
  [[nodiscard]] std::string addresses() const;       // of all candidates
  [[nodiscard]] const std::string& last_reason() const { return last_reason_; }
  [[nodiscard]] Duration heartbeat() const { return heartbeat_; }
  [[nodiscard]] Duration grace() const { return grace_; }
  [[nodiscard]] Duration answer_limit() const;  // for one candidate; a waiting site gets an answer every heartbeat
  // No coordinator was found for the grace.
  [[nodiscard]] TimePoint given_up_at() const;
  [[nodiscard]] bool given_up() const;
  [[nodiscard]] TimePoint next_deadline() const;

  void send(wire::Message message);  // if there is a link
  // ---- what comes
  void on_connected(const CoordinatorConnected& event);
  void on_dial_failed(const DialFailed& event);
  void on_closed(const Status& why);
  void heard();
  void on_dial_tick();
  void on_silence_tick();
  // ---- what others ask for
  void dial();
  void begin_heartbeats();
  void welcomed(Duration heartbeat, Duration grace);
  void drop(const std::string& reason);       // closes the link, then acts as if it was lost
  void turn_from(const std::string& reason);  // likewise, and dials the next candidate
  void go_to(std::uint32_t candidate);        // dials this one next, at once
  void forget_failures() { backoff_ = kFirstBackoff; }
  void end(const std::string& why);  // this site leaves

 private:
  friend struct SiteParts;
  friend struct Inside;
  void dial_again(const std::string& reason);  // after the back-off, the next candidate
  void lose(const std::string& reason);
  [[nodiscard]] bool is_final(const Status& why) const;

  SiteParts* all_ = nullptr;
  std::optional<LinkId> link_;
  std::uint32_t candidate_ = 0;
  bool dial_out_ = false;         // DialCoordinator was sent, no answer yet
  TimePoint dial_at_ = kNever;    // the back-off's end
  TimePoint answer_by_ = kNever;  // the limit of a dial
  Duration backoff_ = kFirstBackoff;
  std::string last_reason_ = "no answer";
  TimePoint lost_at_ = kNever;  // since when there is no coordinator
  TimePoint last_heard_{};
  TimePoint next_heartbeat_ = kNever;
  std::uint64_t sequence_ = 0;
  Duration heartbeat_ = default_config().heartbeat;  // until a coordinator announces its own
  Duration grace_ = default_config().link_grace;     // likewise
};

}  // namespace collab::protocol
