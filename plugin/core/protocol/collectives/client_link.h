// The link to a hub: which candidate to dial, whether a hub leads, and what to do when the link is lost.
//
//   (not begun) --HubBegin--> dialing --> entering --Entered--> in
//                                  ^  ^_________|__lost______________|     lost: closed, silent, or sent away with
//                                  others |            ^______PrepareWorld__|     that are too few: then the next
//                                  candidate, as |                                       after two dials in a row that
//                                  come to nothing
//                                  +--- nobody leads within the grace (twice, with several candidates): broken
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <string>

#include "core/protocol/collectives/hub_actions.h"

namespace collab::protocol {

struct HubClientParts;

class ClientLink {
 public:
  explicit ClientLink(HubClientParts& all);

  [[nodiscard]] LinkId link() const { return link_; }
  [[nodiscard]] bool is_entering() const { return phase_ == Phase::kEntering; }
  [[nodiscard]] bool is_in() const { return phase_ == Phase::kIn; }
  // Why nothing can ever be sent over this link again; ok: it still can.
  [[nodiscard]] Status why_over() const;
  [[nodiscard]] const std::string& address() const;
  [[nodiscard]] const std::string& last_problem() const { return last_problem_; }
  [[nodiscard]] Duration heartbeat() const { return heartbeat_; }
  [[nodiscard]] Duration grace() const { return grace_; }
  [[nodiscard]] TimePoint next_deadline() const;

  void begin();
  void on_connected(LinkId link);
  void on_dial_failed(const Status& why);
  void on_closed(const Status& why);
  void heard();
  void on_entered(const wire::Entered& message);
  void on_notice(const wire::Notice& message);
  void on_tick();
  void leave(const std::string& reason);
  // Sends Enter: this rank's identity, and everything that it has accepted and holds.
  void enter();
  void close_link(const std::string& why);
  void fail_permanently(const Status& why);

 private:
  enum class Phase : std::uint8_t {
    kNotBegun,
    kWaiting,  // to dial again
    kDialing,
    kEntering,  // connected to a hub that leads, or that finds out whether it can
    kIn,
    kLeft,
  };
  [[nodiscard]] bool is_at_hub() const { return is_entering() || is_in(); }
  [[nodiscard]] bool is_final(const Status& why) const;
  [[nodiscard]] TimePoint silent_at() const;
  [[nodiscard]] Duration hub_search_limit() const;
  [[nodiscard]] std::string why_none_leads() const;
  [[nodiscard]] Duration pause() const;
  void dial();
  void lose(const std::string& why, bool unanswered);
  void end(const std::string& reason, const Status& why);

  HubClientParts& all_;
  Phase phase_ = Phase::kNotBegun;
  std::uint32_t candidate_ = 0;
  int failed_dials_ = 0;
  bool entered_once_ = false;
  std::string last_problem_ = "not tried yet";
  std::string minority_;  // text of a hub that had too few ranks to lead; empty: none since the last Entered
  LinkId link_{};
  TimePoint heard_{};
  TimePoint next_beat_ = kNever;
  TimePoint retry_at_ = kNever;
  TimePoint give_up_ = kNever;
  TimePoint entered_at_{};
  int quick_losses_ = 0;  // in a row
  std::uint64_t beats_ = 0;
  Status broken_;
  Duration heartbeat_;
  Duration grace_;
};

}  // namespace collab::protocol
