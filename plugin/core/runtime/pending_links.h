// Links that others have dialled, not yet claimed as the link of a member, a rank or another site. A
// peer that says nothing of use is not kept, and links of one host do not push out those of another.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/base/address.h"
#include "core/base/open_files.h"

namespace collab {

class PendingLinks {
 public:
  static constexpr Duration kWaitLimit = std::chrono::seconds(10);
  static constexpr std::size_t kMostOfHost = 64;
  static constexpr std::size_t kMost = 256;

  // No more than an eighth of the files that the process may have open.
  explicit PendingLinks(std::size_t (*files)() = most_open_files) : files_(files) {}

  // `peer` as a transport names it, "host:port". `is_known(link)`: it has been admitted. Returns the links to close to
  // make room: the oldest of its host, or, if there are too many in all, the oldest of the host with the most.
  template <typename IsKnown>
  [[nodiscard]] std::vector<LinkId> on_accepted(TimePoint now, LinkId link, const std::string& peer, IsKnown is_known) {
    const std::string host = network_of(peer);
    waiting_[link] = {host, now};
    std::vector<LinkId> gone;
    if (count(host) > kMostOfHost) make_room(host, is_known, gone);
    if (waiting_.size() > std::min(kMost, files_() / 8)) make_room(host_with_most(), is_known, gone);
    return gone;
  }
  void closed(LinkId link) { waiting_.erase(link); }

  // The links whose time is over.
  template <typename IsKnown>
  [[nodiscard]] std::vector<LinkId> due(TimePoint now, IsKnown is_known) {
    std::vector<LinkId> gone;
    std::erase_if(waiting_, [&](const auto& entry) {
      if (now - entry.second.since < kWaitLimit) return false;
      if (!is_known(entry.first)) gone.push_back(entry.first);
      return true;
    });
    return gone;
  }
  [[nodiscard]] TimePoint next_deadline() const {
    TimePoint next = kNever;
    for (const auto& [link, each] : waiting_) next = std::min(next, each.since + kWaitLimit);
    return next;
  }

 private:
  struct Waiting {
    std::string host;
    TimePoint since{};
  };

  [[nodiscard]] std::size_t count(const std::string& host) const {
    return static_cast<std::size_t>(
        std::count_if(waiting_.begin(), waiting_.end(), [&](const auto& entry) { return entry.second.host == host; }));
  }

  [[nodiscard]] std::string host_with_most() const {
    std::map<std::string, std::size_t> hosts;
    for (const auto& [link, each] : waiting_) ++hosts[each.host];
    return std::max_element(hosts.begin(), hosts.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  // Links that were admitted since no longer count.
  template <typename IsKnown>
  void make_room(const std::string& host, IsKnown is_known, std::vector<LinkId>& gone) {
    if (std::erase_if(waiting_, [&](const auto& entry) { return is_known(entry.first); }) > 0) return;
    const auto oldest = std::min_element(waiting_.begin(), waiting_.end(), [&](const auto& a, const auto& b) {
      return std::pair(a.second.host != host, a.second.since) < std::pair(b.second.host != host, b.second.since);
    });
    gone.push_back(oldest->first);
    waiting_.erase(oldest);
  }

  std::size_t (*files_)();
  std::map<LinkId, Waiting> waiting_;
};

}  // namespace collab
