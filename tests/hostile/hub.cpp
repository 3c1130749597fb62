// Attacks on the collective hub of a world's ranks: worlds of the attacker's own at the swarm's hub.
#include <algorithm>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "core/wire/limits.h"
#include "tests/hostile/world.h"

namespace collab::hostile {
namespace {

constexpr Duration kEnteredLimit = std::chrono::seconds(2);
constexpr std::size_t kGroupsOfWorld = 64;
constexpr std::size_t kWorldsAtOnce = 64;
constexpr int kAskedAtOnce = 1000;

// All of its lists as long as they may be, as far as a message holds them.
wire::Enter longest_enter(Context& context) {
  wire::Enter enter = draw_enter(context, wire::kMaxRanks);
  enter.sites.clear();
  for (std::size_t i = 0; i < wire::kMaxSites; ++i) {
    std::string name = std::to_string(i);
    name.resize(wire::kMaxNameBytes, 'x');
    enter.sites.push_back(std::move(name));
  }
  for (std::uint32_t& index : enter.site_of) index = static_cast<std::uint32_t>(context.prng.below(wire::kMaxSites));
  enter.candidates = 1 + static_cast<std::uint32_t>(context.prng.below(3));
  enter.returning = context.prng.chance(0.5);
  enter.promised = {context.prng.next(), context.prng.next()};
  enter.chosen.number = 1 + context.prng.below(3);
  for (std::uint32_t rank = 0; rank < wire::kMaxRanks; ++rank) enter.chosen.gone.emplace_back(rank);
  enter.accepted_under = enter.promised;
  enter.accepted = enter.chosen;
  ++enter.accepted.number;
  for (std::uint64_t i = 1; i <= wire::kMaxGroups; ++i) {
    enter.completed.push_back({GroupId(i), context.prng.next()});
    enter.held.push_back({GroupId(i), context.prng.next(), enter.promised});
    enter.closed.emplace_back(i);
  }
  return enter;
}

// A world of two ranks of which the attacker is both; only one of them brings anything.
void bring_into_a_world(Context& context, const std::vector<BufferPtr>& payloads, std::deque<LinkId>& held) {
  wire::Enter enter = draw_enter(context, 2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const std::optional<LinkId> link = context.peer->dial(context.target);
    if (!link) return wait_ms(10);
    enter.rank = RankId(rank);
    context.peer->send(*link, enter);
    held.push_back(*link);
    if (!context.peer->wait_for<wire::Entered>(*link, kEnteredLimit)) {
      context.counts.answered("never entered");
      return;
    }
    context.counts.arrives();
  }
  const LinkId contributor = held.back();
  for (std::uint64_t number = 1; number <= kGroupsOfWorld && !context.over(); ++number) {
    const GroupId group(2 * number);
    wire::Contribute contribute;
    contribute.group = group;
    contribute.step = 1;
    contribute.call = number;
    contribute.operation = "all_reduce (sum) of 4194304 float32";
    const bool sent = context.peer->send(contributor, wire::Assemble{group, {RankId(0), RankId(1)}, {}, 0}) &&
                      context.peer->send(contributor, contribute, payloads[context.prng.below(payloads.size())]);
    if (!sent) return;
    // The bringer's heartbeats: its other messages are heard as well.
    context.peer->send(held[held.size() - 2], wire::Heartbeat{number, false});
  }
}

}  // namespace

void attack_enter_gone(Context& context) {
  std::deque<LinkId> held;
  const auto leave_oldest = [&] {
    // Only at the end this waits, if nothing has shown yet that so large a message was read.
    const bool waits = context.over() && context.counts.arrived == 0;
    if (context.peer->next(held.front(), waits ? kEnteredLimit : Duration{}))
      context.counts.arrives();  // refused, or let in
    context.peer->close(held.front());
    held.pop_front();
  };
  while (!context.done()) {
    if (context.over() && !held.empty()) {
      leave_oldest();
      continue;
    }
    const std::optional<LinkId> link = context.peer->dial(context.target);
    if (!link) {
      wait_ms(10);
      continue;
    }
    context.peer->send(*link, longest_enter(context));
    held.push_back(*link);
    if (held.size() > kWorldsAtOnce) leave_oldest();
  }
  while (!held.empty()) leave_oldest();
}

// Each question for a step that is over is answered at once, and no answer is acknowledged.
void attack_unread(Context& context) {
  const GroupId group(2);
  wire::Contribute step;
  step.group = group;
  step.step = 1;
  step.call = 1;
  step.operation = "barrier";
  const std::vector<std::byte> again = wire::encode(step);
  std::unique_ptr<RawConnection> link;
  while (!context.done()) {
    if (link == nullptr || !link->open()) {
      if (link != nullptr) context.note_end(*link);
      link = context.raw_link(context.target);
      if (link == nullptr) {
        wait_ms(10);
        continue;
      }
      context.queue(*link, wire::encode(draw_enter(context, 1)));
      context.queue(*link, wire::encode(wire::Assemble{group, {RankId(0)}, {}, 0}));
      context.queue(*link, again);
      context.queue(*link, wire::encode(wire::ResultAck{group, 1, {}}));
    }
    for (int i = 0; link->flush() && i < kAskedAtOnce; ++i) context.queue(*link, again);
    context.read_answers(*link);
  }
}

void attack_contribute(Context& context) {
  std::vector<BufferPtr> payloads;
  for (const std::size_t mebibytes : {16, 32, 64}) payloads.push_back(context.payload(mebibytes << 20));
  std::deque<LinkId> held;
  while (!context.done()) {
    bring_into_a_world(context, payloads, held);
    for (; held.size() > 2 * kWorldsAtOnce; held.pop_front()) context.peer->close(held.front());
  }
}

}  // namespace collab::hostile
