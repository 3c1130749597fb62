// Sends one lane of a link. Cuts messages into segments, and knows which segments have arrived, which are in flight
// over which connection, and which must be sent again.
//
//   queued message ──next()──▶ segment on a connection ──acknowledge()──▶ arrived; the message's last: its token is due
//                                   │        ▲      └──second_copy()──▶ on a second connection as well
//                                   └ lost() ┴ next(), before anything new
//
// An acknowledged segment is never sent again. The window, from the first segment that has not arrived to the newest,
// has at most kWindowSegments segments, and at most kWindowBytes bytes plus one segment.
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
// About how much memory a message needs besides its contents.
inline constexpr std::size_t kMessageCost = 512;
// The most bytes of control messages, with their cost, that may wait for a peer, and for all peers of a process. Beyond
// the latter, no link may have more than its share. A link that exceeds its limit ends: its peer asks and does not
// read.
inline constexpr std::size_t kMaxControlBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxControlInAll = std::size_t{256} << 20;
// For slow or many connections: small segments take less time on each.
inline constexpr std::size_t kSmallSegmentBytes = std::size_t{16} << 10;
using ConnectionId = std::uint64_t;  // names a connection and is never reused; 0: none

// The bytes of waiting control messages, over all links.
struct ControlBytes {
  std::size_t held = 0;
  std::size_t links = 0;
  std::size_t in_all = kMaxControlInAll;
};

// A link's part of ControlBytes.
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
  // The most bytes that may wait for this link once `more` bytes are added.
  [[nodiscard]] std::size_t most(std::size_t more) const {
    if (all_->held + more <= all_->in_all) return kMaxControlBytes;
    return std::min(kMaxControlBytes, all_->in_all / std::max<std::size_t>(1, all_->links));
  }
  [[nodiscard]] bool has_room(std::size_t more) const { return held_ + more <= most(more); }

 private:
  const std::shared_ptr<ControlBytes> all_;
  std::size_t held_ = 0;
};

// Counts the bytes of a lane's messages that have not arrived.
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
  // Includes the bytes that, by its `more`, will follow the newest message.
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
  // Sets the largest size of segments from now on.
  void cut_at(std::size_t bytes) { segment_bytes_ = std::min(bytes, kMaxSegmentBytes); }

  struct Piece {
    SegmentHeader header;
    std::span<const std::byte> data;
    std::shared_ptr<const TransportMessage> owner;  // of the data
  };
  // Whether next() would return a segment.
  [[nodiscard]] bool ready() const;
  // The next segment, which is in flight over `carrier` from now on. The caller calls written() once the carrier no
  // longer reads the data, or lost().
  std::optional<Piece> next(ConnectionId carrier, TimePoint now = {});
  // A second copy of a segment, for a connection with nothing else to send: the oldest segment that has been in flight
  // since before `since`, over only one other connection.
  std::optional<Piece> second_copy(ConnectionId carrier, TimePoint since);
  void written(ConnectionId carrier, std::uint64_t number);
  // The connection has ended. Its segments that have not arrived will be sent again. Returns the number of their bytes.
  std::uint64_t lost(ConnectionId carrier);
  // Old reports are harmless; a report of a segment that was never sent is kCorrupt. Adds tokens that are due to
  // `tokens`.
  Status acknowledge(const LaneArrivals& arrivals, std::vector<std::uint64_t>& tokens, TimePoint now = {});
  // Adds the tokens that became due in written() or lost().
  void take_tokens(std::vector<std::uint64_t>& tokens);

  [[nodiscard]] bool empty() const { return queue_.empty() && segments_.empty(); }  // all has arrived
  [[nodiscard]] bool backlogged() const { return !queue_.empty(); }
  [[nodiscard]] std::uint64_t segments() const { return first_ + segments_.size(); }  // cut so far
  [[nodiscard]] std::uint64_t bytes_arrived() const { return unarrived_.bytes_arrived(); }
  // Bytes that have not arrived, and those that, by its `more`, will follow the newest message.
  [[nodiscard]] std::uint64_t bytes_to_go() const { return unarrived_.bytes_to_go(); }
  // Memory of the messages that were pushed and have not arrived, in bytes.
  [[nodiscard]] std::size_t held() const { return unarrived_.memory(); }
  // The part of held() besides the messages' contents.
  [[nodiscard]] std::size_t cost() const { return unarrived_.cost(); }
  [[nodiscard]] std::uint64_t sent_again() const { return sent_again_; }
  // The recent time from sending a segment to its acknowledgement, including queues. 0: none has arrived.
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
  std::deque<std::shared_ptr<Message>> queue_;  // messages not completely cut
  std::deque<Segment> segments_;                // from first_ on
  std::uint64_t first_ = 0;
  std::uint64_t next_message_ = 0;
  std::size_t window_bytes_ = 0;
  Unarrived unarrived_;
  std::uint64_t sent_again_ = 0;
  Duration usual_{0};
  std::set<std::uint64_t> again_;
  std::uint64_t next_second_copy_ = 0;  // no segment below this gets a second copy
  std::size_t segment_bytes_ = kMaxSegmentBytes;
  std::vector<std::uint64_t> due_;
};

}  // namespace collab::tcp
