// The groups of a rank. For each group: this rank's part of the step under way, and the results it holds until they
// stand.
//
// Threads: one caller at a time. Ownership: plain values; payloads are shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/collectives/hub_actions.h"

namespace collab::protocol {

struct HubClientParts;

// One group of this rank.
class ClientGroup {
 public:
  ClientGroup(HubClientParts& all, GroupId id) : all_(all), id_(id) {}

  [[nodiscard]] bool is_open() const { return !open_.members.empty(); }  // the caller has opened it
  [[nodiscard]] const Status& broken() const { return broken_; }
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  [[nodiscard]] bool is_behind() const;  // holds too many results of steps that it has not reached
  [[nodiscard]] bool awaits(std::uint64_t step) const { return pending_ && pending_->step == step; }
  [[nodiscard]] TimePoint next_deadline() const { return pending_ ? pending_->deadline : kNever; }
  void remember(wire::Enter& enter) const;

  void open(const OpenGroup& event);
  void resend_state();  // to a leading hub that has this rank's Enter
  void exchange(const HubRequest& request);
  void on_part(const wire::Part& message, const BufferPtr& payload);
  void on_result(const wire::StepResult& message);
  void on_stands(std::uint64_t step);
  void on_tick();
  void fail(const Status& why);      // fails all requests
  void withdraw(const Status& why);  // this rank no longer takes part in the group

 private:
  struct Pending {
    HubRequest request;
    std::uint64_t step = 0;
    TimePoint since{};
    TimePoint deadline = kNever;
    std::map<std::uint32_t, Payload> parts;
  };
  struct Held {
    wire::StepResult result;
    std::map<std::uint32_t, Payload> parts;
    bool stands = false;
  };
  void begin_next();
  void contribute();
  void hold(const wire::StepResult& message);
  void deliver_results();

  HubClientParts& all_;
  GroupId id_;
  OpenGroup open_;
  std::uint64_t completed_ = 0;
  std::optional<Pending> pending_;
  std::deque<HubRequest> queue_;
  std::map<std::uint64_t, Held> held_;  // by step
  Status broken_;
};

class ClientGroups {
 public:
  explicit ClientGroups(HubClientParts& all) : all_(all) {}

  [[nodiscard]] TimePoint next_deadline() const;
  // Adds the state of all groups to `enter`, for a hub that may know nothing of it.
  void remember(wire::Enter& enter);

  void open(const OpenGroup& event);
  void close(GroupId id);
  void exchange(const HubRequest& request);
  void resend_state();  // to a leading hub that has this rank's Enter
  void on_part(const wire::Part& message, const BufferPtr& payload);
  void on_result(const wire::StepResult& message);
  void on_stands(const wire::Stands& message);
  void on_tick();
  void fail(const Status& why);  // fails the requests of all groups
  void send_closed(GroupId id);  // called by a group

 private:
  [[nodiscard]] ClientGroup* find(GroupId id);
  void hold_early(ClientGroup& group, const wire::StepResult& message);
  void forget(GroupId id);

  HubClientParts& all_;
  std::map<GroupId, ClientGroup> groups_;
  std::deque<GroupId> closed_;             // the last ones closed, for hubs that do not know
  std::vector<GroupId> pending_disbands_;  // closed since the last Enter
  std::size_t held_early_ = 0;             // results of groups that are not open here
};

}  // namespace collab::protocol
