// A rank's link to the collective hub of its world: the loop thread that connects clock and transport to the HubClient
// machine. The hub is in the coordinator (coordinator_server.cpp).
//
// Threads: the loop thread owns the machine and the link, and sleeps between heartbeats; every method may be called
// from any other thread. Done callbacks run on the loop thread and must not block.
// Ownership: owns transport and machine; payloads are shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collab/config.h"
#include "core/base/rate_limit.h"
#include "core/protocol/collectives/hub_client.h"
#include "core/runtime/hub_callers.h"
#include "core/runtime/mailbox.h"

namespace collab {

class HubLink {
 public:
  struct Options {
    Config config;
    std::uint64_t world = 0;  // the same at all its ranks; one of them draws it at random
    std::uint32_t rank = 0;
    std::vector<std::string> sites;      // names
    std::vector<std::uint32_t> site_of;  // for each rank, its index into sites
    std::vector<std::string> hubs;       // "host:port" of the coordinators, in order
  };
  using Done = HubCallers::Done;

  // Blocks until a hub has let this rank in, up to the join time-out.
  static Result<std::unique_ptr<HubLink>> enter(const Options& options, std::unique_ptr<Transport> transport);
  ~HubLink();
  HubLink(const HubLink&) = delete;
  HubLink& operator=(const HubLink&) = delete;

  void open(protocol::OpenGroup group);
  // Calls under way in the group fail.
  void close(GroupId group);
  // This rank's part in the group's next step. A group's steps run one after another. Request ids are assigned here.
  void exchange(protocol::HubRequest request, Done done);
  [[nodiscard]] protocol::HubExchanged exchange(protocol::HubRequest request);
  // The index of the member that sends to this rank in this group with this tag.
  [[nodiscard]] Result<std::uint32_t> resolve(GroupId group, std::uint32_t tag, Duration timeout);
  // Tells the hub that no rank should wait for this one any more. Bounded and idempotent.
  void leave(const std::string& reason);

  [[nodiscard]] std::size_t ranks() const { return ranks_; }  // in the world
  [[nodiscard]] BufferPtr take(std::size_t bytes) { return pool_->take(bytes); }

 private:
  static constexpr double kLinesAtOnce = 5;
  static constexpr double kLinesASecond = 0.1;
  HubLink(const Options& options, std::unique_ptr<Transport> transport);
  void loop();
  void handle(LoopEvent event);
  void on_message(LinkId link, TransportMessage message);
  void feed(const protocol::HubClientEvent& event);
  void log_limited(const std::string& line);

  void act(const protocol::DialHub& action);
  void act(const protocol::HubSend& action);
  void act(const protocol::CloseLink& action);
  void act(const protocol::HubExchanged& action);
  void act(const protocol::SenderResolved& action);
  void act(const protocol::HubEntered& action);
  void act(const protocol::HubBroken& action);
  void act(const protocol::Note& action);

  // ---- fixed after enter()
  std::vector<std::string> hubs_;
  std::size_t ranks_ = 0;
  Duration dial_timeout_;
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();

  // ---- any thread
  Mailbox mailbox_;

  // ---- loop thread only
  SteadyClock clock_;
  protocol::HubClient machine_;
  TimePoint trim_at_{};  // when to trim the pool
  std::optional<LinkId> dialing_;
  std::optional<LinkId> closing_;
  HubCallers calls_;
  RateLimit told_{kLinesAtOnce, kLinesASecond};  // log lines that the hub can cause

  // ---- last, so that they stop first
  std::unique_ptr<Transport> transport_;
  std::thread thread_;
};

}  // namespace collab
