#include "core/protocol/formatting.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/base/text.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMostNamed = 16;  // in a line, or in a command to copy

}  // namespace

std::string join_words(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

std::string names_text(std::vector<std::string> names, const std::vector<std::string>& others) {
  if (names.empty()) return "none";
  if (names.size() <= kMostNamed) return join_words(names);
  std::ranges::stable_partition(
      names, [&others](const std::string& name) { return std::ranges::find(others, name) == others.end(); });
  const std::size_t more = names.size() - kMostNamed;
  names.resize(kMostNamed);
  return join_words(names) + " and " + std::to_string(more) + " more";
}

std::string forget_text(const std::vector<std::string>& missing) {
  if (missing.empty()) return {};
  return "; if they will not come back, say so where the others can hear it: collab forget " +
         (missing.size() > kMostNamed ? "SITE ..." : join_words(missing, " "));
}

std::string json_list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  quoted.reserve(words.size());
  for (const std::string& word : words) quoted.push_back(json_quote(word));
  return "[" + join_words(quoted, ",") + "]";
}

std::string in_seconds(Duration time) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.3g s", static_cast<double>(time.count()) / 1e6);
  if (time >= std::chrono::seconds(100)) {
    std::snprintf(text.data(), text.size(), "%lld s", static_cast<long long>(time.count() / 1'000'000));
  }
  return text.data();
}

std::string in_milliseconds(Duration time) { return std::to_string(time.count() / 1000) + " ms"; }

std::string in_bytes(std::size_t bytes) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  return bytes > 0 && bytes % kMiB == 0 ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes) + " bytes";
}

std::string times_text(std::uint32_t times) { return times == 1 ? "once" : std::to_string(times) + " times"; }

Note make_note(Note::Level level, std::string event, std::string text,
               std::vector<std::pair<std::string, std::string>> fields) {
  return Note{level, std::move(event), std::move(text), std::move(fields)};
}

void WaitProgress::start(TimePoint now) {
  since_ = now;
  next_ = later(now, std::chrono::seconds(10));
}

std::optional<Duration> WaitProgress::due(TimePoint now) {
  if (!since_ || now < next_) return std::nullopt;
  const Duration waited = now - *since_;
  for (const auto step : {std::chrono::seconds(30), std::chrono::seconds(60)}) {
    if (waited < step) {
      next_ = *since_ + step;
      return waited;
    }
  }
  next_ = *since_ + (waited / std::chrono::seconds(60) + 1) * std::chrono::seconds(60);
  return waited;
}

TimePoint later(TimePoint when, Duration after) { return when > kNever - after ? kNever : when + after; }

}  // namespace collab::protocol
