// What every fuzz target gives: the function libFuzzer calls, and valid inputs to start from.
//
// A target aborts (FUZZ_CHECK) when a promise is broken; it must take any bytes whatever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collab/status.h"

#define FUZZ_CHECK(condition) COLLAB_CHECK(condition, "fuzz: " #condition)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace collab::fuzz {

using Input = std::vector<std::uint8_t>;

// Inputs that reach deep; mutations start from them.
[[nodiscard]] std::vector<Input> seed_inputs();

[[nodiscard]] inline Input to_input(std::span<const std::byte> bytes) {
  Input input(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) input[i] = std::to_integer<std::uint8_t>(bytes[i]);
  return input;
}

}  // namespace collab::fuzz
