// Presets: values for several knobs under one name (COLLAB_PRESET). A knob that is set explicitly overrides its preset.
//
// Threads: the table is immutable. Ownership: static.
#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace collab {

struct Preset {
  std::string_view name;
  std::string_view sentence;                                              // its purpose
  std::span<const std::pair<std::string_view, std::string_view>> values;  // (knob, text)
};

[[nodiscard]] std::span<const Preset> presets();
[[nodiscard]] const Preset* preset_named(std::string_view name);  // null: there is none

}  // namespace collab
