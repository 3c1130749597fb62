// Serving a copy of the optimizer's state.
//
//   none --asked--> wanted --made--> held --the last fetcher has it, is gone or silent--> none
//                     | none can be made, no site waits for it any more, no step ends
//                     +----------------------------------------------------------------> none
//
// All sites that ask while a copy is wanted or held share it. While a part of a dropped copy is on its way, all of the
// copy stays in memory and no other is made. A site that does not take its part in time loses its link once another
// site waits.
#include "core/protocol/site/optimizer_lease.h"

#include <algorithm>
#include <utility>

#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr std::uint32_t kMaxPartsOut = 64;  // to one fetcher: more than an honest one asks for ahead
constexpr std::uint32_t kMostTold = 4;      // answers to one fetcher, likewise
// The least time from the end of one copy to the next. A site that asks again and again must not cost a copy each step.
constexpr Duration kBetweenCopies = std::chrono::seconds(5);

}  // namespace

std::vector<LeaseAction> OptimizerLease::step(TimePoint now, const LeaseEvent& event) {
  now_ = now;
  out_.clear();
  std::visit([this](const auto& e) { on(e); }, event);
  return std::move(out_);
}

TimePoint OptimizerLease::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [link, fetcher] : fetchers_) next = std::min(next, later(fetcher.heard, limit_));
  if (waits_for_copy()) next = std::min(next, in_flight_.empty() ? next_copy_ : parts_end_by_);
  return next;
}

void OptimizerLease::on(const LeaseAsked& event) {
  if (event.asked.snapshot == 0) return ask_for_copy(event.from);
  const auto fetcher = fetchers_.find(event.from);
  if (event.asked.snapshot != held_.snapshot || fetcher == fetchers_.end()) {
    if (event.asked.range != ElementRange{}) send_refusal(event.from, "the copy is no longer held");
    return;
  }
  if (event.asked.range == ElementRange{}) return give_back(event.from);
  const auto parts = in_flight_.find(event.from);
  if (event.asked.range.end > held_.bytes || (parts != in_flight_.end() && parts->second >= kMaxPartsOut)) {
    out_.emplace_back(
        RefuseFetcher{event.from, "a site asks for more of an optimizer's state than there is [optimizer.range]"});
    return give_back(event.from);
  }
  fetcher->second.heard = now_;
  ++in_flight_[event.from];
  out_.emplace_back(SendPart{event.from, event.asked});
}

void OptimizerLease::ask_for_copy(LinkId from) {
  Fetcher& fetcher = fetchers_[from];
  fetcher.heard = now_;
  if (!holds_copy()) return make_copy();
  if (++fetcher.told <= kMostTold) {
    out_.emplace_back(SendOptimizerState{from, held_});
    return;
  }
  out_.emplace_back(
      RefuseFetcher{from, "a site asks what optimizer state there is, again and again [optimizer.asks-again]"});
  give_back(from);
}

void OptimizerLease::make_copy() {
  if (now_ < next_copy_ || !in_flight_.empty() || std::exchange(wanted_, true)) return;
  out_.emplace_back(MakeCopy{});
}

void OptimizerLease::on(const LeaseMade& event) {
  if (!std::exchange(wanted_, false)) {  // no site waits for it any more
    out_.emplace_back(DropCopy{});
    return;
  }
  if (event.bytes == 0) {
    for (const auto& [link, fetcher] : fetchers_) send_refusal(link, event.reason);
    fetchers_.clear();
    return;
  }
  held_ = {++snapshots_, event.bytes, event.digest, event.description, {}};
  for (auto& [link, fetcher] : fetchers_) {
    fetcher.heard = now_;
    out_.emplace_back(SendOptimizerState{link, held_});
  }
}

void OptimizerLease::on(const LeaseOver& event) {
  in_flight_.erase(event.link);
  give_back(event.link);
  retry_copy();
}

void OptimizerLease::on(const LeasePartSent& event) {
  const auto parts = in_flight_.find(event.link);
  if (parts == in_flight_.end()) return;
  if (--parts->second == 0) in_flight_.erase(parts);
  const auto fetcher = fetchers_.find(event.link);
  if (fetcher != fetchers_.end()) fetcher->second.heard = now_;
  retry_copy();
}

void OptimizerLease::on(const LeaseTick&) {
  std::vector<LinkId> silent;
  for (const auto& [link, fetcher] : fetchers_) {
    if (now_ >= later(fetcher.heard, limit_)) silent.push_back(link);
  }
  for (const LinkId link : silent) {
    send_refusal(link, wanted_ ? "it has not come to the end of a step within " + in_seconds(limit_)
                               : "nothing was asked of it for " + in_seconds(limit_));
    give_back(link);
  }
  retry_copy();
  if (waits_for_copy() && now_ >= parts_end_by_) close_unresponsive_fetchers();
}

void OptimizerLease::retry_copy() {
  if (waits_for_copy()) make_copy();
}

void OptimizerLease::close_unresponsive_fetchers() {
  parts_end_by_ = kNever;
  for (const auto& [link, parts] : in_flight_) {
    out_.emplace_back(RefuseFetcher{link,
                                    "a site has given an optimizer's state back and does not take the parts of it "
                                    "that it asked for [optimizer.not-taken]"});
  }
}

void OptimizerLease::give_back(LinkId link) {
  if (fetchers_.erase(link) == 0 || !fetchers_.empty()) return;
  wanted_ = false;
  held_ = {};
  next_copy_ = later(now_, kBetweenCopies);
  parts_end_by_ = later(now_, limit_ / 2);
  out_.emplace_back(DropCopy{});
}

void OptimizerLease::send_refusal(LinkId to, std::string reason) {
  out_.emplace_back(SendOptimizerState{to, {0, 0, {}, {}, std::move(reason)}});
}

}  // namespace collab::protocol
