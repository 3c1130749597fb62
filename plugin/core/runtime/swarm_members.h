// The swarm's members, as its coordinator's loop reports them, for a thread that waits until there are none.
//
// Threads: may_have_changed() and set_members() the loop's, wait_until_empty() any. Ownership: plain values.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "core/protocol/formatting.h"

namespace collab {

class SwarmMembers {
 public:
  // How often the sites and the ranks have changed. False: set_members() would change nothing.
  [[nodiscard]] bool may_have_changed(std::uint64_t sites, std::uint64_t ranks) {
    const std::pair changes(sites, ranks);
    return changes != std::exchange(changes_, changes);
  }
  void set_members(std::vector<std::string> members) {
    const std::lock_guard lock(mutex_);
    if (members == members_) return;
    members_ = std::move(members);
    changed_.notify_all();
  }

  Status wait_until_empty(Duration limit) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return members_.empty(); })) return {};
    return timed_out("still waiting for " + protocol::join_words(members_) + " to leave the swarm after " +
                     std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) +
                     " s [coordinator.sites-remain]");
  }

 private:
  std::pair<std::uint64_t, std::uint64_t> changes_;  // last seen by the loop
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> members_;  // guarded by mutex_
};

}  // namespace collab
