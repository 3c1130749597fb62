// A site's way into the swarm and out of it.
//
//      idle --Begin--> dialling <-------------+
//                       |  ^ no answer:       |
//             connected |  | the next address | link
//                       v  |                  | lost
//     (Prepare,  ---- asking --Refuse--> failed|
//      Accept) --------> | Welcome            |
//                        v                    |
//                     waiting ----------------+
//                        | InstallAnchor      |
//                        v                    |
//                    installing --------------+
//                        | in place           |
//                        v                    |
//                     active -----------------+
//
//   Depart leads from every state through leaving to left. The round (site_round.h) and links to other sites
//   (peer_links.h) outlive the loss of a coordinator.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/protocol/actions.h"

namespace collab::protocol {

struct SiteParts;

enum class SitePhase : std::uint8_t {
  kIdle,        // before Begin
  kDialing,     // a dial is under way, or waits for its back-off
  kAsking,      // Join is sent (or waits for a commit being applied); Welcome or Refuse comes
  kWaiting,     // welcomed; InstallAnchor comes once enough sites are there, or at our own trigger
  kInstalling,  // the swarm's anchor is being put in place
  kActive,      // a member
  kLeaving,     // Leave is sent
  kLeft,
  kFailed,
};

class SiteMembership {
 public:
  [[nodiscard]] SitePhase phase() const { return phase_; }
  [[nodiscard]] bool over() const { return phase_ == SitePhase::kLeft || phase_ == SitePhase::kFailed; }
  [[nodiscard]] bool is_let_in() const;  // and does not leave
  [[nodiscard]] bool is_outside() const { return phase_ == SitePhase::kDialing || phase_ == SitePhase::kAsking; }
  // As given by Begin, with later changes applied.
  [[nodiscard]] const wire::Join& join() const { return join_; }
  [[nodiscard]] const std::optional<SiteId>& self() const { return self_; }
  [[nodiscard]] bool was_member() const { return was_member_; }  // welcomed once
  [[nodiscard]] bool join_done() const { return join_done_; }    // JoinDone was sent
  [[nodiscard]] bool join_sent() const { return join_sent_; }    // to this coordinator
  // Its coordinator has told it to wait for another generation, and still does.
  [[nodiscard]] bool is_held() const;
  [[nodiscard]] bool leaves() const { return leave_.has_value(); }
  [[nodiscard]] wire::Report report() const;
  [[nodiscard]] std::string waiting_text(TimePoint at) const;
  [[nodiscard]] TimePoint next_deadline() const;

  // ---- from the training process
  void begin(const Begin& event);
  void depart(const Depart& event);
  // ---- from the coordinator
  void on_refuse(const wire::Refuse& refuse);
  void on_hold(const wire::Hold& told);
  void on_welcome(const wire::Welcome& welcome);
  void on_prepare(const wire::Prepare& prepare);
  [[nodiscard]] bool leaves_for(TermId term);  // true if the term is above what the clock allows
  void on_accept(const wire::Accept& accept);
  void on_notice(const wire::Notice& notice);
  void on_leave_ack();
  void on_ask_tick();   // limits dialling and asking
  void on_wait_tick();  // limits waiting
  void on_leave_tick();
  // ---- from other parts
  void begin_seeking();  // a coordinator
  void begin_asking();   // a coordinator that was found
  void begin_waiting();  // for another anchor than the one it was to install
  void begin_installing();
  void becomes_active();
  void installed(const wire::InstallAnchor& install);
  void coordinator_lost();
  void applied();      // the commit that Join waited for
  void resend_join();  // to the same coordinator, which judges by what Join says
  void may_ask_for(Duration limit);
  void take_generation(std::uint32_t generation) { join_.generation = generation; }
  void offer(const wire::Offer& offer) { join_.offer = offer; }
  void fail(Status why);
  void leave_done();

 private:
  friend struct SiteParts;
  friend struct Inside;
  void send_join();
  void send_leave();
  void end(const std::string& why);
  [[nodiscard]] std::string not_let_in_text() const;

  SiteParts* all_ = nullptr;
  SitePhase phase_ = SitePhase::kIdle;
  wire::Join join_;
  std::optional<SiteId> self_;
  bool was_member_ = false;
  bool join_done_ = false;
  bool join_sent_ = false;
  TimePoint give_up_ = kNever;        // join_timeout after Begin or after the loss
  TimePoint anchor_by_ = kNever;      // limit for InstallAnchor after Welcome
  std::string told_;                  // which sites the candidates wait for, as one said
  std::optional<std::string> hold_;   // which sites this one waits for, as its coordinator said
  TimePoint held_at_{};               // when Hold came last
  bool was_held_ = false;             // at any coordinator
  bool asks_again_ = false;           // it had been let in, and lost that coordinator before it trained
  std::optional<wire::Leave> leave_;  // this site leaves; sent once there is a coordinator
  TimePoint leave_by_ = kNever;
};

}  // namespace collab::protocol
