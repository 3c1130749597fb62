#include "core/protocol/site/record_writes.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/protocol/mutants.h"
#include "core/protocol/site/site_parts.h"

namespace collab::protocol {

TimePoint RecordWrites::next_deadline() const { return later(since_, all_->coordinator.grace()); }

void RecordWrites::keep() {
  since_ = std::min(since_, all_->now);
  all_->out.emplace_back(Persist{++asked_, all_->membership.report().record});
}

void RecordWrites::send_when_durable(wire::Message message) {
  keep();
  if (all_->coordinator.link()) held_.push_back({asked_, *all_->coordinator.link(), std::move(message)});
}

void RecordWrites::take_back_done() {
  std::erase_if(held_, [](const Held& held) { return std::holds_alternative<wire::Done>(held.message); });
}

void RecordWrites::on_persisted(const Persisted& event) {
  written_ = std::max(written_, event.number);
  since_ = written_ >= asked_ ? kNever : all_->now;
  if (!event.why.ok()) {
    // The disk may hold less than the site has sent. So this acceptor must not be counted on.
    if (!mutant(Mutant::kAcceptorAfterFailedWrite)) all_->acceptor.renounce();
    held_.clear();
    if (all_->coordinator.link() && all_->membership.phase() != SitePhase::kLeaving) {
      all_->coordinator.drop("this site's record could not be written: " + event.why.message());
    }
    return;
  }
  while (!held_.empty() && held_.front().number <= written_) {
    Held held = std::move(held_.front());
    held_.erase(held_.begin());
    if (all_->coordinator.link() == held.link) all_->coordinator.send(std::move(held.message));
  }
}

// Other sites must not wait for a disk: the attempt is given up, and so is the promise.
void RecordWrites::on_tick() {
  if (all_->now < next_deadline()) return;
  since_ = all_->now;
  if (held_.empty()) return;
  held_.clear();
  if (all_->coordinator.link()) {
    all_->coordinator.drop("this site's record was not written within " + in_seconds(all_->coordinator.grace()) +
                           " (COLLAB_LINK_GRACE)");
  }
}

}  // namespace collab::protocol
