// The members, as the coordinator has told this site, and the keys by which members recognise each other.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstddef>
#include <map>

#include "core/wire/messages.h"

namespace collab::protocol {

class SiteRoster {
 public:
  [[nodiscard]] const std::map<SiteId, wire::Member>& members() const { return members_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] bool lists(SiteId site) const { return members_.count(site) != 0; }
  [[nodiscard]] const wire::Member* find(SiteId site) const;  // null: it is not listed
  [[nodiscard]] bool is_key_of(SiteId site, const Digest& key) const;
  [[nodiscard]] const Digest* key_of(SiteId site) const;  // null: not known

  void replace(const std::vector<wire::Member>& members);
  void forget_members() { members_.clear(); }  // their keys hold until the next list
  void learn(const wire::Key& key) { keys_[key.site] = key.key; }

 private:
  friend struct Inside;
  std::map<SiteId, wire::Member> members_;
  std::map<SiteId, Digest> keys_;
};

}  // namespace collab::protocol
