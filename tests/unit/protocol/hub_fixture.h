// A collective hub that a test drives by hand, and its answers.
//
// Threads: one. Ownership: everything; payloads come from one pool.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/collectives/hub_limits.h"

namespace collab::protocol::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// Numbers of groups, and the first ranks of a world.
[[nodiscard]] inline std::vector<GroupId> groups(std::uint64_t count) {
  std::vector<GroupId> all;
  for (std::uint64_t i = 0; i < count; ++i) all.emplace_back(2 + 2 * i);  // no twins
  return all;
}
[[nodiscard]] inline std::vector<RankId> ranks(std::uint32_t count) {
  std::vector<RankId> all;
  for (std::uint32_t i = 0; i < count; ++i) all.emplace_back(i);
  return all;
}

class HubFixture {
 public:
  // Rank i stands at site i % `sites`. Rank i of world w comes by link 1000 * w + i + 1, unless another is named.
  [[nodiscard]] static wire::Enter enter(std::uint32_t rank, std::uint32_t ranks, std::uint64_t world = 1,
                                         std::uint32_t sites = 2) {
    wire::Enter message;
    message.swarm = "default";
    message.world = world;
    message.rank = RankId(rank);
    for (std::uint32_t i = 0; i < sites; ++i) message.sites.push_back("site" + std::to_string(i));
    for (std::uint32_t i = 0; i < ranks; ++i) message.site_of.push_back(i % sites);
    message.acceptor = AcceptorId(1 + rank);
    return message;
  }
  [[nodiscard]] static LinkId link_of(std::uint32_t rank, std::uint64_t world = 1) {
    return LinkId(1000 * world + rank + 1);
  }
  [[nodiscard]] static wire::Contribute contribute(GroupId group, std::uint64_t step = 1) {
    return {group, step, 0, "sum", "[4]", wire::Absence::kProceeds, 0, true, false, 0, {}};
  }

  // Of all that is said from now on.
  void from(std::string host) { host_ = std::move(host); }
  // Why the link is refused; empty: it is not.
  std::string says(LinkId link, wire::Message message, std::size_t payload = 0) {
    BufferPtr buffer = payload == 0 ? nullptr : pool_->take(payload);
    std::string why;
    std::vector<LinkId> closed;
    sent_ = 0;
    error_.clear();
    for (const HubAction& action : hub_.step(now_, HubReceived{link, std::move(message), std::move(buffer), host_})) {
      if (const auto* note = std::get_if<Note>(&action)) lines_.push_back(note->text);
      if (const auto* hangup = std::get_if<CloseLink>(&action)) closed.push_back(hangup->link);
      const auto* send = std::get_if<HubSend>(&action);
      if (send == nullptr) continue;
      ++sent_;
      keep_error(*send);
      const auto* refuse = std::get_if<wire::Refuse>(&send->message);
      if (refuse != nullptr && send->link == link) why = refuse->reason;
    }
    for (const LinkId each : closed) close(each);
    return why;
  }
  std::string says(std::uint32_t rank, wire::Message message, std::size_t payload = 0) {
    return says(link_of(rank), std::move(message), payload);
  }
  void close(LinkId link) { (void)hub_.step(now_, Closed{link, {}}); }
  void pass(Duration time) {
    now_ += time;
    error_.clear();
    for (const HubAction& action : hub_.step(now_, Tick{})) {
      if (const auto* send = std::get_if<HubSend>(&action)) keep_error(*send);
    }
  }
  // Ranks [0, count) of a world of as many, all in one group of each of these numbers.
  void gather(std::uint32_t count, const std::vector<GroupId>& groups) {
    std::vector<RankId> members;
    for (std::uint32_t i = 0; i < count; ++i) {
      (void)says(i, enter(i, count));
      members.emplace_back(i);
    }
    for (const GroupId group : groups) {
      for (std::uint32_t i = 0; i < count; ++i) (void)says(i, wire::Assemble{group, members});
    }
  }

  [[nodiscard]] const CollectiveHub& hub() const { return hub_; }
  [[nodiscard]] std::size_t pool_bytes() const { return pool_->bytes_held(); }
  void trim() { pool_->trim(); }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] std::size_t sent() const { return sent_; }
  [[nodiscard]] const std::string& error() const { return error_; }  // of a step, in what was sent last

 private:
  void keep_error(const HubSend& send) {
    if (const auto* result = std::get_if<wire::StepResult>(&send.message)) error_ = result->error;
  }

  TimePoint now_{std::chrono::hours(1)};
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  CollectiveHub hub_{{"default", std::chrono::seconds(1), std::chrono::seconds(60), std::chrono::seconds(300), 50}};
  std::vector<std::string> lines_;
  std::size_t sent_ = 0;
  std::string error_;
  std::string host_;
};

}  // namespace collab::protocol::testing
