// The table of knobs. A row has a knob's documentation (Knob) and converts its text to a field of Config and back.
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

// A field of Config for another language: nothing, a switch, a whole number, a number (times are in seconds), a text,
// texts.
using KnobData = std::variant<std::monostate, bool, std::uint64_t, double, std::string, std::vector<std::string>>;

struct KnobForm {
  KnobType type = KnobType::kText;
  std::string_view expected;  // "a whole number", "a time such as ...": completes "expected ..."
  // False if the text is not of the form or out of range; the field is then unspecified. Rows are parsed in the order
  // of the table, so a text's meaning may depend on an earlier row (outer_lr).
  bool (*parse)(std::string_view text, Config& config) = nullptr;
  // The value in its canonical spelling; parse(format(c)) gives c's value back.
  std::string (*format)(const Config& config) = nullptr;
  KnobData (*data)(const Config& config) = nullptr;
};

struct KnobRow {
  Knob knob;
  KnobForm form;
};

[[nodiscard]] std::span<const KnobRow> knob_rows();

// Bounds that code outside the table uses, too.
inline constexpr std::uint32_t kMostFragments = 64;

inline constexpr std::string_view kVariablePrefix = "COLLAB_";
[[nodiscard]] std::string variable_of(std::string_view name);  // a knob's name in the environment
// The row with exactly this name; null: there is none.
[[nodiscard]] const KnobRow* row_of(std::string_view name);
// The rows that a name stands for. An old name stands for the one or several rows that replaced it.
[[nodiscard]] std::vector<const KnobRow*> rows_meant(std::string_view name);
// The rows of a variable. Only the upper-case spelling counts: COLLAB_codec would work here and nowhere else.
[[nodiscard]] std::vector<const KnobRow*> rows_of_variable(std::string_view variable);

}  // namespace collab
