// Attacks by what a link is, whatever is said on it: unfinished messages, many links, answers that are never read.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "core/wire/encoding.h"
#include "tests/hostile/attack.h"

namespace collab::hostile {
namespace {

constexpr std::uint32_t kHead = kMaxHeadBytes;
constexpr std::size_t kLinksOfHeads = 64;
constexpr std::uint64_t kHeadsOfLink = 25;  // the transport ends a link that announces more than 208 MiB
constexpr std::size_t kMostConnections = 4000;
constexpr std::size_t kQueuedAtOnce = std::size_t{256} << 10;

// One link and how far its messages have got.
struct Announcer {
  std::unique_ptr<RawConnection> connection;
  std::uint64_t parts = 0;
};

// Round the messages, so that all are begun before one gets far; the last byte of each never comes.
void announce(Context& context, Announcer& link, std::span<const std::byte> bytes) {
  constexpr std::uint64_t kPart = tcp::kMaxSegmentBytes;
  const std::uint64_t offset = link.parts / kHeadsOfLink * kPart;
  if (offset + kPart >= kHead) return;
  link.connection->queue_part(Lane::kControl, link.parts % kHeadsOfLink, kHead, static_cast<std::uint32_t>(offset),
                              bytes);
  if (link.parts++ < kHeadsOfLink) ++context.counts.messages;
  context.counts.bytes += bytes.size();
}

std::size_t connections_allowed() {
  rlimit files{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
  return std::min<std::size_t>(kMostConnections, files.rlim_cur > 200 ? files.rlim_cur - 100 : 100);
}

// Keeps as many open as it may, at all processes of the swarm in turn.
void hold_many(Context& context, Greeting greeting) {
  const std::vector<std::string> targets = context.swarm.addresses();
  const std::size_t most = connections_allowed();
  std::vector<std::unique_ptr<RawConnection>> held;
  for (std::size_t number = 0; !context.done(); ++number) {
    if (held.size() < most) {
      held.push_back(context.raw(targets[number % targets.size()], greeting));
    } else {
      wait_ms(1);
    }
    // A few each time: all of them would leave no time to open others.
    for (std::size_t i = 0; i < std::min<std::size_t>(held.size(), 8); ++i) {
      const std::size_t at = (8 * number + i) % held.size();
      const bool knew = held[at]->greeted();
      held[at]->look();
      if (held[at]->greeted() && !knew) context.counts.arrives();
      if (held[at]->open()) continue;
      context.note_end(*held[at]);
      if (greeting == Greeting::kNone) context.counts.arrives();  // room was made
      held[at] = std::move(held.back());
      held.pop_back();
      if (held.empty()) break;
    }
  }
}

}  // namespace

void attack_heads(Context& context) {
  const std::vector<std::string> targets = context.swarm.addresses();
  const std::vector<std::byte> bytes(tcp::kMaxSegmentBytes, std::byte{0x5A});
  std::vector<Announcer> links(kLinksOfHeads);
  for (std::size_t number = 0; !context.over(); ++number) {
    Announcer& link = links[number % links.size()];
    if (link.connection == nullptr || !link.connection->open()) {
      if (link.connection != nullptr) context.note_end(*link.connection);
      link = {context.raw_link(targets[context.prng.below(targets.size())]), 0};
      if (link.connection == nullptr) wait_ms(1);
      if (link.connection != nullptr) context.counts.arrives();
      continue;
    }
    link.connection->look();
    if (link.connection->flush()) announce(context, link, bytes);
    link.connection->flush();
  }
}

void attack_silent(Context& context) { hold_many(context, Greeting::kHello); }
void attack_mute(Context& context) { hold_many(context, Greeting::kNone); }

void attack_status(Context& context) {
  const std::array frames{wire::encode(wire::StatusQuery{}), wire::encode(wire::Inquire{context.swarm.name}),
                          wire::encode(wire::StatusQuery{})};
  std::unique_ptr<RawConnection> link;
  while (!context.over()) {
    if (link == nullptr || !link->open()) {
      if (link != nullptr) context.note_end(*link);
      link = context.raw_link(context.target);
      if (link == nullptr) wait_ms(10);
      continue;
    }
    for (std::size_t bytes = 0; bytes < kQueuedAtOnce;) {
      const std::vector<std::byte>& frame = frames[context.prng.below(frames.size())];
      context.queue(*link, frame);
      bytes += frame.size();
    }
    while (!link->flush() && link->open() && !context.over()) wait_for(*link, true, 100);
  }
  if (link != nullptr) context.read_answers(*link);
}

}  // namespace collab::hostile
