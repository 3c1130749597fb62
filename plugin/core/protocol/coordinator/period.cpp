#include "core/protocol/coordinator/period.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "core/base/auto_period.h"
#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/wire/limits.h"
#include "core/wire/rules.h"

namespace collab::protocol {
namespace {

static_assert(wire::kMaxPeriod == kMostAutoPeriod, "what the knob takes, the wire carries");

template <typename Number>
Number number_in(std::string_view text, Number otherwise) {
  Number number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

double seconds_of(std::uint64_t microseconds) { return static_cast<double>(microseconds) / 1e6; }

}  // namespace

PeriodRule period_rule_of(const std::vector<wire::Setting>& settings) {
  constexpr std::string_view kAuto = "auto";
  const std::string_view every = value_of(settings, "sync_every").value_or("");
  if (every.starts_with(kPeriodOfSamples)) {
    return {.first = kFirstAutoPeriod, .samples = number_in(every.substr(kPeriodOfSamples.size()), std::uint64_t{1})};
  }
  if (!every.starts_with(kAuto)) return {};
  const std::string_view first = every.substr(std::min(every.size(), kAuto.size() + 1));  // after the colon
  PeriodRule rule;
  rule.target = number_in(value_of(settings, "target_overhead").value_or(""), rule.target);
  if (!(rule.target > 0)) rule.target = PeriodRule().target;
  rule.behind = value_of(settings, "overlap") == "1";
  rule.first = std::clamp(number_in(first, kFirstAutoPeriod), 1U, wire::kMaxPeriod);
  return rule;
}

PeriodRule Period::rule() const {
  const auto& model = all_->admission.reference();
  return model ? period_rule_of(model->settings()) : PeriodRule();
}

void Period::ready(SiteId site) {
  if (rule().first != 0) ready_at_.try_emplace(site, all_->now);
}

void Period::started(const std::set<SiteId>& with) {
  for (const SiteId id : with) {
    const auto ready = ready_at_.find(id);
    if (ready != ready_at_.end()) waits_.try_emplace(id, all_->now - ready->second);
  }
}

void Period::skipped() {
  ready_at_.clear();
  waits_.clear();
}

Pace Period::slowest_of(const std::set<SiteId>& sites) const {
  Pace slowest;
  for (const SiteId id : sites) {
    const auto& ready = all_->members().at(id).round.ready();
    if (!ready) continue;
    slowest.step = std::max(slowest.step, seconds_of(ready->measured.step_us));
    const auto waited = waited_.find(id);
    if (waited == waited_.end() || ready->measured.round_us == 0) continue;
    const double others = std::chrono::duration<double>(waited->second).count();
    slowest.round = std::max(slowest.round, seconds_of(ready->measured.round_us) - others);
  }
  return slowest;
}

// The sum of all sites' samples per step, since the last contribution of each.
double Period::samples_a_step(const std::set<SiteId>& sites) const {
  double all = 0;
  for (const SiteId id : sites) {
    const auto& ready = all_->members().at(id).round.ready();
    if (ready && ready->steps > 0) all += static_cast<double>(ready->samples) / static_cast<double>(ready->steps);
  }
  return all;
}

std::uint32_t Period::committed(const wire::StartAttempt& start) {
  const PeriodRule by = rule();
  if (by.first == 0) return 0;
  std::set<SiteId> sites;
  std::uint32_t followed = 0;
  bool same = true;  // these sites took part in the round that was measured
  for (const wire::Participant& p : start.participants) {
    if (!p.here) continue;
    const Member& member = all_->members().at(p.site);
    if (member.helper) continue;
    sites.insert(p.site);
    same = same && waited_.contains(p.site);
    if (member.round.ready()) followed = std::max(followed, member.round.ready()->period);
  }
  if (choice_.in_force() == 0) choice_.go_on_from(followed != 0 ? followed : by.first);
  if (by.samples > 0) {
    by_samples(start.round, by, sites);
  } else if (same && waited_.size() == sites.size()) {
    by_time(start.round, by, sites);
  } else {
    choice_.other_sites();
  }
  std::erase_if(waits_, [&](const auto& entry) { return !sites.contains(entry.first); });
  waited_ = std::move(waits_);
  skipped();
  return choice_.in_force();
}

void Period::by_samples(RoundId round, const PeriodRule& rule, const std::set<SiteId>& sites) {
  const std::uint32_t before = choice_.in_force();
  const double each = samples_a_step(sites);
  if (each <= 0 || !choice_.counted(each, rule)) return;
  char why[128];
  std::snprintf(why, sizeof why, "the sites train on %.4g samples a step, and a round is due every %llu", each,
                static_cast<unsigned long long>(rule.samples));
  report_change(round, before, sites, why,
                {{"samples", std::to_string(rule.samples)}, {"samples_a_step", json_number(each)}});
}

void Period::by_time(RoundId round, const PeriodRule& rule, const std::set<SiteId>& sites) {
  const std::uint32_t before = choice_.in_force();
  const Pace slowest = slowest_of(sites);
  if (slowest.step <= 0 || slowest.round <= 0 || !choice_.measured(slowest, rule)) return;
  const Pace& pace = choice_.pace();
  char why[256];
  if (rule.behind) {
    std::snprintf(why, sizeof why, "a round takes %.3g s behind the training, and a step takes %.3g s", pace.round,
                  pace.step);
  } else {
    std::snprintf(why, sizeof why,
                  "a round takes %.3g s, which may be at most %.3g %% of the training, and a step takes %.3g s",
                  pace.round, 100 * rule.target, pace.step);
  }
  report_change(round, before, sites, why,
                {{"step_seconds", json_number(pace.step)},
                 {"round_seconds", json_number(pace.round)},
                 {"target", json_number(rule.target)},
                 {"overlap", rule.behind ? "true" : "false"}});
}

void Period::report_change(RoundId round, std::uint32_t before, const std::set<SiteId>& sites, const std::string& why,
                           std::vector<std::pair<std::string, std::string>> fields) {
  const std::string steps = std::to_string(choice_.in_force());
  const std::string change = before == choice_.in_force() ? " as before" : " instead of " + std::to_string(before);
  std::vector<std::string> names;
  for (const SiteId id : sites) names.push_back(all_->membership.name_of(id));
  fields.insert(fields.begin(),
                {{"round", std::to_string(round.value)}, {"period", steps}, {"before", std::to_string(before)}});
  fields.emplace_back("members", json_list(names));
  all_->note(
      Note::Level::kInfo, "period",
      "round " + std::to_string(round.value) + ": " + steps + " steps until the next round" + change + ": " + why,
      std::move(fields));
}

}  // namespace collab::protocol
