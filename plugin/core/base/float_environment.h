// Pins the floating-point state, on which every result depends, for a scope.
//
// A host program may flush denormals to zero (torch.set_flush_denormal) or round otherwise on the very thread that
// calls us; two sites would then disagree in the last bit. A FloatEnvironment sets IEEE defaults (round to nearest
// even, denormals kept, exceptions masked) and puts the caller's state back. It costs a few nanoseconds per chunk.
//
// Threads: the state belongs to the calling thread. Ownership: restores what it found.
#pragma once

#include <cstdint>

namespace collab {

class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(read()) { write(kIeeeDefaults); }
  ~FloatEnvironment() { write(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  // The "memory" clobbers keep loads and stores, and with them the arithmetic between, inside the scope.
#if defined(__x86_64__)
  using Word = std::uint32_t;
  static constexpr Word kIeeeDefaults = 0x1F80;  // MXCSR after reset
  static Word read() {
    Word word = 0;
    asm volatile("stmxcsr %0" : "=m"(word) : : "memory");
    return word;
  }
  static void write(Word word) { asm volatile("ldmxcsr %0" : : "m"(word) : "memory"); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kIeeeDefaults = 0;  // FPCR after reset
  static Word read() {
    Word word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
#error "collab needs to pin rounding and denormals: teach FloatEnvironment this processor"
#endif

  Word saved_;
};

}  // namespace collab
