// A coordinator's test dials: they show whether members can be reached at the addresses that they report. A limited
// number run at once, in the order of the requests. None runs for a member that has gone.
//
// Threads: one caller at a time. Ownership: plain values; the caller dials and closes.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collab/types.h"

namespace collab {

class AddressProbes {
 public:
  static constexpr std::size_t kAtOnce = 64;

  struct Probe {
    LinkId member;
    bool answered = false;
  };
  struct Wanted {
    LinkId member;
    std::string address;
  };
  void want(LinkId member, std::string address) { wanted_.push_back({member, std::move(address)}); }
  // The next address to dial; the caller then calls begun().
  [[nodiscard]] std::optional<Wanted> next() {
    if (wanted_.empty() || dialled_.size() >= kAtOnce) return std::nullopt;
    Wanted first = std::move(wanted_.front());
    wanted_.pop_front();
    return first;
  }
  void begun(LinkId probe, LinkId member) { dialled_[probe] = {member, false}; }
  // The address answers, however the link ends later.
  void answered(LinkId probe) {
    if (const auto found = dialled_.find(probe); found != dialled_.end()) found->second.answered = true;
  }
  // nullopt: the link is no probe, or its member has gone.
  [[nodiscard]] std::optional<Probe> ended(LinkId probe) {
    const auto found = dialled_.extract(probe);
    return found ? std::optional(found.mapped()) : std::nullopt;
  }
  // Returns the probes to close.
  [[nodiscard]] std::vector<LinkId> member_gone(LinkId member) {
    std::erase_if(wanted_, [&](const Wanted& wanted) { return wanted.member == member; });
    std::vector<LinkId> probes;
    std::erase_if(dialled_, [&](const auto& each) {
      if (each.second.member == member) probes.push_back(each.first);
      return each.second.member == member;
    });
    return probes;
  }

 private:
  std::deque<Wanted> wanted_;  // bounded, as members are
  std::map<LinkId, Probe> dialled_;
};

}  // namespace collab
