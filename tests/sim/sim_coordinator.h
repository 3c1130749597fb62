// The coordinator of a simulated swarm: the protocol's Coordinator on a virtual network.
//
// Threads: one. Ownership: owns its machine and its end of the network; borrows network and checkers.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/coordinator/coordinator.h"
#include "tests/sim/sim_site.h"

namespace collab::sim {

class SimCoordinator final : public TransportHandler {
 public:
  SimCoordinator(protocol::CoordinatorConfig config, std::string process, const std::string& address, Mutation mutation,
                 Network& network, Checkers& checkers, SimSite::Log log, SimWorld* world = nullptr);

  [[nodiscard]] NodeId node() const { return transport_.node(); }
  [[nodiscard]] std::string status() const { return coordinator_.status_json(clock_.now()); }
  [[nodiscard]] const std::string& process() const { return process_; }
  [[nodiscard]] std::size_t members() const { return coordinator_.members(); }
  [[nodiscard]] std::size_t knows() const;  // bytes
  [[nodiscard]] bool dead() const { return dead_; }
  void kill() { dead_ = true; }
  // Its next commit reaches one member only: then `both_die` is called with that member.
  void die_at_commit(std::function<void(SiteId)> both_die) { both_die_ = std::move(both_die); }
  // What it says it waits for.
  void on_waiting(std::function<void(const std::string&)> reader) { reader_ = std::move(reader); }
  // A membership that only that site is told, on its own word, binds no other.
  void distrust(std::string site) { distrusted_ = std::move(site); }
  // What an operator says.
  void forget(std::vector<std::string> sites);
  // Like an operator that reads its status.
  void forget_missing() { forget(coordinator_.status(clock_.now()).missing); }
  // Like the hub beside it.
  void tell_calls(protocol::CallsUnderWay calls) { step(std::move(calls)); }

  void on_accepted(LinkId, const std::string&) override {}
  void on_connected(LinkId) override {}
  void on_sent(LinkId, std::uint64_t) override {}
  void on_message(LinkId link, TransportMessage message) override;
  void on_closed(LinkId link, Status why) override;

 private:
  void step(const protocol::CoordinatorEvent& event);
  void step_hub(const protocol::HubEvent& event);
  void follow_calls();
  [[nodiscard]] std::vector<protocol::CoordinatorAction> told_to_others(
      const protocol::CoordinatorEvent& event, std::vector<protocol::CoordinatorAction> actions);
  bool send(LinkId link, const wire::Message& message);
  void forge(const wire::Done& done);

  protocol::CoordinatorConfig config_;
  std::string process_;
  std::function<void(SiteId)> both_die_;
  std::function<void(const std::string&)> reader_;
  Mutation mutation_;
  Network& network_;
  Checkers& checkers_;
  SimSite::Log log_;
  SimTransport transport_;
  SimClock clock_;
  protocol::Coordinator coordinator_;
  std::optional<SimHub> hub_;
  protocol::CallsUnderWay calls_;  // the calls at the hub that the coordinator was last told of
  bool dead_ = false;
  std::size_t kept_ = 0;  // bytes, by the mutation that keeps what it has no use for
  std::string distrusted_;
  std::set<LinkId> distrusted_links_;
  std::map<SiteId, LinkId> links_;  // for the mutation that forges a Done
  std::set<std::pair<RoundId, AttemptId>> forged_;
};

}  // namespace collab::sim
