// Attacks on sites by a member of the roster: chunks that no site asked for, anchors that are not taken.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "core/base/digest.h"
#include "core/wire/encoding.h"
#include "core/wire/limits.h"
#include "tests/hostile/attack.h"

namespace collab::hostile {
namespace {

constexpr Duration kHelloLimit = std::chrono::seconds(2);
constexpr std::size_t kChunksOfLink = 64;
constexpr std::size_t kQueuedAtOnce = std::size_t{64} << 10;

// In the roster, by whatever name; false: the time is over.
bool stay_member(Context& context, Member& member) {
  while (!context.done()) {
    if (member.beat()) return true;
    if (!member.join(context.draw_name(), true)) wait_ms(20);
  }
  return false;
}

wire::Chunk draw_chunk(Context& context, const Member& member, const BufferPtr& payload) {
  Prng& prng = context.prng;
  const std::uint64_t elements = payload->view().size() / sizeof(float);
  const SiteId forged = context.swarm.members.empty()
                            ? member.site()
                            : context.swarm.members[prng.below(context.swarm.members.size())].site;
  return {.kind = static_cast<wire::ChunkKind>(prng.below(7)),
          .run = context.swarm.run,
          .round = RoundId(context.swarm.round.value + prng.below(40)),
          .attempt = AttemptId(1 + static_cast<std::uint32_t>(prng.below(3))),
          .from = prng.chance(0.5) ? member.site() : forged,
          .range = {0, elements},
          .codec = CodecId::kFp32,
          .payload_hash = hash64(payload->view())};
}

// Not read: the answers are to fill the site's memory, not ours.
std::vector<std::byte> draw_fetch(Context& context) {
  Prng& prng = context.prng;
  if (prng.chance(0.1)) return wire::encode(wire::FetchOptimizer{});
  const std::uint64_t elements = std::max<std::uint64_t>(1, context.swarm.elements);
  const std::uint64_t end = prng.chance(0.05) ? 2 * elements : elements;  // now and then of what is not there
  wire::FetchAnchor fetch{context.swarm.run,
                          context.swarm.round,
                          static_cast<wire::ChunkKind>(2 + prng.below(2)),
                          {0, std::min(end, wire::kMaxFetchElements)}};
  fetch.round.value += prng.below(3);
  return wire::encode(fetch);
}

// One of many names that ask for all they may and take next to nothing of it.
class Trickler {
 public:
  explicit Trickler(Context& context) : context_(context), member_(context) {}

  void turn(bool reads) {
    if (!member_.beat() && !member_.join(context_.draw_name(), true)) return;
    for (const wire::Member& site : member_.others()) {
      if (site.address.empty()) continue;
      std::unique_ptr<RawConnection>& link = links_[site.site];
      if (link == nullptr || !link->open()) {
        ask(site, link);
        continue;
      }
      link->flush();
      const std::uint64_t before = link->segments_came();
      if (reads) link->look(kTrickle);
      context_.counts.arrives(link->segments_came() - before);
    }
  }

 private:
  static constexpr std::size_t kTrickle = 16 << 10;
  static constexpr int kQuestions = 256;

  void ask(const wire::Member& site, std::unique_ptr<RawConnection>& link) {
    if (link != nullptr) context_.note_end(*link);
    link = context_.raw_link(site.address);
    if (link == nullptr) return;
    context_.queue(*link, wire::encode(member_.hello_to(site.site)));
    const std::uint64_t elements = std::min<std::uint64_t>(context_.swarm.elements, std::uint64_t{1} << 18U);
    for (int i = 0; i < kQuestions; ++i) {
      context_.queue(*link, wire::encode(wire::FetchAnchor{
                                context_.swarm.run, context_.swarm.round, wire::ChunkKind::kAnchor, {0, elements}}));
    }
    link->flush();
  }

  Context& context_;
  Member member_;
  std::map<SiteId, std::unique_ptr<RawConnection>> links_;
};

}  // namespace

void attack_early_chunks(Context& context) {
  std::vector<BufferPtr> payloads;
  for (const std::size_t kibibytes : {4, 1024, 16384}) payloads.push_back(context.payload(kibibytes << 10));
  Member member(context);
  while (stay_member(context, member)) {
    for (const wire::Member& site : member.others()) {
      if (site.address.empty() || !member.beat()) continue;
      const std::optional<LinkId> link = context.peer->dial(site.address);
      if (!link) continue;
      context.peer->send(*link, member.hello_to(site.site));
      // Without its Hello it takes nothing: not in its roster yet.
      const bool known = context.peer->wait_for<wire::Hello>(*link, kHelloLimit).has_value();
      for (std::size_t sent = 0; known && sent < kChunksOfLink && member.beat() && !context.over(); ++sent) {
        const BufferPtr& payload = payloads[context.prng.below(payloads.size())];
        if (!context.peer->send(*link, draw_chunk(context, member, payload), payload)) break;
        context.counts.arrives();
      }
      context.peer->close(*link);
    }
    if (const std::optional<Swarm> newer = ask_swarm(*context.peer, context.target)) context.swarm.round = newer->round;
  }
}

void attack_fetch(Context& context) {
  Member member(context);
  std::map<SiteId, std::unique_ptr<RawConnection>> links;
  const auto read_all = [&] {
    for (const auto& [site, link] : links) {
      if (link != nullptr) context.read_answers(*link);
    }
  };
  TimePoint asked = context.now();
  while (stay_member(context, member)) {
    for (const wire::Member& site : member.others()) {
      if (site.address.empty()) continue;
      std::unique_ptr<RawConnection>& link = links[site.site];
      if (link == nullptr || !link->open()) {
        if (link != nullptr) context.read_answers(*link);
        if (link != nullptr) context.note_end(*link);
        link = context.raw_link(site.address);
        if (link != nullptr) context.queue(*link, wire::encode(member.hello_to(site.site)));
        if (link != nullptr) link->flush();
        continue;
      }
      if (!link->flush()) continue;
      for (std::size_t bytes = 0; bytes < kQueuedAtOnce;) {
        const std::vector<std::byte> frame = draw_fetch(context);
        context.queue(*link, frame);
        bytes += frame.size();
      }
      link->flush();
    }
    if (context.over()) read_all();
    if (context.now() - asked < std::chrono::milliseconds(200)) continue;
    asked = context.now();
    if (const std::optional<Swarm> newer = ask_swarm(*context.peer, context.target)) context.swarm.round = newer->round;
  }
}

void attack_fetch_names(Context& context) {
  constexpr std::size_t kNames = 64;
  std::deque<Trickler> names;
  for (std::uint64_t number = 0; !context.done(); ++number) {
    if (names.size() < kNames) names.emplace_back(context);
    if (number % 4 == 0) {
      if (const std::optional<Swarm> newer = ask_swarm(*context.peer, context.target))
        context.swarm.round = newer->round;
    }
    for (Trickler& each : names) each.turn(number % 8 == 0);
    wait_ms(20);
  }
}

}  // namespace collab::hostile
