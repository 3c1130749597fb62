// Receives one lane of a link: puts segments in their places, and hands on messages whole and in order.
//
// A segment may come over any connection and more than once. The first whole copy counts. Only one connection at a time
// writes to a place: the newer one takes it over.
// Limits how much memory a peer can take, for both lanes of a link together. The window limits segment numbers, and
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

// The most bytes that unfinished messages may announce: the window, with a message across each of its ends.
inline constexpr std::size_t kMaxAssemblyBytes = kWindowBytes + 2 * (kMaxPayloadBytes + kMaxHeadBytes);
// The most bytes of unfinished messages that may have arrived, on both lanes of a link. An honest peer may have sent
// this much after the first missing byte and in that byte's message.
inline constexpr std::size_t kMaxUnfinishedBytes = kWindowBytes + kMaxPayloadBytes + 2 * kMaxHeadBytes;
// The same for all links of a process. Beyond this, no link may hold more than its share.
inline constexpr std::size_t kMaxUnfinishedInAll = std::size_t{512} << 20;

// The arrived bytes of unfinished messages, over all links.
struct UnfinishedBytes {
  std::size_t held = 0;
  std::size_t links = 0;
  std::size_t most = kMaxUnfinishedInAll;
};

// A link's part of UnfinishedBytes, for both lanes.
class UnfinishedShare {
 public:
  explicit UnfinishedShare(std::shared_ptr<UnfinishedBytes> all) : all_(std::move(all)) { ++all_->links; }
  ~UnfinishedShare() {
    all_->held -= held_;
    --all_->links;
  }
  UnfinishedShare(const UnfinishedShare&) = delete;
  UnfinishedShare& operator=(const UnfinishedShare&) = delete;

  // False: the link would hold, or announce, more than it may.
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
  // Nothing for a segment that has arrived before. kCorrupt: the segment is outside the window, or contradicts another
  // one.
  Result<std::optional<Place>> begin(const SegmentHeader& header, ConnectionId carrier);
  // The segment has been written to its place. Adds complete messages to `messages`, in order.
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
    std::map<std::uint32_t, std::vector<std::byte>> head;  // parts by offset, as they arrive
    std::map<std::uint32_t, SegmentHeader> begun;          // segments by offset; they never overlap
  };

  [[nodiscard]] bool has(std::uint64_t number) const;
  Result<Assembly*> assembly_of(const SegmentHeader& header);
  Status note_begun(Assembly& assembly, const SegmentHeader& header);

  const Lane lane_;
  const std::shared_ptr<BufferPool> pool_;
  const std::shared_ptr<UnfinishedShare> share_;
  std::uint64_t below_ = 0;
  std::deque<bool> beyond_;                          // what arrived, from below_ on; the first is false
  std::map<std::uint64_t, ConnectionId> under_way_;  // segments being written
  std::map<std::uint64_t, Assembly> unfinished_;
  std::uint64_t next_message_ = 0;
};

}  // namespace collab::tcp
