// Decides when to return heap memory to the system after a burst: once little of it is still in use. Small allocations
// are scattered over the heap, and free() keeps their memory.
//
// Threads: one at a time. Ownership: nothing.
#pragma once

#include <cstddef>
#include <utility>

namespace collab {

class TrimDebt {
 public:
  static constexpr std::size_t kMuch = std::size_t{64} << 20;
  static constexpr std::size_t kLittle = kMuch / 4;

  void holds(std::size_t bytes) { owes_ = owes_ || bytes > kMuch; }
  void burst() { owes_ = true; }  // a burst that holds() does not see
  [[nodiscard]] bool owes() const { return owes_; }
  // True: return the memory now. `bytes` are still in use.
  [[nodiscard]] bool settle(std::size_t bytes) { return bytes < kLittle && std::exchange(owes_, false); }

 private:
  bool owes_ = false;
};

}  // namespace collab
