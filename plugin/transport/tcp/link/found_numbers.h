// The last number of data connections per dialled address. Peers choose their addresses, so the number of entries is
// limited: beyond it, the oldest entry is dropped.
//
// Threads: the transport's IO thread. Ownership: plain values of the engine's NumberSearch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace collab::tcp {

class FoundNumbers {
 public:
  static constexpr std::size_t kMost = 4096;  // the maximum number of members

  [[nodiscard]] std::optional<std::uint16_t> of(const std::string& address) const {
    const auto found = numbers_.find(address);
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }
  void note(const std::string& address, std::uint16_t number) {
    if (!numbers_.insert_or_assign(address, number).second) return;
    in_order_.push_back(address);
    if (in_order_.size() <= kMost) return;
    numbers_.erase(in_order_.front());
    in_order_.pop_front();
  }

 private:
  std::map<std::string, std::uint16_t> numbers_;
  std::deque<std::string> in_order_;
};

}  // namespace collab::tcp
