// What one lane of a link still has to send. Messages are cut into segments. The outbox knows which segments have
// arrived, which are on their way over which connection, and which must be sent again.
//
//   queued message ──next()──▶ segment on a connection ──acknowledge()──▶ arrived; the message's last: its token is due
//                                   │        ▲      └──second_copy()──▶ on a second connection as well
//                                   └ lost() ┴ next(), before anything new
//
// A segment that was acknowledged is never sent again. Between the first that has not arrived and the newest lie at
// most kWindowSegments segments, and at most kWindowBytes bytes and one segment.
// Threads: one at a time. Ownership: holds each message until all of it has arrived and no connection still reads it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "collab/clock.h"
#include "collab/transport.h"
#include "transport/tcp/wire/tcp_wire.h"

namespace collab::tcp {

inline constexpr std::size_t kWindowBytes = kMaxPayloadBytes;
// About how much memory a message needs beyond its bytes.
inline constexpr std::size_t kMessageCost = 512;
// Control messages that wait for a peer to take them, and their cost. A peer that asks and does not read is given up.
// For all links of a process: beyond this no link may have more than its share.
inline constexpr std::size_t kMaxControlBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxControlInAll = std::size_t{256} << 20;
// For a slow connection, or one of many: small segments do not stay long on it.
inline constexpr std::size_t kSmallSegmentBytes = std::size_t{16} << 10;
using ConnectionId = std::uint64_t;  // names a connection, never twice; 0: none

// What waiting control messages hold, over several links.
struct ControlBytes {
  std::size_t held = 0;
  std::size_t links = 0;
  std::size_t in_all = kMaxControlInAll;
};

// A link's part of it.
class ControlShare {
 public:
  explicit ControlShare(std::shared_ptr<ControlBytes> all) : all_(std::move(all)) { ++all_->links; }
  ~ControlShare() {
    count(0);
    --all_->links;
  }
  ControlShare(const ControlShare&) = delete;
  ControlShare& operator=(const ControlShare&) = delete;

  void count(std::size_t held) {
    all_->held += held - held_;
    held_ = held;
  }
  // What may wait for the link, if so much more comes.
  [[nodiscard]] std::size_t most(std::size_t more) const {
    if (all_->held + more <= all_->in_all) return kMaxControlBytes;
    return std::min(kMaxControlBytes, all_->in_all / std::max<std::size_t>(1, all_->links));
  }
  [[nodiscard]] bool has_room(std::size_t more) const { return held_ + more <= most(more); }

 private:
  const std::shared_ptr<ControlBytes> all_;
  std::size_t held_ = 0;
};

// What of the messages of a lane has not arrived.
class Unarrived {
 public:
  void pushed(std::size_t bytes, std::uint64_t more) {
    pushed_ += bytes;
    more_ = more;
    ++messages_;
  }
  void arrived(std::size_t bytes) { arrived_ += bytes; }
  void message_done() { --messages_; }
  [[nodiscard]] std::uint64_t bytes_arrived() const { return arrived_; }
  [[nodiscard]] std::uint64_t bytes() const { return pushed_ - arrived_; }
  // With those that the newest message said are to follow it.
  [[nodiscard]] std::uint64_t bytes_to_go() const { return bytes() + more_; }
  [[nodiscard]] std::size_t memory() const { return bytes() + cost(); }
  [[nodiscard]] std::size_t cost() const { return messages_ * kMessageCost; }

 private:
  std::uint64_t pushed_ = 0, arrived_ = 0, more_ = 0;  // bytes
  std::size_t messages_ = 0;
};

class Outbox {
 public:
  explicit Outbox(Lane lane) : lane_(lane) {}

  void push(TransportMessage message, std::uint64_t token);
  // The size of the largest segments from now on.
  void cut_at(std::size_t bytes) { segment_bytes_ = std::min(bytes, kMaxSegmentBytes); }

