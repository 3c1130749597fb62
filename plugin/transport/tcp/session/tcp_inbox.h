// What has arrived on one lane of a link: segments in their places, and messages, handed on whole and in order.
//
// A segment may come over any connection and more than once. The first whole copy counts. While one copy is written
// into its place, no second one is: the newer connection takes over the place.
// What a peer may make this process hold is limited, for both lanes of a link together. The window limits numbers, and
// kMaxAssemblyBytes limits announced messages. Memory grows as bytes arrive, up to kMaxUnfinishedBytes and a budget for
// all links.
// Threads: one at a time. Ownership: holds unfinished messages; takes payload buffers from the pool.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collab/transport.h"
#include "transport/tcp/session/tcp_outbox.h"
#include "transport/tcp/wire/tcp_wire.h"

namespace collab::tcp {

// What unfinished messages may announce: the window, with a message over each of its ends.
inline constexpr std::size_t kMaxAssemblyBytes = kWindowBytes + 2 * (kMaxPayloadBytes + kMaxHeadBytes);
// What may have arrived of them, on both lanes of a link. An honest peer may have sent this much ahead of the first
// missing byte, and of the message of that byte.
inline constexpr std::size_t kMaxUnfinishedBytes = kWindowBytes + kMaxPayloadBytes + 2 * kMaxHeadBytes;
// For all links of a process. Beyond it no link may hold more than its share.
inline constexpr std::size_t kMaxUnfinishedInAll = std::size_t{512} << 20;

// What has arrived of unfinished messages over several links.
struct UnfinishedBytes {
  std::size_t held = 0;
  std::size_t links = 0;
  std::size_t most = kMaxUnfinishedInAll;
};

// A link's part of it, over both lanes.
class UnfinishedShare {
 public:
  explicit UnfinishedShare(std::shared_ptr<UnfinishedBytes> all) : all_(std::move(all)) { ++all_->links; }
  ~UnfinishedShare() {
    all_->held -= held_;
    --all_->links;
  }
  UnfinishedShare(const UnfinishedShare&) = delete;
  UnfinishedShare& operator=(const UnfinishedShare&) = delete;

  // False: more than the link may hold, or announce.
  [[nodiscard]] bool take(std::size_t bytes);
  [[nodiscard]] bool announce(std::size_t bytes);
  void finished(std::size_t announced, std::size_t taken);
  [[nodiscard]] std::size_t in_all() const { return all_->most; }

 private:
  const std::shared_ptr<UnfinishedBytes> all_;
  std::size_t held_ = 0;
  std::size_t announced_ = 0;
};

class Inbox {
 public:
  Inbox(Lane lane, std::shared_ptr<BufferPool> pool, std::shared_ptr<UnfinishedShare> share)
      : lane_(lane), pool_(std::move(pool)), share_(std::move(share)) {}

  struct Place {
    std::span<std::byte> data;
    ConnectionId taken_from = 0;  // this connection was writing there and must forget the place
  };
  // Nothing for a segment that has arrived before. kCorrupt: it is outside the window, or contradicts another segment.
  Result<std::optional<Place>> begin(const SegmentHeader& header, ConnectionId carrier);
  // The place is full. Complete messages are added to `messages`, in order.
  Status end(const SegmentHeader& header, std::vector<TransportMessage>& messages);
  // The connection ended before its segment did.
  void lost(ConnectionId carrier);

  [[nodiscard]] LaneArrivals arrivals() const;

 private:
  struct Assembly {
    TransportMessage message;
    std::size_t total = 0;
    std::size_t have = 0;
    std::size_t held = 0;  // counted in the share
    std::uint32_t head_bytes = 0;
    std::map<std::uint32_t, std::vector<std::byte>> head;  // by offset, as they come
    std::map<std::uint32_t, SegmentHeader> begun;          // by offset; they never overlap
  };

  [[nodiscard]] bool has(std::uint64_t number) const;
  Result<Assembly*> assembly_of(const SegmentHeader& header);
  Status note_begun(Assembly& assembly, const SegmentHeader& header);

  const Lane lane_;
  const std::shared_ptr<BufferPool> pool_;
  const std::shared_ptr<UnfinishedShare> share_;
  std::uint64_t below_ = 0;
  std::deque<bool> beyond_;                          // from below_ on; the first is false
  std::map<std::uint64_t, ConnectionId> under_way_;  // segments being written
  std::map<std::uint64_t, Assembly> unfinished_;
  std::uint64_t next_message_ = 0;
};

}  // namespace collab::tcp
