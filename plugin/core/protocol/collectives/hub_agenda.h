// The steps of a world's groups that wait for parts, and when each is given up. Events look at no other steps.
//
//   HubAgenda (one of a world) <-- HubWatch (beside each step, from its first part until it is decided)
//
// Threads: one caller at a time. Ownership: a watch lives as long as its step, and ends before its agenda.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/types.h"

namespace collab::protocol {

class HubAgenda {
 public:
  struct Step {
    GroupId group;
    std::uint64_t number = 0;
    auto operator<=>(const Step&) const = default;
  };
  [[nodiscard]] const std::set<Step>& open() const { return open_; }
  [[nodiscard]] TimePoint next() const { return due_.empty() ? kNever : due_.begin()->first; }
  [[nodiscard]] std::vector<Step> due(TimePoint now) const {
    std::vector<Step> steps;
    for (auto entry = due_.begin(); entry != due_.end() && entry->first <= now; ++entry) steps.push_back(entry->second);
    return steps;
  }

 private:
  friend class HubWatch;
  std::set<Step> open_;
  std::set<std::pair<TimePoint, Step>> due_;
};

class HubWatch {
 public:
  HubWatch() = default;
  ~HubWatch() { end(); }
  HubWatch(HubWatch&& other) noexcept
      : agenda_(std::exchange(other.agenda_, nullptr)), step_(other.step_), deadline_(other.deadline_) {}
  HubWatch& operator=(HubWatch&& other) noexcept {
    if (this == &other) return *this;
    end();
    agenda_ = std::exchange(other.agenda_, nullptr);
    step_ = other.step_;
    deadline_ = other.deadline_;
    return *this;
  }
  HubWatch(const HubWatch&) = delete;
  HubWatch& operator=(const HubWatch&) = delete;

  void begin(HubAgenda& agenda, const HubAgenda::Step& step) {
    if (agenda_ != nullptr) return;
    agenda_ = &agenda;
    step_ = step;
    agenda.open_.insert(step);
  }
  void set_deadline(TimePoint at) {  // kNever: none
    if (agenda_ == nullptr || at == deadline_) return;
    agenda_->due_.erase({deadline_, step_});
    deadline_ = at;
    if (at != kNever) agenda_->due_.insert({at, step_});
  }
  void end() {
    if (agenda_ == nullptr) return;
    set_deadline(kNever);
    agenda_->open_.erase(step_);
    agenda_ = nullptr;
  }

 private:
  HubAgenda* agenda_ = nullptr;
  HubAgenda::Step step_;
  TimePoint deadline_ = kNever;
};

}  // namespace collab::protocol