  struct Piece {
    SegmentHeader header;
    std::span<const std::byte> data;
    std::shared_ptr<const TransportMessage> owner;  // of the data
  };
  // Something may be sent now.
  [[nodiscard]] bool ready() const;
  // The next segment, which from now on is on its way over `carrier`. The carrier says written() once it no longer
  // reads the data, unless it is lost().
  std::optional<Piece> next(ConnectionId carrier, TimePoint now = {});
  // A second copy of a segment, for a connection that has nothing better to do. It is the oldest segment that has been
  // on its way over only one other connection, since before `since`.
  std::optional<Piece> second_copy(ConnectionId carrier, TimePoint since);
  void written(ConnectionId carrier, std::uint64_t number);
  // The connection has ended. What it carried and has not arrived is to be sent again. Returns the bytes of that.
  std::uint64_t lost(ConnectionId carrier);
  // Old reports are fine; a report of a segment that was never sent is kCorrupt. Tokens that are due are added to
  // `tokens`.
  Status acknowledge(const LaneArrivals& arrivals, std::vector<std::uint64_t>& tokens, TimePoint now = {});
  // Tokens that became due by written() or lost().
  void take_tokens(std::vector<std::uint64_t>& tokens);

  [[nodiscard]] bool empty() const { return queue_.empty() && segments_.empty(); }  // all has arrived
  [[nodiscard]] bool backlogged() const { return !queue_.empty(); }
  [[nodiscard]] std::uint64_t segments() const { return first_ + segments_.size(); }  // cut so far
  [[nodiscard]] std::uint64_t bytes_arrived() const { return unarrived_.bytes_arrived(); }
  // Bytes that have not arrived, with those that the newest message said will follow it.
  [[nodiscard]] std::uint64_t bytes_to_go() const { return unarrived_.bytes_to_go(); }
  // Bytes of memory: what was pushed and has not arrived.
  [[nodiscard]] std::size_t held() const { return unarrived_.memory(); }
  // The part of it that messages take beside their own bytes.
  [[nodiscard]] std::size_t cost() const { return unarrived_.cost(); }
  [[nodiscard]] std::uint64_t sent_again() const { return sent_again_; }
  // How long it lately took until a segment was known to have arrived, with the queues before it. 0: none has arrived.
  [[nodiscard]] Duration usual() const { return usual_; }

 private:
  struct Message {
    std::shared_ptr<TransportMessage> content;
    std::uint64_t token = 0;
    std::uint64_t number = 0;
    std::uint32_t cut = 0;    // bytes cut so far
    std::size_t pending = 0;  // segments that have not arrived or are still read
    bool all_cut = false;
  };
  struct Copy {
    ConnectionId carrier = 0;  // 0: none
    bool reading = false;      // the carrier still reads the data
  };
  struct Segment {
    std::shared_ptr<Message> message;
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    std::array<Copy, 2> copies;  // copies on their way; none: to be sent again, or arrived
    TimePoint sent{};
    bool arrived = false;
    [[nodiscard]] bool reading() const { return copies[0].reading || copies[1].reading; }
  };

  std::optional<std::uint64_t> cut();
  [[nodiscard]] Piece piece(std::uint64_t number) const;
  void settle(Segment& segment);
  void drop_settled();

  const Lane lane_;
  std::deque<std::shared_ptr<Message>> queue_;  // not wholly cut
  std::deque<Segment> segments_;                // from first_ on
  std::uint64_t first_ = 0;
  std::uint64_t next_message_ = 0;
  std::size_t window_bytes_ = 0;
  Unarrived unarrived_;
  std::uint64_t sent_again_ = 0;
  Duration usual_{0};
  std::set<std::uint64_t> again_;
  std::uint64_t next_second_copy_ = 0;  // no segment below this is to be sent a second time
  std::size_t segment_bytes_ = kMaxSegmentBytes;
  std::vector<std::uint64_t> due_;
};

}  // namespace collab::tcp
