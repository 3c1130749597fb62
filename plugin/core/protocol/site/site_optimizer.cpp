// The optimizer's state of one member, for a site that joins: whom to ask, what comes, whom to ask next.
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
// No optimizer keeps more for each parameter.
constexpr std::uint64_t kMaxBytesAnElement = 32;

}  // namespace

void Site::State::on_event(const SeekOptimizer&) {
  if (!optimizer_fetch.begun) {
    optimizer_fetch = OptimizerFetch{};
    optimizer_fetch.begun = true;
    optimizer_fetch.give_up = later(now, config.round_timeout);
    for (const auto& [site, member] : roster) {
      if (site != self && member.state == wire::MemberState::kActive) optimizer_fetch.members.push_back(site);
    }
    // The next one above us first, so that not all who join ask the same; of those, whom we know already.
    const auto turn = [this](SiteId site) {
      return std::pair(linked(site), std::pair(site > *self, -std::int64_t{site.value}));
    };
    std::ranges::sort(optimizer_fetch.members, {}, turn);
  }
  seek_optimizer();
}

void Site::State::seek_optimizer() {
  optimizer_fetch.phase = FetchPhase::kNone;
  if (optimizer_fetch.members.empty() || optimizer_fetch.silent >= kMaxSilent || now >= optimizer_fetch.give_up) {
    const std::string words =
        optimizer_fetch.words.empty() ? "no other site is here" : join_words(optimizer_fetch.words, "; ");
    optimizer_fetch.begun = false;
    out.emplace_back(NoOptimizer{optimizer_fetch.silent > 0 ? timed_out(words) : unavailable(words)});
    return;
  }
  optimizer_fetch.phase = FetchPhase::kLinking;
  optimizer_fetch.from = optimizer_fetch.members.back();
  optimizer_fetch.members.pop_back();
  optimizer_fetch.until = later(now, kLinkLimit);
  pursue_optimizer();
}

void Site::State::pursue_optimizer() {
  if (optimizer_fetch.phase != FetchPhase::kLinking) return;
  const auto member = roster.find(optimizer_fetch.from);
  if (member == roster.end()) return leave_optimizer("it is no member any more");
  if (const auto link = link_of.find(optimizer_fetch.from); link != link_of.end()) {
    optimizer_fetch.phase = FetchPhase::kAsking;
    optimizer_fetch.link = link->second;
    optimizer_fetch.until = later(now, up.grace + kForTheAnswer);
    out.emplace_back(Send{optimizer_fetch.link, wire::FetchOptimizer{}});
    return;
  }
  if (member->second.address.empty() && join.address.empty()) {
    return leave_optimizer("neither it nor this site can be dialled");
  }
  dial_peer(optimizer_fetch.from);  // without an address it dials us
}

void Site::State::leave_optimizer(const std::string& reason) {
  const bool told = optimizer_fetch.phase == FetchPhase::kOffered || optimizer_fetch.phase == FetchPhase::kTaking;
  optimizer_fetch.words.push_back(name_of(optimizer_fetch.from) + ": " + reason);
  optimizer_fetch.awaited.clear();
  if (!told) return seek_optimizer();
  if (optimizer_fetch.phase == FetchPhase::kTaking) out.emplace_back(OptimizerLost{optimizer_fetch.words.back()});
  optimizer_fetch.phase = FetchPhase::kNone;
}

void Site::State::on_optimizer_state(LinkId link, const wire::OptimizerState& state) {
  if (optimizer_fetch.phase < FetchPhase::kAsking || optimizer_fetch.link != link)
    return;  // an answer that came too late
  if (state.snapshot == 0) return leave_optimizer(state.reason);
  if (optimizer_fetch.phase != FetchPhase::kAsking) return;
  if (state.bytes > kMaxBytesAnElement * join.elements) {
    return leave_optimizer("its copy has " + std::to_string(state.bytes) + " bytes, which is too much for " +
                           std::to_string(join.elements) + " parameters");
  }
  optimizer_fetch.phase = FetchPhase::kOffered;
  optimizer_fetch.until = kNever;
  optimizer_fetch.offer = state;
  out.emplace_back(OptimizerOffered{name_of(optimizer_fetch.from), state});
}

void Site::State::on_event(const TakeOptimizer&) {
  if (optimizer_fetch.phase != FetchPhase::kOffered) {
    out.emplace_back(
        OptimizerLost{optimizer_fetch.words.empty() ? "nothing was offered" : optimizer_fetch.words.back()});
    return;
  }
  optimizer_fetch.phase = FetchPhase::kTaking;
  optimizer_fetch.asked = 0;
  ask_for_parts();
}

void Site::State::ask_for_parts() {
  optimizer_fetch.until = later(now, up.grace);
  while (optimizer_fetch.asked < optimizer_fetch.offer.bytes && optimizer_fetch.awaited.size() < kPartsAhead) {
    const ElementRange part{optimizer_fetch.asked,
                            std::min(optimizer_fetch.offer.bytes, optimizer_fetch.asked + kPartBytes)};
    optimizer_fetch.awaited.insert(part.begin);
    optimizer_fetch.asked = part.end;
    out.emplace_back(Send{optimizer_fetch.link, wire::FetchOptimizer{optimizer_fetch.offer.snapshot, part}});
  }
}

void Site::State::on_event(const OptimizerPart& event) {
  if (optimizer_fetch.phase != FetchPhase::kTaking || optimizer_fetch.link != event.link ||
      optimizer_fetch.offer.snapshot != event.snapshot)
    return;
  const bool awaited = optimizer_fetch.awaited.count(event.range.begin) != 0 &&
                       event.range.end == std::min(optimizer_fetch.offer.bytes, event.range.begin + kPartBytes);
  if (!awaited || event.damaged) {
    return leave_optimizer(awaited ? "its bytes were damaged on their way" : "it sent what was not asked for");
  }
  optimizer_fetch.awaited.erase(event.range.begin);
  out.emplace_back(TakeOptimizerPart{event.range});
  ask_for_parts();
  if (!optimizer_fetch.awaited.empty()) return;
  optimizer_fetch.until = optimizer_fetch.give_up = kNever;
  out.emplace_back(OptimizerComplete{});
}

void Site::State::on_event(const OptimizerUnfit& event) {
  if (optimizer_fetch.phase == FetchPhase::kTaking) leave_optimizer(event.reason);
}

void Site::State::on_event(const EndOptimizer&) {
  const bool copied = optimizer_fetch.phase == FetchPhase::kOffered || optimizer_fetch.phase == FetchPhase::kTaking;
  if (copied && linked(optimizer_fetch.from))
    out.emplace_back(Send{optimizer_fetch.link, wire::FetchOptimizer{optimizer_fetch.offer.snapshot, {}}});
  optimizer_fetch = OptimizerFetch{};
}

void Site::State::on_optimizer_tick() {
  if (optimizer_fetch.phase == FetchPhase::kNone || optimizer_fetch.phase == FetchPhase::kOffered) return;
  if (now < optimizer_fetch.until && now < optimizer_fetch.give_up) return;
  ++optimizer_fetch.silent;
  if (optimizer_fetch.phase == FetchPhase::kLinking)
    return leave_optimizer("no link to it within " + in_seconds(kLinkLimit));
  leave_optimizer(optimizer_fetch.phase == FetchPhase::kAsking ? "it has not answered" : "nothing more came from it");
}

}  // namespace collab::protocol
