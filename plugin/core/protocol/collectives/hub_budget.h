// What ranks make a hub hold, counted: of each rank, and of all together.
//
//   HubHeld (one of a kind for a hub) <-- HubBudget (one for each rank) <-- HubCharge (beside what is held)
//
// A rank may hold `each`. Once all hold `most`, a rank may still hold its share of it, which every world has alike, and
// in a world every rank, here or not: one that fills the hub takes nothing from another's share, and one world never
// holds more than twice `most`.
// Threads: one at a time. Ownership: a charge ends with what it is kept beside.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace collab::protocol {

struct HubHeld {
  std::size_t each = 0;
  std::size_t most = 0;
  std::size_t held = 0;
  std::size_t worlds = 1;
};

struct HubBudget {
  std::shared_ptr<HubHeld> all;
  std::size_t ranks = 1;  // of its world
  std::size_t held = 0;

  [[nodiscard]] std::size_t own() const {
    return std::min(all->each, all->most / std::max<std::size_t>(1, all->worlds) / std::max<std::size_t>(1, ranks));
  }
  [[nodiscard]] bool fits(std::size_t more) const {
    if (held + more <= own()) return true;
    return held + more <= all->each && all->held + more <= all->most;
  }
};

class HubCharge {
 public:
  HubCharge() = default;
  HubCharge(std::shared_ptr<HubBudget> share, std::size_t bytes) : share_(std::move(share)) { set(bytes); }
  ~HubCharge() { set(0); }
  HubCharge(HubCharge&& other) noexcept : share_(std::move(other.share_)), bytes_(std::exchange(other.bytes_, 0)) {}
  HubCharge& operator=(HubCharge&& other) noexcept {
    set(0);
    share_ = std::move(other.share_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  HubCharge(const HubCharge&) = delete;
  HubCharge& operator=(const HubCharge&) = delete;

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Whether it fits is for the caller to ask.
  void set(std::size_t bytes) {
    if (share_ == nullptr) return;
    share_->held = share_->held - bytes_ + bytes;
    share_->all->held = share_->all->held - bytes_ + bytes;
    bytes_ = bytes;
  }

 private:
  std::shared_ptr<HubBudget> share_;
  std::size_t bytes_ = 0;
};

}  // namespace collab::protocol
