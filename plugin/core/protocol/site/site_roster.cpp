#include "core/protocol/site/site_roster.h"

namespace collab::protocol {

const wire::Member* SiteRoster::find(SiteId site) const {
  const auto found = members_.find(site);
  return found == members_.end() ? nullptr : &found->second;
}

const Digest* SiteRoster::key_of(SiteId site) const {
  const auto found = keys_.find(site);
  return found == keys_.end() ? nullptr : &found->second;
}

bool SiteRoster::is_key_of(SiteId site, const Digest& key) const {
  const Digest* const known = key_of(site);
  return known != nullptr && *known == key;
}

void SiteRoster::replace(const std::vector<wire::Member>& members) {
  members_.clear();
  for (const wire::Member& member : members) members_[member.site] = member;
  std::erase_if(keys_, [this](const auto& entry) { return !lists(entry.first); });
}

}  // namespace collab::protocol
