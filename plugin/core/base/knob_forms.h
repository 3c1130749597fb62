// The forms a knob's text can have, each made for one field of Config: whole<&Config::chunk_kib, 4, 65536, 4>().
//
// Threads: pure functions.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "collab/clock.h"
#include "collab/config.h"
#include "core/base/knobs.h"

namespace collab::knobs {

using Milliseconds = std::chrono::milliseconds;

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "30s", "500ms", "2m", "1h", "1.5s"; a bare number is seconds.
inline std::optional<Milliseconds> time_span(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits{
      {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"", 1e3}}};
  for (const auto& [unit, factor] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto count = number<double>(text.substr(0, text.size() - unit.size()));
    if (!count || !(*count >= 0) || *count * factor > 1e12) return std::nullopt;
    return Milliseconds(std::llround(*count * factor));
  }
  return std::nullopt;
}

inline std::string time_text(Milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + "s" : std::to_string(count) + "ms";
}

// ---- a field's value for another language --------------------------------------------------------

inline KnobData data_of(bool value) { return value; }
inline KnobData data_of(std::uint32_t value) { return std::uint64_t{value}; }
inline KnobData data_of(double value) { return value; }
inline KnobData data_of(Milliseconds value) { return seconds_of(value); }
inline KnobData data_of(const std::string& value) { return value; }

template <auto kField>
KnobData data(const Config& config) {
  return data_of(config.*kField);
}

// ---- forms ---------------------------------------------------------------------------------------

template <auto kField, std::uint32_t kMin, std::uint32_t kMax, std::uint32_t kMultiple = 1>
bool parse_whole(std::string_view text, Config& config) {
  const auto value = number<std::uint32_t>(text);
  if (!value || *value < kMin || *value > kMax || *value % kMultiple != 0) return false;
  config.*kField = *value;
  return true;
}
template <auto kField, std::uint32_t kMin, std::uint32_t kMax, std::uint32_t kMultiple = 1>
constexpr KnobForm whole() {
  return {KnobType::kWhole, "a whole number", parse_whole<kField, kMin, kMax, kMultiple>,
          [](const Config& config) { return std::to_string(config.*kField); }, data<kField>};
}

// Bounds in ten-thousandths: floating-point template arguments are beyond clang 14.
template <auto kField, int kMinE4, int kMaxE4>
bool parse_real(std::string_view text, Config& config) {
  const auto value = number<double>(text);
  if (!value || !(*value >= kMinE4 / 1e4) || !(*value <= kMaxE4 / 1e4)) return false;
  config.*kField = *value + 0.0;  // -0 is 0
  return true;
}
template <auto kField>
std::string format_real(const Config& config) {
  std::array<char, 32> text{};  // the shortest digits that give the same double back
  const auto end = std::to_chars(text.data(), text.data() + text.size(), config.*kField).ptr;
  return {text.data(), end};
}
template <auto kField, int kMinE4, int kMaxE4>
constexpr KnobForm real() {
  return {KnobType::kReal, "a number", parse_real<kField, kMinE4, kMaxE4>, format_real<kField>, data<kField>};
}

template <auto kField, std::int64_t kMinMs, std::int64_t kMaxMs>
constexpr KnobForm time() {
  constexpr auto kParse = [](std::string_view text, Config& config) {
    const auto value = time_span(text);
    if (!value || *value < Milliseconds(kMinMs) || *value > Milliseconds(kMaxMs)) return false;
    config.*kField = *value;
    return true;
  };
  return {KnobType::kTime, "a time such as 30s, 500ms, 2m or 1h (a bare number is seconds)", kParse,
          [](const Config& config) { return time_text(config.*kField); }, data<kField>};
}

template <auto kField>
constexpr KnobForm on_or_off() {
  constexpr auto kParse = [](std::string_view text, Config& config) {
    const bool on = text == "1" || text == "true" || text == "yes";
    if (!on && text != "0" && text != "false" && text != "no") return false;
    config.*kField = on;
    return true;
  };
  return {KnobType::kSwitch, "1, true, yes, 0, false or no", kParse,
          [](const Config& config) { return std::string(config.*kField ? "1" : "0"); }, data<kField>};
}

// Names, file names, hosts: kIsValid judges a text that is not empty.
template <auto kField, bool (*kIsValid)(std::string_view), bool kMayBeEmpty>
constexpr KnobForm text(std::string_view expected) {
  constexpr auto kParse = [](std::string_view text, Config& config) {
    if (text.empty() ? !kMayBeEmpty : !kIsValid(text)) return false;
    config.*kField = text;
    return true;
  };
  return {KnobType::kText, expected, kParse, [](const Config& config) { return config.*kField; }, data<kField>};
}

// One of kChoices, an array of (word, value).
template <auto kField, const auto& kChoices>
std::string format_choice(const Config& config) {
  for (const auto& [word, value] : kChoices) {
    if (config.*kField == value) return std::string(word);
  }
  return "?";
}
template <auto kField, const auto& kChoices>
constexpr KnobForm choice() {
  constexpr auto kParse = [](std::string_view text, Config& config) {
    for (const auto& [word, value] : kChoices) {
      if (text != word) continue;
      config.*kField = value;
      return true;
    }
    return false;
  };
  return {KnobType::kWord, "one word", kParse, format_choice<kField, kChoices>,
          [](const Config& config) -> KnobData { return format_choice<kField, kChoices>(config); }};
}

}  // namespace collab::knobs
