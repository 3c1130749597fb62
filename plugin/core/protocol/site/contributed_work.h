// What was trained here, and how much of it is in the anchor: every sample is counted once, or given up.
//
//   uncounted --its exchange begins--> open --committed, or perhaps committed--> counted
//       ^                               |  +--the parameters move on--> set aside: open still
//       +--surely not committed---------+
//
// Pure. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <optional>

#include "core/protocol/actions.h"

namespace collab::protocol {

class ContributedWork {
 public:
  [[nodiscard]] bool is_open() const { return pending_.has_value(); }
  [[nodiscard]] bool is_set_aside() const { return pending_ && pending_->snapshot; }
  [[nodiscard]] const Trigger& counted() const { return counted_; }

  void contribute(const Trigger& total, AttemptId to) {
    pending_ = Pending{total, pending_ ? pending_->first : to, false};
  }
  // Whether what is open can be in the commit of that attempt: an earlier process of this site may have contributed to
  // an attempt that had begun before.
  [[nodiscard]] bool can_be_in(AttemptId attempt) const { return pending_ && pending_->first <= attempt; }
  void close() { pending_.reset(); }  // what is open was not committed, or is counted
  // Before the parameters move on. False: nothing is open, or it was set aside already.
  [[nodiscard]] bool set_aside() {
    if (!pending_ || pending_->snapshot) return false;
    pending_->snapshot = true;
    return true;
  }
  // What is open is in the new anchor: where that lies now.
  [[nodiscard]] Base mark_counted() {
    counted_ = pending_->total;
    return pending_->snapshot ? Base::kSnapshot : Base::kParameters;
  }
  // It is unfit: all that was trained so far, with what is open.
  void give_up(const Trigger& total) {
    counted_ = total;
    pending_.reset();
  }

 private:
  friend struct Inside;
  // A contribution that may have been committed, for all we know: its exchange began.
  struct Pending {
    Trigger total;          // as it was contributed
    AttemptId first;        // the first attempt that it was contributed to
    bool snapshot = false;  // we have trained on since; what was contributed was set aside
  };
  std::optional<Pending> pending_;
  Trigger counted_;  // of all that was trained, this much is in the anchor (or was unfit)
};

}  // namespace collab::protocol
