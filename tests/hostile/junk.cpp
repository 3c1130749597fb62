// Attacks by what is in a message: bytes at random, valid messages mutated, names that do harm where they are shown.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/digest.h"
#include "core/wire/encoding.h"
#include "core/wire/limits.h"
#include "tests/hostile/attack.h"
#include "tests/unit/wire/random_messages.h"

namespace collab::hostile {
namespace {

constexpr std::size_t kChecksumAt = 8;
constexpr std::size_t kChecksummed = 16;  // from here to the end
constexpr std::size_t kBodyBytesAt = 20;
constexpr std::size_t kMessagesOfLink = 20;
constexpr int kAnswerMs = 2;

// So that what was changed is looked at, and not the checksum alone.
void seal(std::vector<std::byte>& frame) {
  if (frame.size() < kChecksummed) return;
  const std::uint64_t sum = hash64(std::span<const std::byte>(frame).subspan(kChecksummed));
  for (std::size_t i = 0; i < sizeof sum; ++i) frame[kChecksumAt + i] = static_cast<std::byte>(sum >> (8 * i));
}

std::vector<std::byte> draw_bytes(Prng& prng, std::size_t most) {
  std::vector<std::byte> bytes(prng.below(most) + 1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  return bytes;
}

// A frame of any type. It has the swarm's own name where a name is asked for, so that it is not refused for that.
std::vector<std::byte> draw_frame(Context& context) {
  Prng& prng = context.prng;
  wire::Message message = wire::random_message(1 + prng.below(std::variant_size_v<wire::Message>), prng);
  const bool ours = prng.chance(0.8);
  if (auto* join = std::get_if<wire::Join>(&message); join != nullptr && ours) {
    join->swarm = context.swarm.name;
    if (prng.chance(0.5)) {
      join->elements = context.swarm.elements;
      join->settings = context.swarm.settings;
      join->generation = context.swarm.generation;
      join->helper = true;
    }
  }
  if (auto* hello = std::get_if<wire::Hello>(&message); hello != nullptr && ours) hello->swarm = context.swarm.name;
  if (auto* enter = std::get_if<wire::Enter>(&message); enter != nullptr && ours) enter->swarm = context.swarm.name;
  if (auto* inquire = std::get_if<wire::Inquire>(&message); inquire != nullptr && ours) {
    inquire->swarm = context.swarm.name;
  }
  // The operator's word splits a swarm. A holder of the token may say it, and that is no attack.
  if (std::holds_alternative<wire::Forget>(message)) message = wire::StatusQuery{};
  Result<std::vector<std::byte>> encoded = wire::try_encode(message);
  if (!encoded.ok()) return wire::encode(wire::StatusQuery{});
  std::vector<std::byte> frame = std::move(*encoded);
  if (prng.chance(0.5)) return frame;
  for (std::uint64_t i = prng.below(4); i > 0; --i) {
    frame[prng.below(frame.size())] = static_cast<std::byte>(prng.next());
  }
  if (prng.chance(0.1)) frame.resize(prng.below(frame.size()) + 1);
  if (prng.chance(0.9)) seal(frame);
  return frame;
}

void junk_below_the_transport(Context& context, const std::string& address) {
  auto connection = context.raw(address, context.prng.chance(0.5) ? Greeting::kHello : Greeting::kNone);
  connection->queue(draw_bytes(context.prng, 300));
  connection->flush();
  ++context.counts.messages;
  wait_for(*connection, false, kAnswerMs);
  connection->look();
  context.counts.ended(connection->open() ? "closed by us" : connection->end());
  if (!connection->open()) context.counts.arrives();
}

void junk_on_a_link(Context& context, const std::string& address, Member* member) {
  std::optional<LinkId> link = member != nullptr ? std::optional(member->link()) : context.peer->dial(address);
  if (!link) return wait_ms(1);
  for (std::size_t i = 0; i < kMessagesOfLink && context.peer->is_open(*link) && !context.over(); ++i) {
    const bool data = context.prng.chance(0.2);
    const BufferPtr payload = data ? context.payload(1 + context.prng.below(100'000)) : nullptr;
    context.peer->send_frame(*link, draw_frame(context), payload, data ? Lane::kData : Lane::kControl);
    (void)context.peer->next(*link, std::chrono::milliseconds(context.prng.chance(0.2) ? kAnswerMs : 0));
  }
  if (member == nullptr) context.peer->close(*link);
}

// Names that no writer lets out: they take the place of one as long that it does.
constexpr std::array<std::string_view, 8> kNames{
    "\x1b]0;owned\x07\x1b[2J\x1b[31m",  // a terminal's title and screen
    "paris\rrome: all is well",         // writes over its line
    "site\nround 9: all averaged",      // begins another line
    "\xE2\x80\xAE"
    "sirap\xE2\x80\xAC",  // right to left
    "\xFF\xFE\xFD not UTF-8",
    "\xE2\x80\x8B\xE2\x80\x8B\xE2\x80\x8B",  // of no width
    "\",\"event\":\"round\",\"x\":\"",       // out of a JSON string
    "",
};

std::vector<std::byte> with_name(wire::Message message, std::string_view stand_in, std::string_view name) {
  std::vector<std::byte> frame = wire::encode(message);
  if (stand_in.empty()) return frame;
  const auto* wanted = reinterpret_cast<const std::byte*>(stand_in.data());
  for (auto at = frame.begin();;) {
    at = std::search(at, frame.end(), wanted, wanted + stand_in.size());
    if (at == frame.end()) break;
    if (!name.empty()) std::memcpy(&*at, name.data(), name.size());
    at += static_cast<std::ptrdiff_t>(stand_in.size());
  }
  seal(frame);
  return frame;
}

// A name of the greatest length made longer by so many bytes, with all lengths to match.
void lengthen(std::vector<std::byte>& frame, std::size_t by) {
  const std::vector<std::byte> name(wire::kMaxNameBytes, std::byte{'m'});
  const auto at = std::ranges::search(frame, name).begin();
  if (at == frame.end()) return;
  const auto put = [&](std::size_t where, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) frame[where + i] = static_cast<std::byte>(value >> (8 * i));
  };
  put(static_cast<std::size_t>(at - frame.begin()) - 2, wire::kMaxNameBytes + by, 2);
  frame.insert(at, by, std::byte{'m'});
  put(kBodyBytesAt, frame.size() - wire::kFrameHeaderBytes, 4);
  seal(frame);
}

std::vector<std::byte> draw_named(Context& context) {
  Prng& prng = context.prng;
  const std::string_view name = kNames.at(prng.below(kNames.size()));
  const std::string stand_in(name.size(), '@');
  // The longest that may be: told whole, it fills a log.
  const std::string given = prng.chance(0.3) ? std::string(wire::kMaxNameBytes, 'm') : stand_in;
  wire::Join join = proper_join(context.swarm, given, context.address, true, prng);
  switch (prng.below(8)) {
    case 0: join.swarm = given; break;
    case 1: join.address = given; break;
    case 2: join.settings.push_back({given, given}); break;
    case 3: join.init_from = given; break;
    case 4: return with_name(wire::Hello{context.swarm.name, TermId(1), SiteId(77), given}, stand_in, name);
    case 5: return with_name(wire::Inquire{given}, stand_in, name);
    case 6: {
      wire::Enter enter;
      enter.swarm = prng.chance(0.5) ? context.swarm.name : given;
      enter.world = prng.next();
      enter.sites = {given};
      enter.site_of = {0};
      enter.acceptor = AcceptorId(1);
      return with_name(enter, stand_in, name);
    }
    default: break;
  }
  return with_name(join, stand_in, name);
}

}  // namespace

void attack_names(Context& context) {
  const std::vector<std::string> targets = context.swarm.addresses();
  while (!context.done()) {
    const std::optional<LinkId> link = context.peer->dial(targets[context.prng.below(targets.size())]);
    if (!link) {
      wait_ms(1);
      continue;
    }
    std::vector<std::byte> frame = draw_named(context);
    if (context.prng.chance(0.2)) lengthen(frame, 1 + context.prng.below(1000));
    context.peer->send_frame(*link, std::move(frame), nullptr, Lane::kControl);
    if (context.peer->next(*link, std::chrono::milliseconds(kAnswerMs))) {
      context.counts.arrives();
      // A member that is let in says a sentence of the same kind.
      context.peer->send_frame(*link, with_name(wire::Leave{"@@@@@@@@@@", 0}, "@@@@@@@@@@", "\x1b[2J\r\n\x07  "),
                               nullptr, Lane::kControl);
    }
    context.peer->close(*link);
  }
}

void attack_junk(Context& context) {
  Member member(context);
  while (!context.done()) {
    const std::vector<std::string> targets = context.swarm.addresses();
    const std::string& address = targets[context.prng.below(targets.size())];
    const std::uint64_t which = context.prng.below(10);
    if (which < 4) {
      junk_below_the_transport(context, address);
    } else if (which < 8) {
      junk_on_a_link(context, address, nullptr);
    } else if (member.beat() || member.join(context.draw_name(), true)) {
      junk_on_a_link(context, context.target, &member);
    }
  }
}

}  // namespace collab::hostile
