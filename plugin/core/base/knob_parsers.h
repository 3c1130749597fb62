// The forms a knob's text can have, each a pair of functions on one field of Config.
//
// parse_*: false when the text is not of the form or out of range. Threads: pure functions.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collab/config.h"
#include "core/base/address.h"

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

// ---- one pair a form -----------------------------------------------------------------------------

template <auto kField, std::uint32_t kMin, std::uint32_t kMax, std::uint32_t kMultiple = 1>
bool parse_whole(std::string_view text, Config& config) {
  const auto value = number<std::uint32_t>(text);
  if (!value || *value < kMin || *value > kMax || *value % kMultiple != 0) return false;
  config.*kField = *value;
  return true;
}
template <auto kField>
std::string format_whole(const Config& config) {
  return std::to_string(config.*kField);
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

template <auto kField, std::int64_t kMinMs, std::int64_t kMaxMs>
bool parse_time(std::string_view text, Config& config) {
  const auto value = time_span(text);
  if (!value || *value < Milliseconds(kMinMs) || *value > Milliseconds(kMaxMs)) return false;
  config.*kField = *value;
  return true;
}
template <auto kField>
std::string format_time(const Config& config) {
  return time_text(config.*kField);
}

template <auto kField>
bool parse_switch(std::string_view text, Config& config) {
  const bool on = text == "1" || text == "true" || text == "yes";
  if (!on && text != "0" && text != "false" && text != "no") return false;
  config.*kField = on;
  return true;
}
template <auto kField>
std::string format_switch(const Config& config) {
  return config.*kField ? "1" : "0";
}

// Names, file names, hosts: kIsValid judges a text that is not empty.
template <auto kField, bool (*kIsValid)(std::string_view), bool kMayBeEmpty>
bool parse_text(std::string_view text, Config& config) {
  if (text.empty() ? !kMayBeEmpty : !kIsValid(text)) return false;
  config.*kField = text;
  return true;
}
template <auto kField>
std::string format_text(const Config& config) {
  return config.*kField;
}

// One of kChoices, an array of (text, value).
template <auto kField, const auto& kChoices>
bool parse_choice(std::string_view text, Config& config) {
  for (const auto& [name, value] : kChoices) {
    if (text != name) continue;
    config.*kField = value;
    return true;
  }
  return false;
}
template <auto kField, const auto& kChoices>
std::string format_choice(const Config& config) {
  for (const auto& [name, value] : kChoices) {
    if (config.*kField == value) return std::string(name);
  }
  return "?";
}

}  // namespace collab::knobs
