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
  std::string_view form;  // "a whole number", "a time such as ...": completes "expected ..."
  // False when the text is not of the form or out of range; the field is then unspecified.
  bool (*parse)(std::string_view text, Config& config);
  // The value in force in its one spelling; parse(format(c)) gives c's value back.
  std::string (*format)(const Config& config);
};

[[nodiscard]] std::span<const KnobRow> knob_rows();

}  // namespace collab
