// Accepted links of members, ranks and other sites. Each link is an open file, and one peer may claim any number of
// names. So the bounds apply to hosts.
//
//   All links together have a bound, and each host has one of 1,024. Beyond a bound, the host with the most links loses
//   one: the latest that is not a voter's, else the latest. A host with no more than the least share loses none. If no
//   host has more, the new link is closed. If the new link is a voter's or comes from this machine, the latest link
//   that is neither is closed instead.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "collab/types.h"
#include "core/base/open_files.h"

namespace collab {

class AdmittedLinks {
 public:
  static constexpr std::size_t kMostOfHost = 1024;
  static constexpr std::size_t kLeastShare = 64;

  // The bound for all links is a quarter of the files that the process may have open.
  explicit AdmittedLinks(std::size_t (*files)() = most_open_files) : files_(files) {}

  // `network`: the host's; empty: this machine, whose links outlast all but voters'. `name`: the site that the peer
  // claims to be. `is_voter(name)`. Returns the link to close, which may be this one.
  template <typename IsVoter>
  [[nodiscard]] std::optional<LinkId> admit(LinkId link, std::string network, std::string name, IsVoter is_voter) {
    closed(link);
    const std::size_t own = ++hosts_[network];
    links_[link] = {std::move(network), std::move(name), ++came_};
    const Link& taken = links_.at(link);
    if (own > kMostOfHost && !taken.network.empty()) return last_of(&taken.network, is_voter);
    const std::size_t most_in_all = std::max<std::size_t>(1, files_() / 4);
    if (links_.size() <= most_in_all) return std::nullopt;
    const std::string* greedy = nullptr;
    std::pair<std::size_t, bool> most;  // on a tie, the new link's host
    for (const auto& [host, count] : hosts_) {
      const std::pair each(count, host == taken.network);
      if (host.empty() || (greedy != nullptr && each <= most)) continue;
      greedy = &host;
      most = each;
    }
    const bool may_go = most.first > std::min(kLeastShare, most_in_all / 4);
    return last_of(may_go ? greedy : nullptr, is_voter);
  }
  [[nodiscard]] bool has(LinkId link) const { return links_.contains(link); }
  void closed(LinkId link) {
    const auto taken = links_.extract(link);
    if (!taken) return;
    const auto host = hosts_.find(taken.mapped().network);
    if (--host->second == 0) hosts_.erase(host);
  }

 private:
  struct Link {
    std::string network, name;
    std::uint64_t order = 0;
  };

  // The link to close: from `network`, or from any host if that is null.
  template <typename IsVoter>
  [[nodiscard]] LinkId last_of(const std::string* network, IsVoter is_voter) const {
    const auto stays = [&](const Link& each) {  // the link with the smallest value is closed
      return std::tuple(is_voter(each.name), each.network.empty(), UINT64_MAX - each.order);
    };
    const std::pair<const LinkId, Link>* last = nullptr;
    for (const auto& each : links_) {
      if (network != nullptr && each.second.network != *network) continue;
      if (last == nullptr || stays(each.second) < stays(last->second)) last = &each;
    }
    return last->first;
  }

  std::size_t (*files_)();
  std::uint64_t came_ = 0;
  std::map<LinkId, Link> links_;
  std::map<std::string, std::size_t> hosts_;  // number of links
};

}  // namespace collab
