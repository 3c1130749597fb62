#include "tools/page/shares.h"

#include <algorithm>

namespace collab::page {

bool Shares::allow(TimePoint now, const std::string& network, bool known) {
  OfNetworks& shares = known ? known_ : strangers_;
  const double rate = known ? kKnownASecond : kStrangersASecond;
  auto found = shares.find(network);
  if (found == shares.end()) {
    // A forgotten network starts with a full share again, most of which it had regained anyway.
    if (shares.size() == kMaxNetworks) {
      shares.erase(std::ranges::min_element(shares, {}, [](const auto& each) { return each.second.asked; }));
    }
    found = shares.emplace(network, Share{RateLimit(rate, rate), now}).first;
  }
  found->second.asked = now;
  return found->second.left.allow(now).has_value();
}

}  // namespace collab::page
