// The groups of a rank: of each its part of the step under way, and the results it holds until they stand.
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

// One of them.
class ClientGroup {
 public:
  ClientGroup(HubClientParts& all, GroupId id) : all_(all), id_(id) {}

  [[nodiscard]] bool is_open() const { return !open_.members.empty(); }  // the caller has opened it
  [[nodiscard]] const Status& broken() const { return broken_; }
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  [[nodiscard]] bool is_behind() const;  // more results have come than it may hold without having come to them
  [[nodiscard]] bool awaits(std::uint64_t step) const { return pending_ && pending_->step == step; }
  [[nodiscard]] TimePoint next_deadline() const { return pending_ ? pending_->deadline : kNever; }
  void remember(wire::Enter& enter) const;

  void open(const OpenGroup& event);
  void resend_state();  // to a hub that leads, and knows what this rank remembers
  void exchange(const HubRequest& request);
  void on_part(const wire::Part& message, const BufferPtr& payload);
  void on_result(const wire::StepResult& message);
  void on_stands(std::uint64_t step);
  void on_tick();
  void fail(const Status& why);      // what is asked for
  void withdraw(const Status& why);  // this rank takes no part in it any more

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
  // What is under way here, for a hub that may know nothing of it.
  void remember(wire::Enter& enter);

  void open(const OpenGroup& event);
  void close(GroupId id);
  void exchange(const HubRequest& request);
  void resend_state();  // to a hub that leads, and knows what this rank remembers
  void on_part(const wire::Part& message, const BufferPtr& payload);
  void on_result(const wire::StepResult& message);
  void on_stands(const wire::Stands& message);
  void on_tick();
  void fail(const Status& why);  // what is asked for in any of them
  void send_closed(GroupId id);  // said by a group

 private:
  [[nodiscard]] ClientGroup* find(GroupId id);
  void hold_early(ClientGroup& group, const wire::StepResult& message);
  void forget(GroupId id);

  HubClientParts& all_;
  std::map<GroupId, ClientGroup> groups_;
  std::deque<GroupId> closed_;             // the last ones, for hubs that do not know
  std::vector<GroupId> pending_disbands_;  // closed since the last Enter
  std::size_t held_early_ = 0;             // results of groups that are not open here
};

}  // namespace collab::protocol
