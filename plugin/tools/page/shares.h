// Limits the requests of each network. Viewers with the password and viewers without it have separate shares, so that a
// stranger behind the same proxy takes nothing from a viewer.
//
// Threads: one caller at a time. Ownership: owns a share for each network that asked last.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "collab/clock.h"
#include "core/base/rate_limit.h"

namespace collab::page {

class Shares {
 public:
  static constexpr double kKnownASecond = 100, kStrangersASecond = 20;
  static constexpr std::size_t kMaxNetworks = 1024;  // of each kind

  // `known`: the client has the password, or there is none.
  [[nodiscard]] bool allow(TimePoint now, const std::string& network, bool known);

 private:
  struct Share {
    RateLimit left;
    TimePoint asked;
  };
  using OfNetworks = std::map<std::string, Share>;

  OfNetworks known_, strangers_;
};

}  // namespace collab::page
