// Counts the memory that a hub holds for its ranks: for each rank, and for all together.
//
//   HubTotal (one per kind and hub) <-- HubBudget (one for each rank) <-- HubCharge (beside each held object)
//
// A rank may hold `each`. Once all together hold `most`, a rank may still hold its share. All worlds have equal shares
// of `most`, and so have all ranks of a world, here or not. So a rank that fills the hub takes nothing from another's
// share, and one world never holds more than twice `most`. Threads: one at a time. Ownership: a charge ends with the
// object that it stands for, and before its budget. A budget ends before its total.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

namespace collab::protocol {

class HubTotal {
 public:
  HubTotal(std::size_t each, std::size_t most) : each_(each), most_(most) {}
  [[nodiscard]] std::size_t each() const { return each_; }
  [[nodiscard]] std::size_t most() const { return most_; }
  [[nodiscard]] std::size_t held() const { return held_; }
  [[nodiscard]] std::size_t share(std::size_t ranks) const {
    return std::min(each_, most_ / std::max<std::size_t>(1, worlds_) / std::max<std::size_t>(1, ranks));
  }
  void divide_among(std::size_t worlds) { worlds_ = worlds; }

 private:
  friend class HubCharge;
  std::size_t each_;
  std::size_t most_;
  std::size_t held_ = 0;
  std::size_t worlds_ = 1;
};

class HubBudget {
 public:
  HubBudget(HubTotal& all, std::size_t ranks) : all_(&all), ranks_(ranks) {}
  [[nodiscard]] const HubTotal& all() const { return *all_; }
  [[nodiscard]] std::size_t held() const { return held_; }
  [[nodiscard]] std::size_t share() const { return all_->share(ranks_); }
  [[nodiscard]] bool fits(std::size_t more) const {
    if (held_ + more <= share()) return true;
    return held_ + more <= all_->each() && all_->held() + more <= all_->most();
  }

 private:
  friend class HubCharge;
  HubTotal* all_;
  std::size_t ranks_;  // of its world
  std::size_t held_ = 0;
};

class HubCharge {
 public:
  HubCharge() = default;
  HubCharge(HubBudget& budget, std::size_t bytes) : budget_(&budget) { set(bytes); }
  ~HubCharge() { set(0); }
  HubCharge(HubCharge&& other) noexcept : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  HubCharge& operator=(HubCharge&& other) noexcept {
    set(0);
    budget_ = other.budget_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  HubCharge(const HubCharge&) = delete;
  HubCharge& operator=(const HubCharge&) = delete;

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_of(const HubBudget& budget) const { return budget_ == &budget; }
  // The caller must check fits() first.
  void set(std::size_t bytes) {
    if (budget_ == nullptr) return;
    budget_->held_ = budget_->held_ - bytes_ + bytes;
    budget_->all_->held_ = budget_->all_->held_ - bytes_ + bytes;
    bytes_ = bytes;
  }

 private:
  HubBudget* budget_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace collab::protocol
