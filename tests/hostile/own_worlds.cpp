// Attacks on the collective hub by the attacker's own worlds, which cost the hub and the worlds of others.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/limits.h"
#include "tests/hostile/world.h"

namespace collab::hostile {
namespace {

constexpr int kLeaveMs = 200;                              // that it is read before the link goes
constexpr std::uint64_t kHeldOfGroup = 65;                 // what a hub believes of one rank
constexpr std::uint64_t kHeldAtOnce = 900 * kHeldOfGroup;  // with their groups, what is remembered of one rank

// Ranks of one drawn world, so many as came.
std::deque<WorldRank> draw_world(Context& context, std::uint32_t size, const std::vector<std::string>& sites = {}) {
  wire::Enter enter = draw_enter(context, size);
  if (!sites.empty()) enter.sites = sites;
  for (std::uint32_t i = 0; i < size && !sites.empty(); ++i) enter.site_of[i] = i;
  std::deque<WorldRank> ranks;
  for (std::uint32_t i = 0; i < size; ++i) {
    enter.rank = RankId(i);
    enter.acceptor = AcceptorId(1 + context.prng.below(UINT64_MAX - 1));
    if (!ranks.emplace_back(context, enter).come()) ranks.pop_back();
  }
  return ranks;
}

wire::Contribute in_call(GroupId group, const std::string& operation) {
  wire::Contribute contribute;
  contribute.group = group;
  contribute.step = 1;
  contribute.call = 1;
  contribute.operation = operation;
  return contribute;
}

bool all_here(const std::deque<WorldRank>& ranks) {
  return !ranks.empty() && std::ranges::all_of(ranks, &WorldRank::is_here);
}

// As many held steps as an Enter carries, of one group. Or of many groups, as many of each as one rank may hold.
void hold_more(Context& context, wire::Enter& enter, std::uint64_t& step) {
  const bool of_one = context.prng.chance(0.2);
  enter.held.clear();
  for (std::uint64_t i = 0; i < kHeldAtOnce; ++i) {
    const GroupId group(of_one ? 2 : 2 + 2 * (i / kHeldOfGroup));
    enter.held.push_back({group, ++step, {}});
  }
}

// Each waits for each other one in a call of two, as far as the hub knows.
void call_all_pairs(std::deque<WorldRank>& ranks) {
  for (std::uint64_t i = 0; i < ranks.size(); ++i) {
    for (std::uint64_t j = 0; j < ranks.size(); ++j) {
      if (i == j) continue;
      const GroupId group(2 * (i * ranks.size() + j) + 2);
      ranks[i].send(wire::Assemble{group, {ranks[i].rank(), ranks[j].rank()}, {}, 0});
      ranks[i].send(in_call(group, "barrier: x"));
    }
  }
}

void ask_many_groups(Context& context, WorldRank& rank, std::uint64_t groups) {
  rank.send(wire::Heartbeat{1, false});
  for (int i = 0; i < 100; ++i) {
    if (!rank.send(wire::ResolveSender{GroupId(2), 0})) return;  // what was sent before has not left yet
  }
  wire::Contribute late = in_call(GroupId(2 + 2 * context.prng.below(groups)), "x");
  late.timeout_ms = 1 + static_cast<std::uint32_t>(context.prng.below(20));
  rank.send(late);
  rank.send(rank.said());
}

}  // namespace

void attack_held(Context& context) {
  std::deque<WorldRank> ranks;
  std::uint64_t step = 0;
  while (!context.done()) {
    if (!all_here(ranks)) {
      ranks = draw_world(context, 2);  // fewer, where the hub lets no more in
      if (ranks.size() < 2 || !all_here(ranks)) {
        ranks.clear();
        wait_ms(50);
        continue;
      }
      for (std::uint64_t i = 0; i < kHeldAtOnce / kHeldOfGroup; ++i) {
        ranks[0].send(wire::Assemble{GroupId(2 + 2 * i), {RankId(0), RankId(1)}, {}, 0});
      }
    }
    hold_more(context, ranks[0].said(), step);
    ranks[0].enter();
    ranks[1].beat();
  }
}

void attack_calls(Context& context) {
  std::deque<WorldRank> ranks;
  std::vector<std::string> names;
  TimePoint asked{};
  while (!context.done()) {
    if (context.now() >= asked) {
      asked = context.now() + std::chrono::seconds(2);
      std::vector<std::string> now;
      if (const std::optional<Swarm> newer = ask_swarm(*context.peer, context.target)) {
        for (const wire::Member& each : newer->members) now.push_back(each.name);
      }
      if (!now.empty() && (now != names || !all_here(ranks))) {
        names = now;
        ranks = draw_world(context, static_cast<std::uint32_t>(names.size()), names);
        call_all_pairs(ranks);
      }
    }
    for (WorldRank& rank : ranks) rank.beat();
    wait_ms(20);
  }
}

void attack_many_groups(Context& context) {
  constexpr std::uint64_t kMost = 29000;  // of a rank
  constexpr std::uint64_t kAtOnce = 500;
  std::deque<WorldRank> ranks;
  std::uint64_t groups = 0;
  while (!context.done()) {
    if (!all_here(ranks)) {
      ranks = draw_world(context, 8);
      groups = 0;
      if (ranks.empty()) wait_ms(50);
    }
    for (WorldRank& rank : ranks) {
      for (std::uint64_t i = 0; groups < kMost && i < kAtOnce && !context.over(); ++i) {
        const std::uint64_t number = 2 + 2 * (groups + i) + 2 * kMost * rank.rank().value;
        if (!rank.send(wire::Assemble{GroupId(number), {rank.rank()}, {}, 0})) break;
      }
      rank.beat();
      if (groups >= kMost) ask_many_groups(context, rank, groups);
    }
    groups += groups < kMost ? kAtOnce : 0;
  }
}

// All that may be held is, and of its worlds there are as many as one host may begin.
void attack_full_hub(Context& context) {
  constexpr std::uint32_t kBringers = 4;  // of all that one rank may
  constexpr std::uint32_t kFillers = 4;   // of what is left, until they are refused
  constexpr int kPartsOfRank = 8;
  constexpr int kEmptyWorlds = 14;
  const BufferPtr part = context.payload(std::size_t{16} << 20U);
  const BufferPtr last = context.payload(std::size_t{15} << 20U);
  const BufferPtr filling = context.payload(std::size_t{512} << 10U);
  std::deque<std::deque<WorldRank>> worlds;
  std::uint64_t group = 0;
  const auto bring = [&](WorldRank& rank, const BufferPtr& payload) {
    const RankId other((rank.rank().value + 1) % (kBringers + kFillers));
    rank.send(wire::Assemble{GroupId(group += 2), {rank.rank(), other}, {}, 0});
    rank.send(in_call(GroupId(group), "x"), payload);
    for (std::deque<WorldRank>& world : worlds) {
      for (WorldRank& each : world) each.beat();
    }
  };
  while (!context.done()) {
    if (worlds.empty() || worlds.front().empty() || !worlds.front().front().is_here()) {
      worlds.clear();
      worlds.push_back(draw_world(context, kBringers + kFillers));
      for (int i = 0; i < kEmptyWorlds; ++i) worlds.push_back(draw_world(context, 1));
      for (int i = 1; i <= kPartsOfRank; ++i) {
        for (WorldRank& rank : worlds.front()) {
          if (rank.rank().value < kBringers) bring(rank, i < kPartsOfRank ? part : last);
        }
      }
    }
    for (WorldRank& rank : worlds.front()) {
      if (rank.rank().value >= kBringers && rank.come()) bring(rank, filling);
    }
    wait_ms(20);
  }
  for (std::deque<WorldRank>& world : worlds) {
    for (WorldRank& each : world) {
      if (each.come()) each.leave();
    }
  }
  wait_ms(kLeaveMs);
}

}  // namespace collab::hostile
