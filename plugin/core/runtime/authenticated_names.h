// Names that peers have proved by certificates, by link. Without certificates, any name is accepted.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "collab/types.h"
#include "core/base/text.h"
#include "core/protocol/formatting.h"

namespace collab {

class AuthenticatedNames {
 public:
  void put(LinkId link, std::vector<std::string> names) { names_[link] = std::move(names); }
  void closed(LinkId link) { names_.erase(link); }

  // Why the peer cannot be the site `name`; empty: it may be.
  [[nodiscard]] std::string difference(LinkId link, const std::string& name) const {
    const auto found = names_.find(link);
    if (found == names_.end() || std::ranges::find(found->second, name) != found->second.end()) return {};
    std::vector<std::string> quoted;
    for (const std::string& each : found->second) quoted.push_back(json_quote(each));
    return "its certificate is that of " + protocol::join_words(quoted) + ", and it says that it is " +
           json_quote(name) +
           ": set COLLAB_SITE to the certificate's name, or make it one with this name [tls.other-name]";
  }

 private:
  std::map<LinkId, std::vector<std::string>> names_;
};

}  // namespace collab
