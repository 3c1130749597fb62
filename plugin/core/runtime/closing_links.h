// Links that this process is closing, or will close once they are open. Messages on them are ignored, however many
// come.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstddef>
#include <set>

#include "collab/types.h"

namespace collab {

class ClosingLinks {
 public:
  void begin(LinkId link) {
    links_.insert(link);
    if (links_.size() > kMost) links_.erase(links_.begin());  // the oldest, which had ended by itself
  }
  void closed(LinkId link) { links_.erase(link); }
  [[nodiscard]] bool has(LinkId link) const { return links_.contains(link); }

 private:
  static constexpr std::size_t kMost = 4096;
  std::set<LinkId> links_;
};

}  // namespace collab
