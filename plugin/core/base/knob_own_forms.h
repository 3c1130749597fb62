// Forms that only one knob has, the words of choices, and the checks that make a text valid for its knob.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "collab/codec.h"
#include "core/base/address.h"
#include "core/base/auto_period.h"
#include "core/base/knob_forms.h"
#include "core/base/presets.h"
#include "core/base/text.h"

namespace collab::knobs {

// ---- values of choices ---------------------------------------------------------------------------

template <typename T>
using Choice = std::pair<std::string_view, T>;

inline constexpr std::array<Choice<OuterId>, 3> kOuters{
    {{"average", OuterId::kAverage}, {"nesterov", OuterId::kNesterov}, {"rda", OuterId::kRda}}};
inline constexpr std::array<Choice<WeightBy>, 3> kWeights{
    {{"samples", WeightBy::kSamples}, {"steps", WeightBy::kSteps}, {"equal", WeightBy::kEqual}}};
inline constexpr std::array<Choice<OnNonfinite>, 2> kOnNonfinite{
    {{"error", OnNonfinite::kError}, {"continue", OnNonfinite::kContinue}}};
inline constexpr std::array<Choice<bool>, 2> kShares{{{"auto", false}, {"equal", true}}};
inline constexpr std::array<Choice<std::string_view>, 4> kTransports{
    {{"auto", "auto"}, {"tcp", "tcp"}, {"ucx", "ucx"}, {"gloo", "gloo"}}};
inline constexpr std::array<Choice<std::string_view>, 5> kLogLevels{
    {{"debug", "debug"}, {"info", "info"}, {"warning", "warning"}, {"error", "error"}, {"off", "off"}}};

// ---- texts ---------------------------------------------------------------------------------------

// Names become parts of file names and of lines people read.
inline bool is_name(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return text.size() <= 64 && text.find_first_not_of(kAllowed) == std::string_view::npos && text.front() != '.';
}

inline bool is_path(std::string_view text) {
  return text.size() <= 4000 && text.find('\0') == std::string_view::npos && is_valid_utf8(text);
}

// One line, so that a file read by mistake is noticed.
inline bool is_token(std::string_view text) {
  return text.size() >= 32 && text.size() <= 4096 && text.find_first_of(std::string_view("\n\r\0", 3)) == text.npos;
}

// A name of a congestion control algorithm that the kernel accepts.
inline bool is_congestion(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  return text.size() <= 15 && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

// Words with commas between them, or "none".
inline bool is_word_list(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-,";
  const bool whole = text.front() != ',' && text.back() != ',' && text.find(",,") == std::string_view::npos;
  return text.size() <= 1000 && whole && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

inline bool is_listen_address(std::string_view text) { return parse_host_port(text).ok(); }

// ---- knobs with a form of their own --------------------------------------------------------------

inline bool parse_preset(std::string_view text, Config& config) {
  if (!text.empty() && preset_named(text) == nullptr) return false;
  config.preset = text;
  return true;
}
inline constexpr KnobForm kPreset{KnobType::kWord, "a preset's name", parse_preset,
                                  [](const Config& config) { return config.preset; }, data<&Config::preset>};

// "none" means that the site cannot be dialled. In any case of letters it is this word, never a host's name.
inline bool parse_advertise(std::string_view text, Config& config) {
  if (!text.empty() && !is_host(text)) return false;
  constexpr std::string_view kNone = "none";
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const bool none = std::ranges::equal(text, kNone, {}, small);
  config.advertise = none ? kNone : text;
  return true;
}
inline constexpr KnobForm kAdvertise{KnobType::kText, "a host's name or address, without a port", parse_advertise,
                                     [](const Config& config) { return config.advertise; }, data<&Config::advertise>};

inline bool parse_token(std::string_view text, Config& config) {
  if (!text.empty() && !is_token(text)) return false;
  config.token = text;
  return true;
}
inline constexpr KnobForm kToken{
    KnobType::kText, "one line of 32 to 4096 characters, as `collab token` makes it", parse_token,
    [](const Config& config) { return std::string(config.token.empty() ? "" : "(set, not shown)"); },
    [](const Config& config) -> KnobData { return std::string(config.token.empty() ? "" : "(set, not shown)"); }};

// 0 means auto in Config only; as a text it is refused.
inline bool parse_connections(std::string_view text, Config& config) {
  config.connections = 0;
  return text == "auto" || parse_whole<&Config::connections, 1, 64>(text, config);
}
inline constexpr KnobForm kConnections{
    KnobType::kWholeOrAuto, "a whole number", parse_connections,
    [](const Config& config) { return config.connections == 0 ? "auto" : std::to_string(config.connections); },
    data<&Config::connections>};

inline bool parse_codecs(std::string_view text, Config& config) {
  const Result<Codecs> codecs = codecs_from_name(text);
  if (codecs.ok()) config.codec = *codecs;
  return codecs.ok();
}
inline constexpr KnobForm kCodec{KnobType::kText, "a codec, or one for each way such as int4/int8", parse_codecs,
                                 [](const Config& config) { return name_of(config.codec); },
                                 [](const Config& config) -> KnobData { return name_of(config.codec); }};

inline constexpr std::array<Choice<MergeRule>, 2> kMergeRules{
    {{"rebase", MergeRule::kRebase}, {"mix", MergeRule::kMix}}};
inline bool parse_merge(std::string_view text, Config& config) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto rule = std::ranges::find(kMergeRules, text.substr(0, colon), &Choice<MergeRule>::first);
  if (rule == kMergeRules.end() || colon == text.size()) return false;
  const auto factor = number<double>(text.substr(colon + 1));
  if (!factor || !(*factor >= 0) || !(*factor <= 1)) return false;
  config.merge = {rule->second, *factor + 0.0};  // -0 is 0
  return true;
}
// The fewest digits that give the same double back.
inline std::string shortest(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}
inline std::string format_merge(const Config& config) {
  const auto rule = std::ranges::find(kMergeRules, config.merge.rule, &Choice<MergeRule>::second);
  return std::string(rule->first) + ":" + shortest(config.merge.factor);
}
inline constexpr KnobForm kMerge{KnobType::kText, "rebase:K or mix:A, with a number from 0 to 1 such as rebase:0.5",
                                 parse_merge, format_merge,
                                 [](const Config& config) -> KnobData { return format_merge(config); }};

// auto depends on the outer optimizer, whose row comes first. Without momentum the rate is 1; with momentum it depends
// on the number of sites (core/outer/outer.h).
inline bool parse_outer_lr(std::string_view text, Config& config) {
  config.outer_lr = config.outer_optimizer == OuterId::kNesterov ? 0.0 : 1.0;
  return text == "auto" || parse_real<&Config::outer_lr, 1, 100'000>(text, config);
}
inline std::string format_outer_lr(const Config& config) {
  return config.outer_lr == 0 ? "auto" : format_real<&Config::outer_lr>(config);
}
inline constexpr KnobForm kOuterLr{KnobType::kRealOrAuto, "a number", parse_outer_lr, format_outer_lr,
                                   data<&Config::outer_lr>};

// auto depends on the codec, whose row comes first: elements that top-k leaves out wait for many rounds.
inline bool parse_feedback_decay(std::string_view text, Config& config) {
  config.feedback_decay = has_top_k(config.codec) ? 0.95 : 1.0;
  return text == "auto" || parse_real<&Config::feedback_decay, 0, 10'000>(text, config);
}
inline constexpr KnobForm kFeedbackDecay{KnobType::kRealOrAuto, "a number", parse_feedback_decay,
                                         format_real<&Config::feedback_decay>, data<&Config::feedback_decay>};

inline bool parse_site_index(std::string_view text, Config& config) {
  config.site_index.reset();
  if (text.empty()) return true;
  const auto value = number<std::uint32_t>(text);
  if (!value || *value > 4095) return false;
  config.site_index = *value;
  return true;
}
inline constexpr KnobForm kSiteIndex{
    KnobType::kWholeOrNone, "a whole number", parse_site_index,
    [](const Config& config) { return config.site_index ? std::to_string(*config.site_index) : std::string(); },
    [](const Config& config) { return config.site_index ? data_of(*config.site_index) : KnobData(); }};

inline bool parse_coordinator(std::string_view text, Config& config) {
  config.coordinator.clear();
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto address = parse_host_port(text.substr(0, comma));
    if (!address.ok() || address->port == 0) return false;
    config.coordinator.push_back(to_string(*address));
    const bool trailing_comma = comma + 1 == text.size();
    if (trailing_comma || config.coordinator.size() > 16) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return true;
}
inline std::string format_coordinator(const Config& config) {
  std::string text;
  for (const std::string& address : config.coordinator) text += (text.empty() ? "" : ",") + address;
  return text;
}
inline constexpr KnobForm kCoordinator{
    KnobType::kAddresses, "HOST:PORT or [IPv6]:PORT, at most 16 of them with commas between", parse_coordinator,
    format_coordinator, [](const Config& config) -> KnobData { return config.coordinator; }};

// The first period with sync_every=auto: that of the preset, if there is one and it counts in steps.
inline std::uint64_t first_period_of(const Config& config) {
  const Preset* preset = preset_named(config.preset);
  if (preset == nullptr) return kFirstAutoPeriod;
  for (const auto& [name, text] : preset->values) {
    if (name == "sync_every") return number<std::uint64_t>(text).value_or(kFirstAutoPeriod);
  }
  return kFirstAutoPeriod;
}

// Here a bare number means steps, never seconds.
inline bool parse_sync_every(std::string_view text, Config& config) {
  if (text == "auto") {
    config.sync_every = {first_period_of(config), Milliseconds(0), true};
    return true;
  }
  constexpr std::string_view kFrom = "auto:";
  if (text.starts_with(kFrom)) {
    const auto first = number<std::uint64_t>(text.substr(kFrom.size()));
    config.sync_every = {first.value_or(0), Milliseconds(0), true};
    return first && *first >= 1 && *first <= kMostAutoPeriod;
  }
  if (text.starts_with(kPeriodOfSamples)) {
    const auto samples = number<std::uint64_t>(text.substr(kPeriodOfSamples.size()));
    config.sync_every = {kFirstAutoPeriod, Milliseconds(0), true, samples.value_or(0)};
    return samples && *samples >= 1 && *samples <= 1'000'000'000'000;
  }
  if (const auto steps = number<std::uint64_t>(text)) {
    config.sync_every = {*steps, Milliseconds(0), false};
    return *steps >= 1 && *steps <= 1'000'000'000;
  }
  if (text.empty() || (text.back() >= '0' && text.back() <= '9')) return false;
  const auto time = time_span(text);
  if (!time || *time < Milliseconds(10) || *time > std::chrono::hours(24)) return false;
  config.sync_every = {0, *time, false};
  return true;
}
inline std::string format_sync_every(const Config& config) {
  if (config.sync_every.samples > 0) return std::string(kPeriodOfSamples) + std::to_string(config.sync_every.samples);
  if (config.sync_every.automatic) {
    const bool bare = config.sync_every.steps == kFirstAutoPeriod && first_period_of(config) == kFirstAutoPeriod;
    return bare ? "auto" : "auto:" + std::to_string(config.sync_every.steps);
  }
  return config.sync_every.steps > 0 ? std::to_string(config.sync_every.steps) : time_text(config.sync_every.time);
}
inline constexpr KnobForm kSyncEvery{
    KnobType::kStepsOrTime,
    "a number of steps such as 100, a time with its unit such as 30s, 500ms, 2m or 1h, auto, or samples:4096",
    parse_sync_every, format_sync_every, [](const Config& config) -> KnobData {
      if (config.sync_every.automatic) return format_sync_every(config);
      if (config.sync_every.steps > 0) return config.sync_every.steps;
      return seconds_of(config.sync_every.time);
    }};

// STEPS, or STEPS:SHARE if the share is not the default, a tenth.
inline bool parse_sync_anneal(std::string_view text, Config& config) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto steps = number<std::uint64_t>(text.substr(0, colon));
  SyncAnneal anneal{.steps = steps.value_or(0)};
  if (colon < text.size()) anneal.share = number<double>(text.substr(colon + 1)).value_or(0);
  config.sync_anneal = anneal;
  if (steps == 0U) return colon == text.size();
  return steps && *steps <= 100'000'000 && anneal.share >= 0.01 && anneal.share <= 1;
}
inline std::string format_sync_anneal(const Config& config) {
  const SyncAnneal& anneal = config.sync_anneal;
  std::string text = std::to_string(anneal.steps);
  if (anneal.steps > 0 && anneal.share != SyncAnneal().share) text += ":" + shortest(anneal.share);
  return text;
}
inline constexpr KnobForm kSyncAnneal{KnobType::kText, "a number of steps, or one with a part such as 20000:0.2",
                                      parse_sync_anneal, format_sync_anneal,
                                      [](const Config& config) -> KnobData { return format_sync_anneal(config); }};

}  // namespace collab::knobs
