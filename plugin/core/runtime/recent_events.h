// The last events that a coordinator reported, for people who look at it. Only a few short ones are kept.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "collab/swarm_status.h"
#include "core/protocol/actions.h"

namespace collab {

class RecentEvents {
 public:
  static constexpr std::size_t kMost = 30, kMostBytes = 400;

  void add(const protocol::Note& note) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    std::string text = note.text;
    if (text.size() > kMostBytes) text = text.substr(0, kMostBytes) + " ...";
    kept_.push_back({now.count(), note.event, std::move(text)});
    if (kept_.size() > kMost) kept_.pop_front();
  }
  [[nodiscard]] std::vector<RecentEvent> last() const { return {kept_.begin(), kept_.end()}; }

 private:
  std::deque<RecentEvent> kept_;
};

}  // namespace collab
