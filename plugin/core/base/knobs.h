// One row a knob: what people read (Knob) and how its text becomes a field of Config and back.
//
// Threads: the table is immutable. Ownership: static.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collab/config.h"

namespace collab {

struct KnobRow {
  Knob knob;
  std::string_view start;  // "a whole number", "a time such as ...": completes "expected ..."
  // False when the text is not of the form or out of range; the field is then unspecified.
  bool (*parse)(std::string_view text, Config& config);
  // The value in force in its one spelling; parse(format(c)) gives c's value back.
  std::string (*format)(const Config& config);
};

[[nodiscard]] std::span<const KnobRow> knob_rows();

inline constexpr std::string_view kVariablePrefix = "COLLAB_";
[[nodiscard]] std::string variable_of(const Knob& knob);  // its name in the environment
// Exactly the upper-case spelling: COLLAB_codec would work here and nowhere else. Null: no knob's.
[[nodiscard]] const KnobRow* row_of_variable(std::string_view variable);

}  // namespace collab
