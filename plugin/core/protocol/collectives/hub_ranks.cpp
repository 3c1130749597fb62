#include "core/protocol/collectives/hub_ranks.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

namespace {

// A rank may enter again this often at once, then once per heartbeat. It enters again when a ballot is raised.
constexpr double kAgainAtOnce = 20;

}  // namespace

HubRanks::HubRanks(HubWorld& world, const wire::Enter& first)
    : world_(world),
      sites_(first.sites),
      site_of_(first.site_of),
      ranks_(first.site_of.size()),
      again_(ranks_.size(),
             RateLimit(kAgainAtOnce, 1 / std::chrono::duration<double>(world.hub.config.heartbeat).count())) {}

std::string HubRanks::text(RankId rank) const { return "rank " + std::to_string(rank.value) + " of " + site(rank); }

std::string HubRanks::texts(const std::vector<RankId>& ranks) const {
  std::vector<std::string> names;
  for (const RankId rank : ranks) names.push_back(text(rank));
  return names_text(std::move(names), {});
}

std::string HubRanks::left_out_text(RankId rank) const {
  const HubRank& each = ranks_[rank.value];
  return text(rank) + " was left out of its world's collectives: " + (each.left ? "it had left" : each.gone) +
         "; its world goes on without it, so start it again as a new process [hub.left-out]";
}

std::string HubRanks::why_refused(const wire::Enter& message) const {
  if (sites_ != message.sites || site_of_ != message.site_of) {
    return "the ranks of this world are " + std::to_string(site_of_.size()) + " at " +
           names_text(sites_, message.sites) + "; this rank says " + std::to_string(message.site_of.size()) + " at " +
           names_text(message.sites, sites_) + "; start all ranks of a world with the same sites [hub.other-map]";
  }
  const HubRank& rank = ranks_[message.rank.value];
  if (rank.away() && !mutant(Mutant::kGoneIsLetIn)) return left_out_text(message.rank);
  if (rank.acceptor.value == 0 || rank.acceptor == message.acceptor) return "";
  return text(message.rank) +
         " has been in its world's collectives as another process, whose memory is lost; the world cannot take a new "
         "one in its place, so start a new world [hub.restarted]";
}

bool HubRanks::all_left() const {
  return std::ranges::all_of(ranks_, [](const HubRank& rank) {
    return rank.left || (rank.gone.empty() ? !rank.entered : mutant(Mutant::kWorldForgottenWithGone));
  });
}

TimePoint HubRanks::abandoned_at() const {
  const HubConfig& config = world_.hub.config;
  return any_linked() ? kNever : later(heard_, std::max(config.join_timeout, 2 * config.link_grace));
}

std::optional<TimePoint> HubRanks::silent_since() const {
  const bool silent = !any_linked() && world_.hub.now >= later(heard_, world_.hub.config.link_grace);
  return silent ? std::optional(heard_) : std::nullopt;
}

bool HubRanks::may_enter(LinkId link, RankId rank) {
  return ranks_[rank.value].link != link || again_[rank.value].allow(world_.hub.now);
}

bool HubRanks::enter(LinkId link, const wire::Enter& message) {
  HubRank& rank = ranks_[message.rank.value];
  const bool fresh = rank.link != link;
  if (fresh) world_.hub.worlds.close_link(rank.link, "its rank has entered over another link");
  this->link(rank, link);
  rank.acceptor = message.acceptor;
  if (!std::exchange(rank.entered, true)) world_.hub.counters.presence_changed();
  rank.in = false;
  heard(message.rank);
  world_.hub.worlds.enter(link, {world_.number, message.rank});
  return fresh;
}

void HubRanks::on_leave(RankId rank, const wire::Leave& message) {
  world_.hub.worlds.close_link(ranks_[rank.value].link, "its rank has left");
  ranks_[rank.value].left = true;
  world_.hub.counters.presence_changed();
  world_.hub.note(Note::Level::kDebug, "hub", text(rank) + " has left: " + message.reason);
  world_.groups.settle(rank);
  world_.membership.advance();
}

void HubRanks::heard(RankId rank) {
  ranks_[rank.value].heard = heard_ = world_.hub.now;
  next_ = std::min(next_, silent_at(rank));  // it may have been silent before
}

