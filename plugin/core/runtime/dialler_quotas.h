// For each link that was dialled to a coordinator: its peer's network, and how many requests the peer may make.
// Requests that need an answer are limited per second; those beyond the limit are ignored.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/base/rate_limit.h"
#include "core/wire/messages.h"

namespace collab {

class DiallerQuotas {
 public:
  static constexpr double kStatusesOfLink = 4;
  static constexpr double kStatusesOfHost = 16;
  static constexpr double kStatusesInAll = 64;  // without this machine's
  static constexpr std::size_t kFewHosts = 256;
  static constexpr double kSmallQuestionsOfLink = 20;  // Inquire and Forget; a site asks at each heartbeat

  // `network`: the host's; empty: this machine.
  void on_accepted(LinkId link, std::string network) { links_[link].network = std::move(network); }
  void closed(LinkId link) { links_.erase(link); }
  // Empty: this machine, or not known.
  [[nodiscard]] std::string network(LinkId link) const {
    const auto found = links_.find(link);
    return found == links_.end() ? std::string() : found->second.network;
  }

  [[nodiscard]] bool may_ask(TimePoint now, LinkId link, const wire::Message& message) {
    Dialler& dialler = links_[link];
    if (std::holds_alternative<wire::StatusQuery>(message)) {
      return dialler.statuses.allow(now).has_value() && may_ask_status(now, dialler.network);
    }
    const bool small = std::holds_alternative<wire::Inquire>(message) || std::holds_alternative<wire::Forget>(message);
    return !small || dialler.small_questions.allow(now).has_value();
  }
  [[nodiscard]] std::size_t hosts() const { return hosts_.size(); }  // hosts that are remembered

 private:
  struct Dialler {
    std::string network;
    RateLimit statuses{kStatusesOfLink, kStatusesOfLink};
    RateLimit small_questions{kSmallQuestionsOfLink, kSmallQuestionsOfLink};
  };

  // Each host has its own limit. This machine's requests do not count towards the limit of all.
  [[nodiscard]] bool may_ask_status(TimePoint now, const std::string& network) {
    if (hosts_.size() > kFewHosts) {
      std::erase_if(hosts_, [now](auto each) { return each.second.would_allow(now, kStatusesOfHost); });
    }
    RateLimit& host = hosts_.try_emplace(network, kStatusesOfHost, kStatusesOfHost).first->second;
    if (!host.would_allow(now, 1) || !(network.empty() || in_all_.would_allow(now, 1))) return false;
    host.spend(1);
    if (!network.empty()) in_all_.spend(1);
    return true;
  }

  std::map<LinkId, Dialler> links_;
  std::map<std::string, RateLimit> hosts_;  // by network
  RateLimit in_all_{kStatusesInAll, kStatusesInAll};
};

}  // namespace collab
