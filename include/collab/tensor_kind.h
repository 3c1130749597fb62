// What sites do with one tensor of the model.
//
// Threads and ownership: plain values.
#pragma once

#include <cstdint>
#include <string_view>

namespace collab {

enum class TensorKind : std::uint8_t {
  kFrozen = 0,    // a parameter that is not trained: the same values at all sites, never exchanged
  kAveraged = 1,  // part of the parameter vector: a trained parameter, or a buffer
  kLeftOut = 2,   // a buffer that is not averaged (not persistent, or not finite): each site keeps its own values
};

[[nodiscard]] constexpr std::string_view name_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::kFrozen: return "frozen";
    case TensorKind::kAveraged: return "averaged";
    case TensorKind::kLeftOut: return "left out";
  }
  return "unknown";
}

}  // namespace collab
