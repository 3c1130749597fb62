// Tracks how much of this site's training is in the anchor. In each fragment of the vector, every sample is counted
// once or given up.
//
//   uncounted --its exchange begins--> open --committed, or perhaps committed--> counted
//       ^                               |  +--the parameters move on--> kept aside: still open
//       +--surely not committed---------+
//
// Pure. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>

#include "core/protocol/actions.h"

namespace collab::protocol {

class ContributedWork {
 public:
  [[nodiscard]] bool is_open() const { return pending_.has_value(); }
  [[nodiscard]] bool is_set_aside() const { return pending_ && pending_->snapshot; }
  // How much of the training is in the anchor's fragment, or could not be used.
  struct Counted {
    std::uint64_t samples = 0;
    std::uint64_t steps = 0;
  };
  [[nodiscard]] Counted counted(std::uint32_t fragment) const {
    const auto found = counted_.find(fragment);
    return found == counted_.end() ? given_up_ : found->second;
  }

  void contribute(const Trigger& total, std::uint32_t fragment, AttemptId to) {
    pending_ = Pending{{total.samples, total.steps}, fragment, pending_ ? pending_->first : to, false};
  }
  // Whether the open contribution can be in the commit of that attempt. An attempt that began earlier can hold only the
  // contribution of an earlier process of this site.
  [[nodiscard]] bool can_be_in(AttemptId attempt) const { return pending_ && pending_->first <= attempt; }
  void close() { pending_.reset(); }  // the contribution was not committed, or is counted
  // Call before the parameters move on. False if nothing is open, or it is set aside already.
  [[nodiscard]] bool set_aside() {
    if (!pending_ || pending_->snapshot) return false;
    pending_->snapshot = true;
    return true;
  }
  // The open contribution is in the new anchor; returns where its values lie now.
  [[nodiscard]] Base mark_counted() {
    counted_[pending_->fragment] = pending_->total;
    return pending_->snapshot ? Base::kSnapshot : Base::kParameters;
  }
  // Nothing that was trained so far can be used, including the open contribution.
  void give_up(const Trigger& total) {
    given_up_ = {total.samples, total.steps};
    counted_.clear();
    pending_.reset();
  }

 private:
  friend struct Inside;
  // A contribution that may have been committed, for all we know: its exchange began.
  struct Pending {
    Counted total;               // when it was contributed
    std::uint32_t fragment = 0;  // to which it was contributed
    AttemptId first;             // the first attempt that it was contributed to
    bool snapshot = false;       // we have trained on since; a copy of the contribution was kept
  };
  std::optional<Pending> pending_;
  std::map<std::uint32_t, Counted> counted_;  // of fragments with work counted since give_up()
  Counted given_up_;                          // of all fragments
};

}  // namespace collab::protocol
