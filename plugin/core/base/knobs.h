// One row a knob: what people read (Knob) and how its text becomes a field of Config and back.
//
// Threads: the table is immutable. Ownership: static.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "collab/config.h"

namespace collab {

// A field of Config as another language takes it: nothing, a switch, a whole number, a number (times are seconds), a
// text, texts.
using KnobData = std::variant<std::monostate, bool, std::uint64_t, double, std::string, std::vector<std::string>>;

struct KnobForm {
  KnobType type = KnobType::kText;
  std::string_view expected;  // "a whole number", "a time such as ...": completes "expected ..."
  // False when the text is not of the form or out of range; the field is then unspecified. Rows are read in the order
  // of the table, so that a text may mean what an earlier row makes of it (outer_lr).
  bool (*parse)(std::string_view text, Config& config) = nullptr;
  // The value in force in its one spelling; parse(format(c)) gives c's value back.
  std::string (*format)(const Config& config) = nullptr;
  KnobData (*data)(const Config& config) = nullptr;
};

struct KnobRow {
  Knob knob;
  KnobForm form;
};

[[nodiscard]] std::span<const KnobRow> knob_rows();

// Bounds that others than the table go by.
inline constexpr std::uint32_t kMostFragments = 64;

inline constexpr std::string_view kVariablePrefix = "COLLAB_";
[[nodiscard]] std::string variable_of(std::string_view name);  // a knob's name in the environment
// The row of that name, exactly; null: no knob's.
[[nodiscard]] const KnobRow* row_of(std::string_view name);
// The rows that a name stands for, which may be an old one: none, one, or the several that took the old one's place.
[[nodiscard]] std::vector<const KnobRow*> rows_meant(std::string_view name);
// The rows of a variable. Only the upper-case spelling counts: COLLAB_codec would work here and nowhere else.
[[nodiscard]] std::vector<const KnobRow*> rows_of_variable(std::string_view variable);

}  // namespace collab
