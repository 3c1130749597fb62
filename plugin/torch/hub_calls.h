// Exchanges bytes between the ranks of one group over the collective hub; collectives are built from these calls.
//
// Bytes that do not fit one step of the hub (step_bytes of core/protocol/collectives/hub_limits.h) go in several steps.
// So neither the hub nor a rank ever holds more than two steps for a group. Threads: one caller at a time for each
// group; calls block up to their deadline. Ownership: shares the rank's link; closes the group on destruction.
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
  using Living = std::vector<bool>;  // by member: its part arrived
  // Receives bytes [offset, offset + part.size()) of member `from`.
  using Sink = std::function<void(std::size_t from, std::size_t offset, ConstBytes part)>;

  // What all members must give alike; `shape` is for error messages.
  struct Call {
    std::string operation;
    std::string shape;
    Deadline deadline;
    std::uint64_t number = 0;  // see wire::Contribute, `call`
  };

  // members[rank] is this process; members are ranks of the world.
  HubCalls(std::shared_ptr<HubLink> hub_link, std::uint64_t group, std::vector<RankId> members, std::size_t rank);
  ~HubCalls();
  HubCalls(const HubCalls&) = delete;
  HubCalls& operator=(const HubCalls&) = delete;

  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] std::size_t rank() const { return rank_; }

  // Each call throws c10::Error with the hub's words. All members give equally many bytes. Unless `wants` is false,
  // `sink` is called for every member whose part arrived, including this one.
  Living gather(const Call& call, ConstBytes mine, wire::Absence absence, bool wants, const Sink& sink);
  void broadcast(const Call& call, std::size_t root, Bytes bytes);
  // At the root, `parts` has one part per member, each as long as `out`.
  void scatter(const Call& call, std::size_t root, const std::vector<ConstBytes>& parts, Bytes out);
  // `longest` is the length of the longest part of any member, known from equal splits or from an earlier gather().
  void all_to_all(const Call& call, const std::vector<ConstBytes>& in, const std::vector<Bytes>& out,
                  std::size_t longest);
  Living barrier(const Call& call);
  // This rank is alive, but gives nothing to the group's next gather().
  void pass(const Call& call, std::size_t bytes);

  // One call at a time for each (peer, tag).
  void send(const Call& call, std::size_t to, std::uint32_t tag, ConstBytes bytes);
  void receive(const Call& call, std::size_t from, std::uint32_t tag, Bytes bytes);
  // Makes waiting calls and all later ones fail.
  void close();
  [[nodiscard]] std::size_t resolve(const Call& call, std::uint32_t tag);

 private:
  [[nodiscard]] std::size_t chunk_bytes(std::size_t contributors, bool split) const;
  [[nodiscard]] protocol::HubRequest request(const Call& call, wire::Absence absence, std::size_t root) const;
  [[nodiscard]] protocol::Payload payload_of(ConstBytes bytes) const;
  [[nodiscard]] protocol::HubExchanged exchange(protocol::HubRequest request) const;
  // A group of two members for one message: the next one between them with this tag. Both close it once the message has
  // arrived, so that nothing of a tag stays at the hub.
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
  std::mutex mutex_;  // guards the members below
  bool closed_ = false;
  std::set<GroupId> letters_;                                                             // in progress
  std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, std::uint64_t> counted_;  // messages, by from, to, tag
};

[[nodiscard]] HubCalls::Bytes bytes_of(const at::Tensor& contiguous);

}  // namespace collab::torch_adapter
