// Bytes between the ranks of one group over the collective hub: what each collective is made of.
//
// Bytes that do not fit one step of the collective hub (step_bytes of core/protocol/collectives/hub_limits.h) go in
// several steps. So neither the hub nor a rank ever holds more than two of them for a group. Threads: one caller at a
// time for each group; calls block up to their deadline. Ownership: shares the rank's link, and closes the group when
// it goes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/protocol/collectives/hub_limits.h"
#include "core/runtime/hub_link.h"
#include "torch/ordered_sum.h"

namespace collab::torch_adapter {

class HubCalls {
 public:
  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;
  using Living = std::vector<bool>;  // by member: its part is here
  // Bytes [offset, offset + part.size()) of what `from` brought.
  using Sink = std::function<void(std::size_t from, std::size_t offset, ConstBytes part)>;

  // What all members say alike; `shape` is for error messages.
  struct Call {
    std::string operation;
    std::string shape;
    Deadline deadline;
    std::uint64_t number = 0;  // see wire::Contribute, `call`
  };

  // members[rank] is this process; the numbers are ranks of the world.
  HubCalls(std::shared_ptr<HubLink> hub_link, std::uint64_t group, std::vector<RankId> members, std::size_t rank);
  ~HubCalls();
  HubCalls(const HubCalls&) = delete;
  HubCalls& operator=(const HubCalls&) = delete;

  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] std::size_t rank() const { return rank_; }

  // Each call throws c10::Error with the collective hub's words. All members bring as many bytes. `sink` is called for
  // every member that is here, including this one, unless `wants` is false.
  Living gather(const Call& call, ConstBytes mine, wire::Absence absence, bool wants, const Sink& sink);
  void broadcast(const Call& call, std::size_t root, Bytes bytes);
  // At the root `parts` has one for each member, all as long as `out`.
  void scatter(const Call& call, std::size_t root, const std::vector<ConstBytes>& parts, Bytes out);
  // `longest` is the longest part anywhere: equal splits, or what gather() has found out.
  void all_to_all(const Call& call, const std::vector<ConstBytes>& in, const std::vector<Bytes>& out,
                  std::size_t longest);
  Living barrier(const Call& call);
  // This rank is here and has nothing to give to the group's next gather().
  void pass(const Call& call, std::size_t bytes);

  // One after another for each (peer, tag).
  void send(const Call& call, std::size_t to, std::uint32_t tag, ConstBytes bytes);
  void receive(const Call& call, std::size_t from, std::uint32_t tag, Bytes bytes);
  // What waits here, and what is asked later, fails.
  void close();
  [[nodiscard]] std::size_t resolve(const Call& call, std::uint32_t tag);

 private:
  [[nodiscard]] std::size_t chunk_bytes(std::size_t contributors, bool split) const;
  [[nodiscard]] protocol::HubRequest request(const Call& call, wire::Absence absence, std::size_t root) const;
  [[nodiscard]] protocol::Payload payload_of(ConstBytes bytes) const;
  [[nodiscard]] protocol::HubExchanged exchange(protocol::HubRequest request) const;
  // A group of two for one message, the next from one to the other with this tag; both close it when the message has
  // come, so that of a tag nothing is left at the hub.
  class Letter {
   public:
    Letter(HubCalls& calls, std::size_t from, std::size_t to, std::uint32_t tag);
    ~Letter();
    Letter(const Letter&) = delete;
    Letter& operator=(const Letter&) = delete;
    [[nodiscard]] GroupId group() const { return group_; }

   private:
    HubCalls& calls_;
    GroupId group_;
  };

  std::shared_ptr<HubLink> hub_link_;
  GroupId group_;
  std::vector<RankId> members_;
  std::size_t rank_;
  std::mutex mutex_;  // guards what follows
  bool closed_ = false;
  std::set<GroupId> letters_;                                                             // under way
  std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, std::uint64_t> counted_;  // messages, by from, to, tag
};

[[nodiscard]] HubCalls::Bytes bytes_of(const at::Tensor& contiguous);

}  // namespace collab::torch_adapter
