// Attacks by a rank of a world on the collectives of groups that it has no part in.
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/hostile/world.h"

namespace collab::hostile {
namespace {

constexpr Duration kResultLimit = std::chrono::milliseconds(100);
constexpr Duration kFailedLimit = std::chrono::milliseconds(500);
constexpr Duration kGrace = std::chrono::seconds(5);  // of the swarm, about
constexpr std::uint64_t kStepsOfGroup = 64;
constexpr int kMostRaisers = 16;
constexpr std::uint64_t kFar = std::uint64_t{1} << 60;

wire::Contribute failing(GroupId group, std::uint64_t step) {
  wire::Contribute contribute;
  contribute.group = group;
  contribute.step = step;
  contribute.operation = "x";
  contribute.timeout_ms = 1;
  return contribute;
}

GroupId draw_group(Context& context) { return GroupId(context.prng.next() & ~std::uint64_t{1}); }

// So many results of this step as come, each within that time.
std::size_t hear(Context& context, WorldRank& rank, std::uint64_t step, std::size_t most) {
  for (std::size_t heard = 0; heard < most;) {
    const std::optional<wire::StepResult> result = rank.result(kFailedLimit);
    if (!result) return heard;
    context.counts.arrives();
    rank.acknowledge(*result);
    heard += result->step == step ? 1 : 0;
  }
  return most;
}

std::vector<RankId> with_others(const World& world) {
  std::vector<RankId> members = world.others();
  members.push_back(world.rank);
  return members;
}

// ---- failing steps

// From that step on, as far as the hub gives them up at once.
void fail_the_shared_group(Context& context, WorldRank& rank, std::uint64_t& step) {
  rank.send(wire::Assemble{context.world.shared, with_others(context.world), {}, 0});
  const std::uint64_t most = step + kStepsOfGroup;
  while (step < most && rank.is_here() && !context.over()) {
    rank.beat();
    rank.send(failing(context.world.shared, step));
    std::optional<wire::StepResult> result = rank.result(kFailedLimit);
    while (result && (result->group != context.world.shared || result->step < step)) result = rank.result(kFailedLimit);
    if (!result) return;
    rank.acknowledge(*result);
    context.counts.arrives();
    ++step;
  }
}

void fail_groups_that_nobody_opens(Context& context, WorldRank& rank) {
  std::vector<GroupId> groups;
  for (std::uint64_t i = 0; i < kStepsOfGroup; ++i) {
    groups.push_back(draw_group(context));
    rank.send(wire::Assemble{groups.back(), with_others(context.world), {}, 0});
  }
  while (rank.result(kFailedLimit)) context.counts.arrives();  // of what was failed before
  for (std::uint64_t step = 1; step <= kStepsOfGroup && rank.is_here() && !context.over(); ++step) {
    rank.beat();
    for (const GroupId group : groups) rank.send(failing(group, step));
    if (hear(context, rank, step, groups.size()) < groups.size()) break;
  }
  for (const GroupId group : groups) rank.send(wire::Disband{group});
}

void fail_group_after_group(Context& context, WorldRank& rank) {
  for (const RankId victim : context.world.others()) {
    for (int i = 0; i < 300 && rank.is_here() && !context.over(); ++i) {
      const GroupId group = draw_group(context);
      rank.send(wire::Assemble{group, {context.world.rank, victim}, {}, 0});
      rank.send(failing(group, 1));
      rank.send(wire::Disband{group});
    }
    rank.beat();
    (void)hear(context, rank, 1, kStepsOfGroup);
  }
}

// ---- numbers of others' groups

void take_letters(Context& context, WorldRank& rank, std::uint64_t first, std::uint64_t count) {
  const std::vector<RankId> others = context.world.others();
  for (std::uint64_t number = first; number < first + count && rank.is_here() && !context.over(); ++number) {
    for (const RankId from : others) {
      for (const RankId to : others) {
        if (from == to) continue;
        rank.send(wire::Assemble{letter_of(context.world.group, from, to, 0, number), {context.world.rank}, {}, 0});
      }
    }
    rank.beat();
  }
}

void be_in_calls_of_twins(Context& context, WorldRank& rank) {
  const GroupId twin(context.world.group.value ^ 1U);
  const std::vector<RankId> others = context.world.others();
  std::vector<RankId> members{context.world.rank};
  if (context.prng.chance(0.5)) members = with_others(context.world);
  rank.send(wire::Assemble{twin, members, {}, 0});
  for (std::uint64_t i = 0; i < kStepsOfGroup; ++i) {
    wire::Contribute part = failing(twin, 1);
    part.call = 1 + context.prng.below(4096);
    part.timeout_ms = 0;
    rank.send(part);
    rank.beat();
  }
}

// ---- names of others

wire::Enter draw_name_of(Context& context, RankId victim) {
  wire::Enter enter = enter_of(context.world, context.swarm.name, victim);
  enter.acceptor = AcceptorId(1 + context.prng.below(UINT64_MAX - 1));
  enter.returning = context.prng.chance(0.5);
  enter.candidates = 1 + static_cast<std::uint32_t>(context.prng.below(3));
  if (context.prng.chance(0.3)) enter.sites.front() += "-2";
  if (context.prng.chance(0.3)) enter.chosen = {1, {victim}};
  if (context.prng.chance(0.3)) enter.promised = {context.prng.next() >> 40U, context.prng.next()};
  return enter;
}

}  // namespace

void attack_poison(Context& context) {
  WorldRank rank(context, enter_of(context.world, context.swarm.name, context.world.rank));
  while (!context.done()) {
    std::vector<wire::Completed>& completed = rank.said().completed;
    completed.clear();
    const std::uint64_t most = context.prng.chance(0.5) ? kFar : 200;
    for (const std::uint64_t twin : {0, 1}) {
      completed.push_back({GroupId(context.world.group.value | twin), 1 + context.prng.below(most)});
      completed.push_back({GroupId(context.world.shared.value | twin), 1 + context.prng.below(most)});
    }
    for (const RankId from : context.world.others()) {
      for (const RankId to : context.world.others()) {
        const std::uint64_t count = 1 + context.prng.below(1000);
        if (from != to) completed.push_back({letter_of(context.world.group, from, to, 0, count), kFar});
      }
    }
    for (int i = 0; i < 100; ++i) completed.push_back({draw_group(context), 1 + context.prng.below(most)});
    rank.enter();
    rank.beat();
    wait_ms(50);
  }
}

void attack_fail_steps(Context& context) {
  std::uint64_t step = 1;  // of the group that it shares with the others
  WorldRank rank(context, enter_of(context.world, context.swarm.name, context.world.rank));
  while (!context.done()) {
    if (!rank.come()) {
      wait_ms(50);
      continue;
    }
    switch (context.prng.below(3)) {
      case 0: fail_the_shared_group(context, rank, step); break;
      case 1: fail_groups_that_nobody_opens(context, rank); break;
      default: fail_group_after_group(context, rank); break;
    }
  }
}

void attack_squat(Context& context) {
  constexpr std::uint64_t kAtOnce = 500;
  WorldRank rank(context, enter_of(context.world, context.swarm.name, context.world.rank));
  for (std::uint64_t first = 1; !context.done(); rank.beat()) {
    if (!rank.come()) {
      wait_ms(50);
      continue;
    }
    if (first < 4000) take_letters(context, rank, first, kAtOnce);
    first += kAtOnce;
    be_in_calls_of_twins(context, rank);
    wait_ms(20);
  }
}

void attack_rank_names(Context& context) {
  const std::vector<RankId> others = context.world.others();
  while (!context.done()) {
    const bool own = context.prng.chance(0.2);
    const RankId victim = own ? context.world.rank : others[context.prng.below(others.size())];
    const std::optional<LinkId> link = context.peer->dial(context.target);
    if (!link) {
      wait_ms(10);
      continue;
    }
    wire::Enter enter = draw_name_of(context, victim);
    if (own) enter.acceptor = enter_of(context.world, context.swarm.name, victim).acceptor;
    context.peer->send(*link, enter);
    context.peer->send(*link, wire::Leave{"for fun", 0});
    if (context.peer->next(*link, kResultLimit)) context.counts.arrives();
    context.peer->close(*link);
  }
}

// What the others send it is decided with its own part, and is kept for a rank that never says that it has it.
void attack_unacknowledged(Context& context) {
  WorldRank rank(context, enter_of(context.world, context.swarm.name, context.world.rank));
  std::map<RankId, std::uint64_t> letters;  // begun letters, for each rank
  std::map<GroupId, RankId> from;
  const BufferPtr part = context.payload(kLetterBytes);
  const auto receive_next = [&](RankId sender) {
    const GroupId letter = letter_of(context.world.shared, sender, context.world.rank, 0, ++letters[sender]);
    from[letter] = sender;
    wire::Contribute contribute;
    contribute.group = letter;
    contribute.step = 1;
    contribute.operation = "send and recv with tag 0 of " + std::to_string(kLetterBytes) + " bytes";
    rank.send(wire::Assemble{letter, {sender, context.world.rank}, context.world.shared, 0});
    rank.send(contribute);
  };
  while (!context.done()) {
    if (!rank.is_here() && letters.empty() && rank.come()) {
      rank.send(wire::Assemble{context.world.shared, with_others(context.world), {}, 0});
      wire::Contribute sum;
      sum.group = context.world.shared;
      sum.step = sum.call = 1;
      sum.operation = "all_reduce (sum) of " + std::to_string(kLetterBytes / sizeof(float)) + " Float";
      sum.absence = wire::Absence::kProceeds;
      rank.send(sum, part);
      for (const RankId sender : context.world.others()) receive_next(sender);
    }
    const std::optional<wire::StepResult> result = rank.is_here() ? rank.result(kResultLimit) : std::nullopt;
    if (!rank.is_here()) wait_ms(10);
    rank.beat();
    if (!result) continue;
    context.counts.arrives();
    context.counts.answered(result->error.empty() ? "a step went well" : "a step: " + result->error);
    if (const auto letter = from.find(result->group); letter != from.end()) receive_next(letter->second);
  }
}

void attack_promises(Context& context) {
  std::deque<WorldRank> ranks;
  for (const RankId each : context.world.own()) {
    if (ranks.size() < kMostRaisers) ranks.emplace_back(context, enter_of(context.world, context.swarm.name, each));
  }
  TimePoint next = context.now();
  for (int raises = 4; !context.done(); raises = 1) {
    for (int i = 0; i < raises; ++i) {
      for (WorldRank& rank : ranks) {
        if (!rank.come()) continue;
        rank.said().promised = {rank.ballot().term + 1 + context.prng.below(16), context.prng.next()};
        rank.enter();
        rank.said().promised = {};
      }
    }
    for (next += kGrace; context.now() < next && !context.done(); wait_ms(20)) {
      for (WorldRank& rank : ranks) rank.beat();
    }
  }
}

}  // namespace collab::hostile
