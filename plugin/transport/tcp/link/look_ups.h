// The queue of host names to look up for links. A limited number is looked up at once, in the order of the requests.
// Each look-up holds a thread until the name server answers, perhaps longer than its link exists. So a peer with ever
// new names that no server answers could take all threads. Some threads are therefore reserved for names that were
// found before.
//
// Threads: the transport's IO thread. Ownership: plain values; the engine's Dialler looks up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "collab/types.h"
#include "core/base/address.h"

namespace collab::tcp {

class LookUps {
 public:
  static constexpr std::size_t kAtOnce = 128;
  static constexpr std::size_t kOfNewNames = 96;
  static constexpr std::size_t kMostFound = 4096;

  struct Wanted {
    LinkId link;
    HostPort address;
  };
  // Queues a look-up, unless the link already has one.
  void want(LinkId link, HostPort address) {
    if (links_.insert(link).second) wanted_.push_back({link, std::move(address)});
  }
  // The next name to look up now. The caller calls ended() afterwards.
  [[nodiscard]] std::optional<Wanted> next() {
    if (under_way_ >= kAtOnce) return std::nullopt;
    const auto at =
        under_way_ < kOfNewNames
            ? wanted_.begin()
            : std::ranges::find_if(wanted_, [this](const Wanted& of) { return found_.contains(of.address.host); });
    if (at == wanted_.end()) return std::nullopt;
    Wanted first = std::move(*at);
    wanted_.erase(at);
    ++under_way_;
    return first;
  }
  void found(std::string host) {
    if (found_.size() >= kMostFound && !found_.contains(host)) found_.clear();
    found_.insert(std::move(host));
  }
  void ended(LinkId link) {
    links_.erase(link);
    --under_way_;
  }

 private:
  std::deque<Wanted> wanted_;    // bounded, as links are
  std::set<LinkId> links_;       // links whose look-up waits or runs
  std::set<std::string> found_;  // hosts that were found before
  std::size_t under_way_ = 0;
};

}  // namespace collab::tcp
