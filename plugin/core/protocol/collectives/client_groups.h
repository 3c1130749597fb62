// The groups of a rank, and which it has closed.
//
// Threads: one caller at a time. Ownership: of the groups.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <vector>

#include "core/protocol/collectives/client_group.h"

namespace collab::protocol {

class ClientGroups {
 public:
  explicit ClientGroups(HubClientParts& all) : all_(all) {}

  [[nodiscard]] std::size_t held_steps() const { return held_steps_; }
  [[nodiscard]] TimePoint next_deadline() const;
  // What is under way here, for a hub that may know nothing of it.
  void remember(wire::Enter& enter);

  void open(const OpenGroup& event);
  [[nodiscard]] bool close(GroupId id, const Status& why);  // whether it was there
  void exchange(const HubRequest& request);
  void say_everything();  // to a hub that leads, and knows what this rank remembers
  void on_part(const wire::Part& message, const BufferPtr& payload);
  void on_result(const wire::StepResult& message);
  void on_stands(const wire::Stands& message);
  void on_tick();
  void fail(const Status& why);  // what is asked for in any of them
  // ---- of a group
  void count_held(std::ptrdiff_t more) { held_steps_ += static_cast<std::size_t>(more); }
  void tell_closed(GroupId id);

 private:
  [[nodiscard]] ClientGroup* find(GroupId id);

  HubClientParts& all_;
  std::map<GroupId, ClientGroup> groups_;
  std::deque<GroupId> closed_;   // the last ones, for hubs that do not know
  std::vector<GroupId> untold_;  // closed since the last Enter
  std::size_t held_steps_ = 0;   // of all groups
};

}  // namespace collab::protocol
