// Whether to give memory that a burst has left on the heap back to the system: once little of it is still in use. Small
// allocations lie in pieces all over the heap, and free() keeps them.
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
  void burst() { owes_ = true; }  // of another kind
  [[nodiscard]] bool owes() const { return owes_; }
  // True: give it back now, with `bytes` held still.
  [[nodiscard]] bool settle(std::size_t bytes) { return bytes < kLittle && std::exchange(owes_, false); }

 private:
  bool owes_ = false;
};

}  // namespace collab
