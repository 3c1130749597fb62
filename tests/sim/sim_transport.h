// A host's end of the simulated network, as the one interface that the runtime sends through.
//
// Threads: as the network. Ownership: borrows the network, which outlives it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "tests/sim/claim.h"
#include "tests/sim/liar.h"
#include "tests/sim/network.h"

namespace collab::sim {

class SimTransport final : public Transport {
 public:
  explicit SimTransport(Network& network) : network_(network), node_(network.add()) {}
  ~SimTransport() override { network_.kill(node_, true); }
  SimTransport(const SimTransport&) = delete;
  SimTransport& operator=(const SimTransport&) = delete;

  [[nodiscard]] NodeId node() const { return node_; }

  [[nodiscard]] std::string name() const override { return "sim"; }
  [[nodiscard]] Abilities abilities() const override { return {.between_hosts = true, .sees_peer_death = true}; }
  Status start(TransportHandler* handler) override {
    network_.start(node_, handler);
    return {};
  }
  Result<std::string> listen(const std::string& address) override { return network_.listen(node_, address); }
  LinkId connect(const std::string& address, Duration timeout) override {
    return network_.connect(node_, address, timeout);
  }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    if (claim_ && !claim_->tell(message)) return;
    if (!lies()) return network_.send(node_, link, std::move(message), token);
    std::vector<TransportMessage> told = liar_->tell(link, std::move(message));
    if (told.empty() && token != 0) network_.swallow(node_, link, token);
    for (TransportMessage& each : told) network_.send(node_, link, std::move(each), token);
  }
  // What it sends from now until then is not all true.
  void lie(std::uint64_t seed, TimePoint until) {
    liar_.emplace(seed);
    lies_until_ = until;
  }
  [[nodiscard]] bool lies() const { return liar_ && network_.now() < lies_until_; }
  void claim(Claim claim) { claim_ = std::move(claim); }
  void close(LinkId link) override { network_.close(node_, link); }

 private:
  Network& network_;
  NodeId node_;
  std::optional<Claim> claim_;
  std::optional<Liar> liar_;
  TimePoint lies_until_{};
};

// The host's own: it may run too fast or too slow, and jump.
class SimClock final : public Clock {
 public:
  SimClock(const Network& network, NodeId node) : network_(network), node_(node) {}
  [[nodiscard]] TimePoint now() const override { return network_.local_time(node_); }

 private:
  const Network& network_;
  NodeId node_;
};

}  // namespace collab::sim
