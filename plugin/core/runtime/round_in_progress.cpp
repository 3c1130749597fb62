#include "core/runtime/round_in_progress.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/formatting.h"

namespace collab {
namespace {

[[nodiscard]] double seconds_between(TimePoint from, TimePoint to) {
  return to <= from ? 0.0 : std::chrono::duration<double>(to - from).count();
}

[[nodiscard]] std::string times_of(const RoundReport& report) {
  char line[128];
  const RoundTimes& times = report.times;
  if (times.training.overlap > 0) {
    std::snprintf(line, sizeof line, "%.2f s behind the training, which was paused for %.2f s", times.training.overlap,
                  times.training.stall);
  } else {
    std::snprintf(line, sizeof line, "%.2f s, waited %.2f s", times.whole,
                  std::max(0.0, times.training.stall - times.whole));
  }
  return line;
}

}  // namespace

std::uint64_t RoundInProgress::begin(const protocol::Trigger& trigger, TimePoint now) {
  report_ = {};
  moved_ = false;
  triggered_ = now;
  began_ = kNever;
  samples_ = trigger.samples;
  return trigger.steps - std::exchange(steps_, trigger.steps);
}

void RoundInProgress::changes(ParameterChange change, ElementRange range) {
  report_.change = change;
  report_.range = range;
}

void RoundInProgress::applied(protocol::Base base, const AppliedCommit& commit) {
  const bool again = report_.change != ParameterChange::kUnchanged;  // after a commit that was still due
  moved_ = moved_ || again || base == protocol::Base::kSnapshot;
  if (base == protocol::Base::kUnfit) report_.unfit = unfit_because_;
  if (commit.change != ParameterChange::kUnchanged) changes(commit.change, commit.range);
  report_.state = commit.state;
  report_.outer_lr = commit.outer_lr;
  report_.clipped_norm = commit.clipped_norm;
}

void RoundInProgress::rebased(protocol::Base base) {
  moved_ = true;
  const bool unfit = base == protocol::Base::kUnfit;
  if (unfit) report_.unfit = unfit_because_;
  changes(unfit ? ParameterChange::kToAnchor : ParameterChange::kTakeOther);
}

// True if one outer step that the ranks can repeat made the whole change of the parameters.
bool RoundInProgress::can_be_repeated(std::uint64_t elements) const {
  const ElementRange all{0, elements};
  return !moved_ || (report_.change == ParameterChange::kToAnchor && common(report_.range, all) == all);
}

void RoundInProgress::skipped(const std::string& why, const std::optional<SealedAnchor>& sealed, TimePoint now) {
  exchange_ends();
  if (sealed) {
    report_.round = sealed->round;
    report_.state = sealed->digest;
  }
  report_.skipped = why;
  report_.period = period_;
  report_.times.training.stall = seconds_between(triggered_, now);
}

void RoundInProgress::done(const protocol::RoundDone& done, const RoundTraffic& traffic, TimePoint now) {
  report_.round = done.round;
  report_.attempts = done.attempts;
  report_.members = done.members;
  report_.contributors = done.contributors;
  report_.samples = done.samples;
  report_.period = done.period;
  report_.times.whole = began_ == kNever ? 0 : seconds_between(began_, now);
  report_.times.training.stall = seconds_between(triggered_, now);
  report_.times.exchange =
      traffic.first_payload == kNever ? 0 : seconds_between(traffic.first_payload, traffic.last_payload);
  report_.traffic = traffic;
  period_ = done.period;
  exchange_ends();
}

JsonFields fields_of(const RoundReport& report) {
  return {{"round", std::to_string(report.round.value)},
          {"attempts", std::to_string(report.attempts)},
          {"members", protocol::json_list(report.members)},
          {"contributors", protocol::json_list(report.contributors)},
          {"samples", std::to_string(report.samples)},
          {"bytes_sent", std::to_string(report.traffic.bytes_sent)},
          {"bytes_received", std::to_string(report.traffic.bytes_received)},
          {"seconds", json_number(report.times.whole)},
          {"exchange_seconds", json_number(report.times.exchange)},
          {"stall_seconds", json_number(report.times.training.stall)},
          {"digest", json_quote(to_hex(report.state))}};
}

std::string text_of(const RoundReport& report) {
  const std::string who = protocol::join_words(report.contributors);
  return "round " + std::to_string(report.round.value) + ": " +
         (who.empty() ? "no site had samples" : who + " averaged") + "; " + times_of(report) + ", " +
         in_megabytes(report.traffic.bytes_sent) + " sent, " + in_megabytes(report.traffic.bytes_received) +
         " received" +
         (report.clipped_norm > 0 ? "; the mean delta's norm, " + json_number(static_cast<float>(report.clipped_norm)) +
                                        ", was cut to COLLAB_OUTER_CLIP"
                                  : std::string());
}

}  // namespace collab
