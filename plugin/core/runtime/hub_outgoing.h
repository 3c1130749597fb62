// The memory that a hub's links hold for their ranks: data that the hub has sent and released, but the ranks have not
// taken.
//
// While the hub holds a part, the part counts for its contributor (hub_budget.h), however many links still send it. The
// hub drops the part when all ranks have said that they hold the step. Then it is kept only for links that still send
// it. If a rank told the truth, the part has arrived there by then. Other messages to a rank count from the first byte.
//
// Threads: one caller at a time; the buffers of parts end with their last owner. Ownership: no data on its way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/protocol/collectives/hub_actions.h"

namespace collab {

// A part as the hub holds it. Links share its bytes, so its destruction shows that the hub has released it.
class HeldPart final : public Buffer {
 public:
  explicit HeldPart(BufferPtr arrived) : arrived_(std::move(arrived)) {}
  [[nodiscard]] std::span<std::byte> bytes() override { return arrived_->bytes(); }
  [[nodiscard]] const BufferPtr& arrived() const { return arrived_; }

 private:
  BufferPtr arrived_;
};

class HubOutgoing {
 public:
  static constexpr std::size_t kMostOfLink = std::size_t{128} << 20;
  static constexpr std::size_t kMostInAll = std::size_t{512} << 20;
  static constexpr std::size_t kOfPair = 2048;  // bytes for two links: in a step of all, each rank hears of each other

  [[nodiscard]] static BufferPtr held(BufferPtr arrived) {
    return arrived == nullptr ? nullptr : std::make_shared<HeldPart>(std::move(arrived));
  }

  // A message with a head of `head` bytes will be sent: a HeldPart becomes the buffer that arrived. Returns the token.
  [[nodiscard]] std::uint64_t sends(LinkId link, std::size_t head, protocol::Payload& payload) {
    Message message{.head = head + kMessageCost, .slice = payload.bytes};
    if (payload.bytes != 0) {
      message.part = payload.buffer;
      message.whole = payload.buffer->bytes().size();
      if (const auto* part = dynamic_cast<const HeldPart*>(payload.buffer.get())) payload.buffer = part->arrived();
    }
    since_ += message.head + message.slice;
    ++messages_;
    links_[link].emplace(++last_token_, std::move(message));
    return last_token_;
  }
  void taken(LinkId link, std::uint64_t token) {
    const auto found = links_.find(link);
    if (found != links_.end()) messages_ -= found->second.erase(token);
  }
  void closed(LinkId link) {
    const auto found = links_.find(link);
    if (found == links_.end()) return;
    messages_ -= found->second.size();
    links_.erase(found);
  }

  // The approximate bytes of memory that sending the messages takes, apart from their payloads.
  [[nodiscard]] std::size_t cost() const { return messages_ * kMessageCost; }

  // The link to close, if any: one beyond its bound, or the one that holds most if all together are beyond theirs.
  // Checks only once enough was sent to be worth it. `is_left`: the link is being closed already.
  template <typename IsLeft>
  [[nodiscard]] std::optional<LinkId> too_much(IsLeft is_left) {
    if (since_ < std::max(kLookEach, messages_ * kMessageCost)) return std::nullopt;
    std::set<std::weak_ptr<Buffer>, std::owner_less<>> parts;
    std::size_t in_all = 0;
    Load most, longest;
    for (const auto& [link, messages] : links_) {
      Load load{.link = link};
      for (const auto& [token, message] : messages) {
        const bool let_go = message.whole != 0 && message.part.expired();
        load.sent += message.head + (let_go ? message.slice : 0);
        load.kept += message.head + (let_go ? message.whole : 0);
        in_all += message.head + (let_go && parts.insert(message.part).second ? message.whole : 0);
      }
      if (is_left(link)) continue;
      if (load.sent > longest.sent) longest = load;
      if (load.kept > most.kept) most = load;
    }
    const std::size_t links = links_.size();
    const bool all_too_much = in_all > std::max(kMostInAll, kOfPair * links * links) && most.kept > kMostInAll / links;
    if (longest.sent > kMostOfLink) return longest.link;
    if (all_too_much) return most.link;
    since_ = 0;
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kMessageCost = 512;
  static constexpr std::size_t kLookEach = std::size_t{16} << 20;

  struct Message {
    std::size_t head = 0;
    std::size_t slice = 0;  // bytes of the part that are sent
    std::size_t whole = 0;  // bytes of the part that are kept for it
    std::weak_ptr<Buffer> part{};
  };
  struct Load {
    LinkId link{};
    std::size_t sent = 0;
    std::size_t kept = 0;
  };
  std::map<LinkId, std::map<std::uint64_t, Message>> links_;  // by token
  std::size_t messages_ = 0;
  std::size_t since_ = 0;  // bytes sent since the last check
  std::uint64_t last_token_ = 0;
};

}  // namespace collab
