#include "tests/hostile/world.h"

#include <array>
#include <deque>
#include <span>

#include "core/base/digest.h"

namespace collab::hostile {
namespace {

constexpr Duration kEnteredLimit = std::chrono::seconds(2);
constexpr Duration kBeat = std::chrono::milliseconds(200);

}  // namespace

std::vector<RankId> World::others() const {
  std::vector<RankId> found;
  for (std::uint32_t i = 0; i < site_of.size(); ++i) {
    if (site_of[i] != site_of[rank.value]) found.emplace_back(i);
  }
  return found;
}

std::vector<RankId> World::own() const {
  std::vector<RankId> found;
  for (std::uint32_t i = rank.value; i < site_of.size(); ++i) {
    if (site_of[i] == site_of[rank.value]) found.emplace_back(i);
  }
  return found;
}

wire::Enter draw_enter(Context& context, std::uint32_t ranks) {
  wire::Enter enter;
  enter.swarm = context.swarm.name;
  enter.world = context.prng.next();
  enter.sites = {"mallory"};
  enter.site_of.assign(ranks, 0);
  enter.acceptor = AcceptorId(1 + context.prng.below(UINT64_MAX - 1));
  return enter;
}

wire::Enter enter_of(const World& world, const std::string& swarm, RankId rank) {
  wire::Enter enter;
  enter.swarm = swarm;
  enter.world = world.number;
  enter.rank = rank;
  enter.sites = world.sites;
  enter.site_of = world.site_of;
  const std::array<std::uint64_t, 2> key{world.number, rank.value};
  enter.acceptor = AcceptorId(hash64(std::as_bytes(std::span(key))) | 1U);
  return enter;
}

GroupId letter_of(GroupId group, RankId from, RankId to, std::uint32_t tag, std::uint64_t count) {
  const std::array<std::uint64_t, 5> key{group.value, from.value, to.value, tag, count};
  return GroupId(hash64(std::as_bytes(std::span(key))));
}

bool WorldRank::come() { return is_here() || enter(); }

bool WorldRank::enter() {
  if (!is_here()) {
    const std::optional<LinkId> link = context_.peer->dial(context_.target);
    if (!link) return false;
    link_ = *link;
  }
  context_.peer->send(link_, enter_);
  const std::optional<wire::Entered> entered = context_.peer->wait_for<wire::Entered>(link_, kEnteredLimit);
  if (!entered) {
    context_.peer->close(link_);
    link_ = {};
    return false;
  }
  ballot_ = entered->ballot;
  context_.counts.arrives();
  return true;
}

bool WorldRank::send(const wire::Message& message, BufferPtr payload) {
  return is_here() && context_.peer->send(link_, message, std::move(payload));
}

void WorldRank::beat() {
  if (context_.now() < beat_at_) return;
  beat_at_ = context_.now() + kBeat;
  send(wire::Heartbeat{++beats_, false});
}

std::optional<wire::StepResult> WorldRank::result(Duration limit) {
  return context_.peer->wait_for<wire::StepResult>(link_, limit);
}

void keep_ranks(Context& context) {
  std::deque<WorldRank> ranks;
  for (const RankId rank : context.world.own()) {
    ranks.emplace_back(context, enter_of(context.world, context.swarm.name, rank)).come();
  }
  while (!context.over()) {
    for (WorldRank& rank : ranks) rank.beat();  // a rank whose link is closed is in an attack, and stays there
    wait_ms(50);
  }
}

}  // namespace collab::hostile
