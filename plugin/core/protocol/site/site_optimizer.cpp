// The optimiser's state of one member, for a site that joins: whom to ask, what comes, whom to ask next.
//
//   none --Seek--> linking --linked--> asking --it has a copy--> offered --Take--> taking --every byte--> none
//    ^ ^              | no link          | it has none, keeps silent                 | the link is lost, other bytes,
//    | |              v                  v                        Seek               v nothing comes
//    | +--no member---+------ next ------+                  <------------------ none, told that it is lost
//    +--End, from every state: who made a copy may drop it
//
// One member at a time: a copy costs memory there. The caller reads the description and says whether it wants the
// bytes.
#include <algorithm>
#include <utility>

#include "core/protocol/site/site_state.h"

namespace collab::protocol {
namespace {

constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20;
constexpr std::size_t kPartsAhead = 16;
constexpr int kMaxSilent = 2;  // members that do not answer cost a grace each
// A copy is made between two steps, and who waits for a step that does not end is told so after the grace.
constexpr Duration kForTheAnswer = std::chrono::seconds(5);
// No optimiser keeps more for each parameter.
constexpr std::uint64_t kMaxBytesAnElement = 32;

}  // namespace

void Site::State::on_event(const SeekOptimizer&) {
  if (!wish.begun) {
    wish = OptimizerWish{};
    wish.begun = true;
    wish.give_up = later(now, config.round_timeout);
    for (const auto& [site, member] : roster) {
      if (site != self && member.state == wire::MemberState::kActive) wish.members.push_back(site);
    }
    // The next one above us first, so that not all who join ask the same; of those, whom we know already.
    const auto turn = [this](SiteId site) {
      return std::pair(linked(site), std::pair(site > *self, -std::int64_t{site.value}));
    };
    std::ranges::sort(wish.members, {}, turn);
  }
  seek_optimizer();
}

void Site::State::seek_optimizer() {
  wish.phase = WishPhase::kNone;
  if (wish.members.empty() || wish.silent >= kMaxSilent || now >= wish.give_up) {
    const std::string words = wish.words.empty() ? "no other site is here" : join_words(wish.words, "; ");
    wish.begun = false;
    out.emplace_back(NoOptimizer{wish.silent > 0 ? timed_out(words) : unavailable(words)});
    return;
  }
  wish.phase = WishPhase::kLinking;
  wish.from = wish.members.back();
  wish.members.pop_back();
  wish.until = later(now, kLinkLimit);
  pursue_optimizer();
}

void Site::State::pursue_optimizer() {
  if (wish.phase != WishPhase::kLinking) return;
  const auto member = roster.find(wish.from);
  if (member == roster.end()) return leave_optimizer("it is no member any more");
  if (const auto link = link_of.find(wish.from); link != link_of.end()) {
    wish.phase = WishPhase::kAsking;
    wish.link = link->second;
    wish.until = later(now, up.grace + kForTheAnswer);
    out.emplace_back(Send{wish.link, wire::FetchOptimizer{}});
    return;
  }
  if (member->second.address.empty() && join.address.empty()) {
    return leave_optimizer("neither it nor this site can be dialled");
  }
  dial_peer(wish.from);  // without an address it dials us
}

void Site::State::leave_optimizer(const std::string& reason) {
  const bool told = wish.phase == WishPhase::kOffered || wish.phase == WishPhase::kTaking;
  wish.words.push_back(name_of(wish.from) + ": " + reason);
  wish.awaited.clear();
  if (!told) return seek_optimizer();
  if (wish.phase == WishPhase::kTaking) out.emplace_back(OptimizerLost{wish.words.back()});
  wish.phase = WishPhase::kNone;
}

void Site::State::on_optimizer_state(LinkId link, const wire::OptimizerState& state) {
  if (wish.phase < WishPhase::kAsking || wish.link != link) return;  // an answer that came too late
  if (state.snapshot == 0) return leave_optimizer(state.reason);
  if (wish.phase != WishPhase::kAsking) return;
  if (state.bytes > kMaxBytesAnElement * join.elements) {
    return leave_optimizer("its copy has " + std::to_string(state.bytes) + " bytes, which is too much for " +
                           std::to_string(join.elements) + " parameters");
  }
  wish.phase = WishPhase::kOffered;
  wish.until = kNever;
  wish.offer = state;
  out.emplace_back(OptimizerOffered{name_of(wish.from), state});
}

void Site::State::on_event(const TakeOptimizer&) {
  if (wish.phase != WishPhase::kOffered) {
    out.emplace_back(OptimizerLost{wish.words.empty() ? "nothing was offered" : wish.words.back()});
    return;
  }
  wish.phase = WishPhase::kTaking;
  wish.asked = 0;
  ask_for_parts();
}

void Site::State::ask_for_parts() {
  wish.until = later(now, up.grace);
  while (wish.asked < wish.offer.bytes && wish.awaited.size() < kPartsAhead) {
    const ElementRange part{wish.asked, std::min(wish.offer.bytes, wish.asked + kPartBytes)};
    wish.awaited.insert(part.begin);
    wish.asked = part.end;
    out.emplace_back(Send{wish.link, wire::FetchOptimizer{wish.offer.snapshot, part}});
  }
}

void Site::State::on_event(const OptimizerPart& event) {
  if (wish.phase != WishPhase::kTaking || wish.link != event.link || wish.offer.snapshot != event.snapshot) return;
  const bool awaited = wish.awaited.count(event.range.begin) != 0 &&
                       event.range.end == std::min(wish.offer.bytes, event.range.begin + kPartBytes);
  if (!awaited || event.damaged) {
    return leave_optimizer(awaited ? "its bytes were damaged on their way" : "it sent what was not asked for");
  }
  wish.awaited.erase(event.range.begin);
  out.emplace_back(TakeOptimizerPart{event.range});
  ask_for_parts();
  if (!wish.awaited.empty()) return;
  wish.until = wish.give_up = kNever;
  out.emplace_back(OptimizerComplete{});
}

void Site::State::on_event(const OptimizerUnfit& event) {
  if (wish.phase == WishPhase::kTaking) leave_optimizer(event.reason);
}

void Site::State::on_event(const EndOptimizer&) {
  const bool copied = wish.phase == WishPhase::kOffered || wish.phase == WishPhase::kTaking;
  if (copied && linked(wish.from)) out.emplace_back(Send{wish.link, wire::FetchOptimizer{wish.offer.snapshot, {}}});
  wish = OptimizerWish{};
}

void Site::State::on_optimizer_tick() {
  if (wish.phase == WishPhase::kNone || wish.phase == WishPhase::kOffered) return;
  if (now < wish.until && now < wish.give_up) return;
  ++wish.silent;
  if (wish.phase == WishPhase::kLinking) return leave_optimizer("no link to it within " + in_seconds(kLinkLimit));
  leave_optimizer(wish.phase == WishPhase::kAsking ? "it has not answered" : "nothing more came from it");
}

}  // namespace collab::protocol
