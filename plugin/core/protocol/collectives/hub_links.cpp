#include "core/protocol/collectives/hub_links.h"

#include "core/protocol/collectives/hub_parts.h"

namespace collab::protocol {

const HubLinks::Place* HubLinks::find(LinkId link) const {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &found->second;
}

void HubLinks::refuse(LinkId link, const std::string& why) {
  all_.note(Note::Level::kWarning, "refused", "the world's collectives refuse a rank: " + why);
  all_.send(link, wire::Refuse{why});
  hang_up(link, why);
}

void HubLinks::hang_up(LinkId link, const std::string& why) {
  if (link.value == 0) return;
  forget(link);
  hung_up_.insert(link);
  all_.out.emplace_back(Hangup{link, why});
}

void HubLinks::on_closed(LinkId link) {
  hung_up_.erase(link);
  forget(link);
}

void HubLinks::forget(LinkId link) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  all_.worlds.at(found->second.world).ranks.lose_link(found->second.rank);
  links_.erase(found);
}

}  // namespace collab::protocol
