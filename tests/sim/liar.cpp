#include "tests/sim/liar.h"

#include <tuple>
#include <utility>
#include <variant>

#include "core/wire/encoding.h"

namespace collab::sim {
namespace {

constexpr double kLies = 0.3;
constexpr double kSaysAgain = 0.1;
constexpr std::size_t kRemembered = 32;
constexpr double kBabbles = 0.1;
constexpr double kFloods = 0.02;
constexpr std::size_t kCopies = 100;

Digest draw_digest(Prng& prng) { return {prng.next(), prng.next()}; }

// False: about this it says the truth.
bool twist(Prng& prng, wire::Message& message) {
  if (auto* ready = std::get_if<wire::Ready>(&message)) {
    ready->state = draw_digest(prng);
  } else if (auto* unreachable = std::get_if<wire::PeerUnreachable>(&message)) {
    unreachable->peer = SiteId{static_cast<std::uint32_t>(prng.below(5))};  // itself, another, or no site
    if (prng.chance(0.2)) ++unreachable->attempt.value;
  } else if (auto* decline = std::get_if<wire::Decline>(&message)) {
    decline->round.value += prng.below(2);
    decline->attempt.value += static_cast<std::uint32_t>(prng.below(2));
  } else if (auto* leave = std::get_if<wire::Leave>(&message)) {
    leave->next_generation = static_cast<std::uint32_t>(prng.below(4));
  } else if (auto* installed = std::get_if<wire::AnchorInstalled>(&message)) {
    if (prng.chance(0.3)) installed->run.value = prng.chance(0.5) ? prng.next() >> 2 : installed->run.value + 1;
    if (prng.chance(0.3)) installed->round.value += prng.below(1'000);
    if (prng.chance(0.7)) installed->digest = draw_digest(prng);
  } else if (auto* join = std::get_if<wire::Join>(&message)) {
    join->expected_sites = 1 + static_cast<std::uint32_t>(prng.below(8));
  } else if (auto* done = std::get_if<wire::Done>(&message); done != nullptr && !done->slices.empty()) {
    if (prng.chance(0.3)) {  // an exchange that is done cannot go on, it says
      const SiteId peer{static_cast<std::uint32_t>(prng.below(5))};
      message = wire::PeerUnreachable{done->round, done->attempt, peer, "a lie"};
    } else {
      done->slices[prng.below(done->slices.size())] = draw_digest(prng);
    }
  } else if (auto* beat = std::get_if<wire::Heartbeat>(&message)) {
    beat->progress = prng.next();
    beat->exchanged = {prng.next(), prng.chance(0.5), {SiteId{static_cast<std::uint32_t>(prng.below(4))}}};
  } else if (auto* served = std::get_if<wire::OptimizerState>(&message); served != nullptr && served->snapshot != 0) {
    if (prng.chance(0.5)) served->digest = draw_digest(prng);
    if (prng.chance(0.5)) served->bytes = 1 + prng.below(2 * served->bytes);
  } else if (auto* moved = std::get_if<wire::AnchorMoved>(&message)) {
    moved->round.value += 1 + prng.below(3);
  } else {
    return false;
  }
  return true;
}

TransportMessage control(std::vector<std::byte> head) {
  return {.lane = Lane::kControl, .head = std::move(head), .payload = nullptr};
}

}  // namespace

void Liar::note_place(const wire::Message& message) {
  if (const auto* ready = std::get_if<wire::Ready>(&message)) round_ = ready->round;
  if (const auto* done = std::get_if<wire::Done>(&message))
    std::tie(round_, attempt_) = std::tie(done->round, done->attempt);
}

// Of another round, of another attempt, or in another's place.
wire::Message Liar::babble() {
  const RoundId round{round_.value + prng_.below(4)};
  const AttemptId attempt{attempt_.value + static_cast<std::uint32_t>(prng_.below(3))};
  const SiteId site{static_cast<std::uint32_t>(prng_.below(5))};
  const RunId run{prng_.next() >> 2};
  const TermId term{1 + prng_.below(3)};
  switch (prng_.below(11)) {
    case 0: return wire::Done{term, round, attempt, {draw_digest(prng_), draw_digest(prng_)}};
    case 1: return wire::Decline{round, attempt, "a lie"};
    case 2: return wire::PeerUnreachable{round, attempt, site, "a lie"};
    case 3: return wire::Heartbeat{prng_.next(), true, prng_.next(), {}};
    case 4: return wire::FetchAnchor{run, round, wire::ChunkKind::kAnchor, {0, 1 + prng_.below(1'000)}};
    case 5: return wire::AnchorMoved{run, round};
    case 6: return wire::Inquire{"sim"};
    case 7: return wire::StatusQuery{};
    case 8: return wire::Roster{term, {}};
    case 9: return wire::RoundSkipped{};
    default: {
      wire::Enter enter;
      enter.swarm = "sim";
      enter.world = prng_.next();
      enter.rank = RankId{static_cast<std::uint32_t>(prng_.below(2))};
      enter.sites = {"site0", "site1"};
      enter.site_of = {0, 1};
      enter.acceptor = AcceptorId{prng_.next() | 1};
      return enter;
    }
  }
}

std::vector<TransportMessage> Liar::tell(LinkId link, TransportMessage message) {
  std::vector<TransportMessage> all;
  if (message.lane == Lane::kControl) {
    std::deque<std::vector<std::byte>>& said = said_[link];
    if (!said.empty() && prng_.chance(kSaysAgain)) {
      const std::size_t copies = floods_ && prng_.chance(kFloods / kSaysAgain) ? kCopies : 1;
      all.insert(all.end(), copies, control(said[prng_.below(said.size())]));
    }
    if (!said.empty() && babbles_ && prng_.chance(kBabbles)) {  // not in a Join's place: then it would be nobody
      const std::size_t copies = floods_ && prng_.chance(kFloods / kBabbles) ? kCopies : 1;
      all.insert(all.end(), copies, control(wire::encode(babble())));
    }
    Result<wire::Message> decoded = wire::decode(message.head);
    if (decoded.ok()) note_place(*decoded);
    // What it says it has trained is its own affair: no site can check it.
    if (decoded.ok() && !std::holds_alternative<wire::Ready>(*decoded)) said.push_back(message.head);
    if (said.size() > kRemembered) said.pop_front();
    if (decoded.ok() && prng_.chance(kLies) && twist(prng_, *decoded)) message.head = wire::encode(*decoded);
  }
  if (message.lane == Lane::kData && withholds_) return all;
  all.push_back(std::move(message));
  return all;
}

}  // namespace collab::sim
