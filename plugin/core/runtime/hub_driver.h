// Connects the collective hub to its links: ranks' messages become events, and the hub's messages are sent. A rank's
// link is closed if too much data waits for the rank.
//
// Threads: one caller at a time. Ownership: owns the hub; borrows transport, links and the observer of its notes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "core/base/trim_debt.h"
#include "core/protocol/collectives/collective_hub.h"
#include "core/runtime/hub_outgoing.h"
#include "core/runtime/link_admission.h"

namespace collab {

class HubDriver {
 public:
  using Noted = std::function<void(const protocol::Note&)>;
  HubDriver(protocol::HubConfig config, Transport& transport, LinkAdmission& links, Noted noted)
      : hub_(std::move(config)), transport_(transport), links_(links), noted_(std::move(noted)) {}

  [[nodiscard]] const protocol::CollectiveHub& hub() const { return hub_; }
  void feed(TimePoint now, const protocol::HubEvent& event);
  // `host`: the sender's network; empty if that is this machine or not known.
  void arrived(TimePoint now, LinkId link, wire::Message message, BufferPtr payload, std::string host);
  void sent(LinkId link, std::uint64_t token) { outgoing_.taken(link, token); }
  void closed(LinkId link) { outgoing_.closed(link); }

  // The calls under way, for the coordinator, if they have changed. While no site waits for a round, there are none:
  // those of the last round would split the next. `changes`: how often the members have changed.
  [[nodiscard]] std::optional<protocol::CallsUnderWay> news_of_calls(bool waits, std::uint64_t changes,
                                                                     const protocol::CollectiveHub::SitesOf& sites_of);

 private:
  void act(const protocol::HubSend& action);
  void act(const protocol::CloseLink& action) { links_.close_link(action.link); }
  void act(const protocol::Note& action) { noted_(action); }

  protocol::CollectiveHub hub_;
  Transport& transport_;
  LinkAdmission& links_;
  const Noted noted_;
  HubOutgoing outgoing_;
  TrimDebt trims_;
  protocol::CallsUnderWay calls_;                                // as last told to the coordinator
  std::tuple<bool, std::uint64_t, std::uint64_t> calls_seen_{};  // what `calls_` was made from
};

}  // namespace collab
