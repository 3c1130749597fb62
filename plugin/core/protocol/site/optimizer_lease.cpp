// Serving a copy of the optimizer's state.
//
//   none --asked--> wanted --made--> held --the last borrower has it, is gone or silent--> none
//                     | none can be made, nobody waits for it any more, no step ends
//                     +----------------------------------------------------------------> none
//
// All who ask while a copy is wanted or held share it.
#include "core/protocol/site/optimizer_lease.h"

#include <algorithm>
#include <utility>

#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr std::uint32_t kMaxPartsOut = 64;  // to one borrower; more than an honest one asks for ahead
constexpr std::uint32_t kMostTold = 4;      // likewise
// Between the end of one copy and the next: who asks and goes, again and again, is not to cost a copy each step.
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
  for (const auto& [link, borrower] : borrowers_) next = std::min(next, later(borrower.heard, limit_));
  if (!borrowers_.empty() && !holds_copy() && !wanted_) next = std::min(next, next_copy_);
  return next;
}

void OptimizerLease::on(const LeaseAsked& event) {
  if (event.asked.snapshot == 0) return ask_for_copy(event.from);
  const auto borrower = borrowers_.find(event.from);
  if (event.asked.snapshot != held_.snapshot || borrower == borrowers_.end()) {
    if (event.asked.range != ElementRange{}) tell_none(event.from, "the copy is not held any more");
    return;
  }
  if (event.asked.range == ElementRange{}) return give_back(event.from);
  if (event.asked.range.end > held_.bytes || borrower->second.on_their_way >= kMaxPartsOut) {
    out_.emplace_back(
        RefuseBorrower{event.from, "a site asks for more of an optimizer's state than there is [optimizer.range]"});
    return give_back(event.from);
  }
  borrower->second.heard = now_;
  ++borrower->second.on_their_way;
  out_.emplace_back(SendPart{event.from, event.asked});
}

void OptimizerLease::ask_for_copy(LinkId from) {
  Borrower& borrower = borrowers_[from];
  borrower.heard = now_;
  if (!holds_copy()) return make_copy();
  if (++borrower.told <= kMostTold) {
    out_.emplace_back(TellBorrower{from, held_});
    return;
  }
  out_.emplace_back(
      RefuseBorrower{from, "a site asks what optimizer state there is, again and again [optimizer.asks-again]"});
  give_back(from);
}

void OptimizerLease::make_copy() {
  if (now_ < next_copy_ || std::exchange(wanted_, true)) return;
  out_.emplace_back(MakeCopy{});
}

void OptimizerLease::on(const LeaseMade& event) {
  if (!std::exchange(wanted_, false)) {  // nobody waits for it any more
    out_.emplace_back(DropCopy{});
    return;
  }
  if (event.bytes == 0) {
    for (const auto& [link, borrower] : borrowers_) tell_none(link, event.reason);
    borrowers_.clear();
    return;
  }
  held_ = {++snapshots_, event.bytes, event.digest, event.description, {}};
  for (auto& [link, borrower] : borrowers_) {
    borrower.heard = now_;
    out_.emplace_back(TellBorrower{link, held_});
  }
}

void OptimizerLease::on(const LeaseOver& event) { give_back(event.link); }

void OptimizerLease::on(const LeasePartSent& event) {
  const auto borrower = borrowers_.find(event.link);
  if (borrower == borrowers_.end() || borrower->second.on_their_way == 0) return;
  --borrower->second.on_their_way;
  borrower->second.heard = now_;
}

void OptimizerLease::on(const LeaseTick&) {
  std::vector<LinkId> silent;
  for (const auto& [link, borrower] : borrowers_) {
    if (now_ >= later(borrower.heard, limit_)) silent.push_back(link);
  }
  for (const LinkId link : silent) {
    tell_none(link, wanted_ ? "it has not come to the end of a step within " + in_seconds(limit_)
                            : "nothing was asked of it for " + in_seconds(limit_));
    give_back(link);
  }
  if (!borrowers_.empty() && !holds_copy()) make_copy();
}

void OptimizerLease::give_back(LinkId link) {
  if (borrowers_.erase(link) == 0 || !borrowers_.empty()) return;
  wanted_ = false;
  held_ = {};
  next_copy_ = later(now_, kBetweenCopies);
  out_.emplace_back(DropCopy{});
}

void OptimizerLease::tell_none(LinkId to, std::string reason) {
  out_.emplace_back(TellBorrower{to, {0, 0, {}, {}, std::move(reason)}});
}

}  // namespace collab::protocol
