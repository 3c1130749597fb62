// Whole Joins, each as large as a message may be, are kept until their sender is a member. If they take too many bytes,
// the largest are dropped: a site's Join is as long as its model's list of tensors.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "collab/types.h"
#include "core/base/memory_limit.h"
#include "core/base/trim_debt.h"
#include "core/wire/messages.h"

namespace collab {

// The memory that a Join of `sent` bytes takes while it is kept: some fields are shorter on the wire than here.
[[nodiscard]] inline std::size_t held_bytes(const wire::Join& join, std::size_t sent) {
  const wire::Record& record = join.report.record;
  std::size_t bytes = sent + join.settings.size() * sizeof(wire::Setting) + record.voters.size() * sizeof(wire::Voter);
  for (const wire::ModelEntry& entry : join.model) bytes += sizeof entry + entry.shape.size() * sizeof(std::uint64_t);
  for (const wire::Past& past : record.recent) bytes += past.contributors.size() * sizeof past.contributors[0];
  for (const wire::Proposal& proposal : record.proposals) {
    bytes += proposal.start.participants.size() * sizeof(wire::Participant) +
             proposal.start.slices.size() * sizeof(wire::Slice) + proposal.start.voters.size() * sizeof(wire::Voter);
  }
  return bytes;
}

class PendingJoins {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  static constexpr std::size_t kLeastBytes = std::size_t{32} << 20;  // room for several of the largest

  explicit PendingJoins(std::uint64_t memory = memory_limit())
      : most_(share_of_memory(memory, kLeastBytes, kMostBytes)) {}

  // A Join of so many bytes has come. Returns the links to close for it; this one may be among them.
  template <typename IsKept>
  [[nodiscard]] std::vector<LinkId> on_join(LinkId link, std::size_t bytes, IsKept is_kept) {
    closed(link);
    if (in_all_ + bytes > most_) {
      for (auto each = bytes_.begin(); each != bytes_.end();) {
        in_all_ -= is_kept(each->first) ? 0 : each->second;
        each = is_kept(each->first) ? std::next(each) : bytes_.erase(each);
      }
    }
    bytes_[link] = bytes;
    in_all_ += bytes;
    trims_.holds(in_all_);
    std::vector<LinkId> gone;
    while (in_all_ > most_) {
      gone.push_back(std::ranges::max_element(bytes_, {}, [](const auto& each) { return each.second; })->first);
      closed(gone.back());
    }
    return gone;
  }
  void closed(LinkId link) {
    const auto found = bytes_.find(link);
    if (found == bytes_.end()) return;
    in_all_ -= found->second;
    bytes_.erase(found);
  }
  [[nodiscard]] std::size_t most() const { return most_; }
  // True once little is kept after much was.
  [[nodiscard]] bool may_trim() { return trims_.settle(in_all_); }

 private:
  const std::size_t most_;
  TrimDebt trims_;
  std::map<LinkId, std::size_t> bytes_;
  std::size_t in_all_ = 0;
};

}  // namespace collab
