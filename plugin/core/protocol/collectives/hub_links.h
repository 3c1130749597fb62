// Which rank speaks on which link to the hub.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "collab/types.h"

namespace collab::protocol {

struct HubParts;

class HubLinks {
 public:
  struct Place {
    std::uint64_t world = 0;
    RankId rank;
    bool operator==(const Place&) const = default;
  };
  explicit HubLinks(HubParts& all) : all_(all) {}

  [[nodiscard]] bool knows(LinkId link) const { return links_.contains(link) || hung_up_.contains(link); }
  // What is on its way by it is no longer heard: its rank may have entered by another link since.
  [[nodiscard]] bool is_hung_up(LinkId link) const { return hung_up_.contains(link); }
  [[nodiscard]] const Place* find(LinkId link) const;

  void enter(LinkId link, const Place& place) { links_[link] = place; }
  void refuse(LinkId link, const std::string& why);
  void hang_up(LinkId link, const std::string& why);
  void on_closed(LinkId link);

 private:
  void forget(LinkId link);

  HubParts& all_;
  std::map<LinkId, Place> links_;
  std::set<LinkId> hung_up_;  // until they are closed
};

}  // namespace collab::protocol
