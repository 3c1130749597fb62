// What a rank knows of its hub. Private to hub_client*.cpp.
//
// Threads: one caller at a time. Ownership: plain values; payloads are shared.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/collectives/hub_client.h"

namespace collab::protocol {

struct HubClient::State {
  enum class Phase : std::uint8_t {
    kNotBegun,
    kWaiting,  // to dial again
    kDialling,
    kEntering,  // a hub is there; it leads or finds out whether it can
    kIn,
    kLeft,
  };
  struct Pending {
    HubRequest request;
    std::uint64_t step = 0;
    TimePoint since{};
    TimePoint deadline = kNever;
    std::map<std::uint32_t, Payload> parts;
  };
  // An outcome that is held.
  struct Kept {
    wire::StepResult result;
    std::map<std::uint32_t, Payload> parts;
    bool stands = false;
  };
  struct Group {
    OpenGroup open;  // no members: the caller has not opened it yet
    std::uint64_t completed = 0;
    std::optional<Pending> pending;
    std::deque<HubRequest> queue;
    std::map<std::uint64_t, Kept> kept;  // by step
    Status broken;                       // this rank takes no part in it any more
    [[nodiscard]] bool opened() const { return !open.members.empty(); }
  };
  struct Seeking {
    SeekSender resolve;
    TimePoint deadline = kNever;
  };

  HubClientConfig config;
  TimePoint now{};
  Phase phase = Phase::kNotBegun;
  std::uint32_t candidate = 0;
  int failed_dials = 0;
  bool entered_once = false;
  std::string last_problem = "not tried yet";
  std::string minority;  // what a hub said that could not lead; empty: none has, since we were in
  LinkId link{};
  TimePoint heard{};
  TimePoint next_beat = kNever;
  TimePoint retry_at = kNever;
  TimePoint give_up = kNever;
  std::uint64_t beats = 0;
  Status broken;

  // ---- what an acceptor remembers; of groups, `completed` and `kept`
  wire::Ballot promised;
  wire::Epoch chosen;
  wire::Ballot accepted_under;
  wire::Epoch accepted;

  std::map<GroupId, Group> groups;
  std::deque<GroupId> closed;   // the last ones, for hubs that do not know
  std::vector<GroupId> untold;  // closed since the last Enter
  std::size_t kept_steps = 0;   // of all groups
  std::map<std::uint64_t, Seeking> resolving;
  std::vector<HubClientAction> actions;

  // ---- hub_client.cpp: the hub
  void on(const HubBegin&);
  void on(const OpenGroup& event) { open(event); }
  void on(const CloseGroup& event) { close(event.group); }
  void on(const HubRequest& event) { exchange(event); }
  void on(const SeekSender& event) { resolve(event); }
  void on(const HubLeave& event);
  void on(const HubConnected& event) { connected(event.link); }
  void on(const HubDialFailed& event);
  void on(const HubReceived& event);
  void on(const Closed& event);
  void on(const Tick&);
  void send(wire::Message message, Payload payload = {});
  void dial();
  void lost(const std::string& why, bool unanswered = false);
  void hang_up(const std::string& why);
  void break_down(Status why);
  void connected(LinkId new_link);
  void enter();
  void prepare(const wire::PrepareWorld& message);
  void entered(const wire::Entered& message);
  void accept(const wire::AcceptEpoch& message);
  void learn(const wire::Epoch& epoch);
  void sent_away(const wire::Notice& message);
  [[nodiscard]] bool is_final(const Status& why) const;
  [[nodiscard]] bool is_in() const { return phase == Phase::kIn; }
  [[nodiscard]] bool is_at_hub() const { return phase == Phase::kEntering || phase == Phase::kIn; }
  [[nodiscard]] TimePoint silent_at() const;
  [[nodiscard]] std::string why_none_leads() const;

  // ---- hub_client_steps.cpp: groups and their steps
  void remember(wire::Enter& enter) const;
  void say_everything();
  void open(const OpenGroup& event);
  void close(GroupId id);
  void break_group(GroupId id, Group& group, Status why);
  void fail_group(Group& group, const Status& why);
  void fail_everything(const Status& why);
  void exchange(const HubRequest& request);
  void begin_next(Group& group);
  void contribute(const Group& group);
  void part(const wire::Part& message, const BufferPtr& payload);
  void result(const wire::StepResult& message);
  void keep(Group& group, const wire::StepResult& message);
  void stands(GroupId id, std::uint64_t step);
  void give_out(Group& group);
  void resolve(const SeekSender& event);
  void found(const wire::SenderResolved& message);
  void time_out();
};

}  // namespace collab::protocol
