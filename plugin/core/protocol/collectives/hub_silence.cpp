#include "core/protocol/collectives/hub_silence.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {

void HubSilence::await_ranks(bool returning) {
  const HubConfig& config = world_.hub.config;
  // They looked for the old hub up to the grace, and need as long again when it does not answer at all.
  expected_by_ =
      later(world_.hub.now, returning ? 2 * config.link_grace : std::max(config.join_timeout, config.link_grace));
  suspects_.clear();
  world_.ranks.await_all();
}

void HubSilence::expect_soon() {
  expected_by_ = std::min(expected_by_, later(world_.hub.now, 2 * world_.hub.config.link_grace));
}

void HubSilence::stop_awaiting() {
  expected_by_ = kNever;
  suspects_.clear();
}

TimePoint HubSilence::silent_at(RankId rank) const {
  const HubRank& each = world_.ranks[rank];
  return each.entered ? later(each.heard, world_.hub.config.link_grace) : expected_by_;
}

bool HubSilence::is_silent(RankId rank) const { return world_.hub.now >= silent_at(rank); }

// When a rank is to be looked at; never again, once it has been judged.
TimePoint HubSilence::next_deadline() const {
  TimePoint next = kNever;
  for (std::uint32_t i = 0; i < world_.ranks.size(); ++i) {
    if (world_.ranks[RankId(i)].away()) continue;
    const TimePoint limit = silent_at(RankId(i));
    const TimePoint due = hold_ == kNever ? limit : std::max(limit, hold_);
    if (due > world_.hub.now || !is_suspect(RankId(i))) next = std::min(next, due);
  }
  return next;
}

void HubSilence::on_tick() {
  const TimePoint soon = later(world_.hub.now, world_.hub.config.heartbeat);
  std::set<std::uint32_t> silent;
  bool others_falter = false;  // silent, too, within a heartbeat
  for (std::uint32_t i = 0; i < world_.ranks.size(); ++i) {
    const HubRank& rank = world_.ranks[RankId(i)];
    if (rank.away()) continue;
    if (is_silent(RankId(i))) {
      silent.insert(i);
    } else {
      others_falter = others_falter || (rank.entered && soon >= silent_at(RankId(i)));
    }
  }
  const bool fresh = !std::ranges::includes(suspects_, silent);
  if (fresh && others_falter && hold_ == kNever) hold_ = soon;
  if (hold_ != kNever && world_.hub.now < hold_) return;
  hold_ = kNever;
  suspects_ = std::move(silent);
  if (suspects_.empty()) return;
  if (!world_.only_hub) world_.membership.judge_quorum();
  world_.membership.advance();
}

}  // namespace collab::protocol
