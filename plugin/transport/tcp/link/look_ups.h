// Names that links wait for: so many are looked up at once, in the order in which they were asked for. Each takes a
// thread, for as long as the network's name server leaves it without an answer.
//
// Threads: the transport's IO thread. Ownership: plain values; the engine's Dialler looks up.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "collab/types.h"
#include "core/base/address.h"

namespace collab::tcp {

class LookUps {
 public:
  static constexpr std::size_t kAtOnce = 64;

  struct Wanted {
    LinkId link;
    HostPort address;
  };
  // Once for each link at a time.
  void want(LinkId link, HostPort address) {
    if (links_.insert(link).second) wanted_.push_back({link, std::move(address)});
  }
  // To be looked up now: ended() follows.
  [[nodiscard]] std::optional<Wanted> next() {
    if (wanted_.empty() || under_way_ >= kAtOnce) return std::nullopt;
    Wanted first = std::move(wanted_.front());
    wanted_.pop_front();
    ++under_way_;
    return first;
  }
  void ended(LinkId link) {
    links_.erase(link);
    --under_way_;
  }

 private:
  std::deque<Wanted> wanted_;  // links are bounded, and so is this
  std::set<LinkId> links_;     // those wanted, and those under way
  std::size_t under_way_ = 0;
};

}  // namespace collab::tcp