void HubRanks::link(HubRank& rank, LinkId link) {
  linked_ -= rank.linked() ? 1 : 0;
  rank.link = link;
  linked_ += rank.linked() ? 1 : 0;
  next_ = std::min(next_, abandoned_at());
}

void HubRanks::lose_link(RankId rank) {
  link(ranks_[rank.value], {});
  ranks_[rank.value].in = false;
}

void HubRanks::readmit_all() {
  for (HubRank& rank : ranks_) rank.in = false;
}

void HubRanks::disconnect_all(const std::string& why) {
  world_.hub.counters.presence_changed();
  for (HubRank& rank : ranks_) rank.entered = false;
  expected_by_ = kNever;
  suspects_.clear();
  if (!any_linked()) return;
  for (HubRank& rank : ranks_) {
    world_.hub.send(rank.link, wire::Notice{std::string(kMinority), why});
    world_.hub.worlds.close_link(rank.link, why);
  }
  world_.hub.note(Note::Level::kWarning, "hub", why + " [hub.dismissed]");
}

// Logs one line for all of them.
void HubRanks::mark_gone(const std::vector<RankId>& ranks, const std::string& why) {
  if (ranks.empty()) return;
  world_.hub.counters.presence_changed();
  for (const RankId rank : ranks) {
    ranks_[rank.value].gone = why;
    const LinkId link = ranks_[rank.value].link;
    if (link.value == 0) continue;
    const std::string reason = left_out_text(rank);
    world_.hub.send(link, wire::Refuse{reason});
    world_.hub.worlds.close_link(link, reason);
  }
  world_.hub.note(Note::Level::kWarning, "hub",
                  texts(ranks) + (ranks.size() == 1 ? " is" : " are") + " gone from the world's collectives: " + why +
                      " [hub.rank-gone]");
}

// ---- silence

void HubRanks::await_ranks(bool returning) {
  const HubConfig& config = world_.hub.config;
  // The ranks looked for the old hub for up to a grace. If it does not answer at all, they need as long again.
  expected_by_ =
      later(world_.hub.now, returning ? 2 * config.link_grace : std::max(config.join_timeout, config.link_grace));
  suspects_.clear();
  world_.hub.counters.presence_changed();
  for (HubRank& rank : ranks_) rank.entered = false;
  next_ = std::min(next_, expected_by_);
}

void HubRanks::expect_soon() {
  expected_by_ = std::min(expected_by_, later(world_.hub.now, 2 * world_.hub.config.link_grace));
  next_ = std::min(next_, expected_by_);
}

TimePoint HubRanks::silent_at(RankId rank) const {
  const HubRank& each = ranks_[rank.value];
  return each.entered ? later(each.heard, world_.hub.config.link_grace) : expected_by_;
}

bool HubRanks::is_silent(RankId rank) const { return world_.hub.now >= silent_at(rank); }

// The next time to look at the world or at a rank. A rank that has been judged is not looked at again.
TimePoint HubRanks::next_look() const {
  TimePoint next = abandoned_at();
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (ranks_[i].away()) continue;
    const TimePoint limit = silent_at(RankId(i));
    const TimePoint due = hold_ == kNever ? limit : std::max(limit, hold_);
    if (due > world_.hub.now || !is_suspect(RankId(i))) next = std::min(next, due);
  }
  return next;
}

void HubRanks::on_tick() {
  world_.hub.counters.looked_at(size());
  judge_silence();
  next_ = next_look();
}

void HubRanks::judge_silence() {
  const TimePoint soon = later(world_.hub.now, world_.hub.config.heartbeat);
  std::set<std::uint32_t> silent;
  bool others_falter = false;  // other ranks will be silent within a heartbeat
  for (std::uint32_t i = 0; i < size(); ++i) {
    const HubRank& rank = ranks_[i];
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
  if (suspects_ != silent) world_.hub.counters.presence_changed();
  suspects_ = std::move(silent);
  if (suspects_.empty()) return;
  if (!world_.only_hub) world_.membership.judge_quorum();
  world_.membership.advance();
}

}  // namespace collab::protocol
