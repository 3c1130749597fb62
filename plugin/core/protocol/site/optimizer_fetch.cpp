#include "core/protocol/site/optimizer_fetch.h"

#include <algorithm>
#include <utility>

#include "core/protocol/site/site_parts.h"

namespace collab::protocol {
namespace {

constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20;
constexpr std::size_t kPartsAhead = 16;
constexpr int kMaxSilent = 2;  // each member that does not answer costs a grace
// A copy is made between two steps. If the step does not end within the grace, the member says so.
constexpr Duration kForTheAnswer = std::chrono::seconds(5);
// No known optimizer keeps more for each parameter.
constexpr std::uint64_t kMaxBytesAnElement = 32;

}  // namespace

void OptimizerFetch::find_source() {
  if (!fetch_.begun) begin();
  ask_next();
}

void OptimizerFetch::begin() {
  fetch_ = Record{};
  fetch_.begun = true;
  fetch_.give_up = later(all_->now, all_->config.round_timeout);
  for (const auto& [site, member] : all_->roster.members()) {
    if (site != all_->membership.self() && member.state == wire::MemberState::kActive) fetch_.members.push_back(site);
  }
  // Linked members come first, then the next one above this site, so that joiners do not all ask the same member.
  const auto turn = [this](SiteId site) {
    return std::pair(all_->peers.linked(site), std::pair(site > *all_->membership.self(), -std::int64_t{site.value}));
  };
  std::ranges::sort(fetch_.members, {}, turn);
}

void OptimizerFetch::ask_next() {
  fetch_.phase = Phase::kNone;
  if (fetch_.members.empty() || fetch_.silent >= kMaxSilent || all_->now >= fetch_.give_up) {
    const std::string text = fetch_.reasons.empty() ? "no other site is here" : join_words(fetch_.reasons, "; ");
    fetch_.begun = false;
    all_->out.emplace_back(NoOptimizer{fetch_.silent > 0 ? timed_out(text) : unavailable(text)});
    return;
  }
  fetch_.phase = Phase::kLinking;
  fetch_.from = fetch_.members.back();
  fetch_.members.pop_back();
  fetch_.until = later(all_->now, kLinkLimit);
  pursue();
}

void OptimizerFetch::pursue() {
  if (fetch_.phase != Phase::kLinking) return;
  const wire::Member* const member = all_->roster.find(fetch_.from);
  if (member == nullptr) return leave_member("it is no longer a member");
  if (const auto link = all_->peers.link_to(fetch_.from)) {
    fetch_.phase = Phase::kAsking;
    fetch_.link = *link;
    fetch_.until = later(all_->now, all_->coordinator.grace() + kForTheAnswer);
    all_->out.emplace_back(Send{fetch_.link, wire::FetchOptimizer{}});
    return;
  }
  if (member->address.empty() && all_->membership.join().address.empty()) {
    return leave_member("neither it nor this site can be dialled");
  }
  all_->peers.dial(fetch_.from);  // without an address it dials us
}

void OptimizerFetch::leave_member(const std::string& reason) {
  const bool told = is_copied();
  fetch_.reasons.push_back(all_->name_of(fetch_.from) + ": " + reason);
  fetch_.awaited.clear();
  if (!told) return ask_next();
  if (fetch_.phase >= Phase::kTaking) all_->out.emplace_back(OptimizerLost{fetch_.reasons.back()});
  fetch_.phase = Phase::kNone;
}

void OptimizerFetch::on_state(LinkId link, const wire::OptimizerState& state) {
  const bool waits = fetch_.phase >= Phase::kAsking && fetch_.phase != Phase::kTaken;
  if (!waits || fetch_.link != link) return;  // an answer that came too late
  if (state.snapshot == 0) return leave_member(state.reason);
  if (fetch_.phase != Phase::kAsking) return;
  if (state.bytes > kMaxBytesAnElement * all_->membership.join().elements) {
    return leave_member("its copy has " + std::to_string(state.bytes) + " bytes, which is too much for " +
                        std::to_string(all_->membership.join().elements) + " parameters");
  }
  fetch_.phase = Phase::kOffered;
  fetch_.until = kNever;
  fetch_.offer = state;
  all_->out.emplace_back(OptimizerOffered{all_->name_of(fetch_.from), state});
}

void OptimizerFetch::take() {
  if (fetch_.phase != Phase::kOffered) {
    all_->out.emplace_back(OptimizerLost{fetch_.reasons.empty() ? "nothing was offered" : fetch_.reasons.back()});
    return;
  }
  fetch_.phase = Phase::kTaking;
  fetch_.asked = 0;
  ask_for_parts();
}

void OptimizerFetch::ask_for_parts() {
  fetch_.until = later(all_->now, all_->coordinator.grace());
  while (fetch_.asked < fetch_.offer.bytes && fetch_.awaited.size() < kPartsAhead) {
    const ElementRange part{fetch_.asked, std::min(fetch_.offer.bytes, fetch_.asked + kPartBytes)};
    fetch_.awaited.insert(part.begin);
    fetch_.asked = part.end;
    all_->out.emplace_back(Send{fetch_.link, wire::FetchOptimizer{fetch_.offer.snapshot, part}});
  }
}

void OptimizerFetch::on_part(const OptimizerPart& event) {
  if (fetch_.phase != Phase::kTaking || fetch_.link != event.link || fetch_.offer.snapshot != event.snapshot) return;
  const bool awaited = fetch_.awaited.count(event.range.begin) != 0 &&
                       event.range.end == std::min(fetch_.offer.bytes, event.range.begin + kPartBytes);
  if (!awaited || event.damaged) {
    return leave_member(awaited ? "its bytes were damaged on the way" : "it sent something that was not asked for");
  }
  fetch_.awaited.erase(event.range.begin);
  all_->out.emplace_back(TakeOptimizerPart{event.range});
  ask_for_parts();
  if (!fetch_.awaited.empty()) return;
  fetch_.phase = Phase::kTaken;
  all_->out.emplace_back(OptimizerComplete{});
}

void OptimizerFetch::on_unfit(const OptimizerUnfit& event) {
  if (fetch_.phase == Phase::kTaken) leave_member(event.reason);
}

void OptimizerFetch::end() {
  if (is_copied() && all_->peers.linked(fetch_.from)) {
    all_->out.emplace_back(Send{fetch_.link, wire::FetchOptimizer{fetch_.offer.snapshot, {}}});
  }
  fetch_ = Record{};
}

// No limit runs while the caller reads an offer that it has not answered.
bool OptimizerFetch::waits_for_member() const {
  switch (fetch_.phase) {
    case Phase::kNone:
    case Phase::kOffered:
    case Phase::kTaken: return false;
    case Phase::kLinking:
    case Phase::kAsking:
    case Phase::kTaking: return true;
  }
  return false;
}

bool OptimizerFetch::is_copied() const { return fetch_.phase >= Phase::kOffered; }

TimePoint OptimizerFetch::next_deadline() const {
  return waits_for_member() ? std::min(fetch_.until, fetch_.give_up) : kNever;
}

std::string OptimizerFetch::waiting_text() const {
  if (fetch_.phase == Phase::kNone) return "waiting for nothing";
  return "waiting for the optimizer's state from " + all_->name_of(fetch_.from);
}

void OptimizerFetch::link_lost(LinkId link, const std::string& why) {
  if (fetch_.link != link || fetch_.phase <= Phase::kLinking || fetch_.phase == Phase::kTaken) return;
  leave_member("the link to it was lost: " + why);
}

void OptimizerFetch::on_tick() {
  if (!waits_for_member()) return;
  if (all_->now < fetch_.until && all_->now < fetch_.give_up) return;
  ++fetch_.silent;
  if (fetch_.phase == Phase::kLinking) return leave_member("no link to it within " + in_seconds(kLinkLimit));
  leave_member(fetch_.phase == Phase::kAsking ? "it has not answered" : "nothing more arrived from it");
}

}  // namespace collab::protocol
