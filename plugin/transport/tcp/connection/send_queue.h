// What a connection has to send, in order: frames and segments. A segment's data is not copied; it stays in its message
// until it is sent.
//
// Threads: one at a time. Ownership: owns the frames; shares the messages of the segments.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "transport/tcp/session/tcp_outbox.h"

namespace collab::tcp {

class SendQueue {
 public:
  // Called when the queue no longer reads a segment's data.
  using Written = std::function<void(Lane, std::uint64_t number)>;

  void push(Bytes frame);
  void push(Outbox::Piece piece);
  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] bool overfull() const { return items_.size() > kMaxItems; }
  [[nodiscard]] std::uint64_t bytes() const;  // not sent yet

  // Without TLS: fills `parts` with the first pieces, where they lie in memory. Returns their number.
  [[nodiscard]] std::size_t gather(std::span<iovec> parts) const;
  void sent(std::size_t bytes, const Written& written);
  // With TLS: removes about kEncryptAtOnce bytes. Small pieces go to `encrypt` together, and so share a record.
  void take(const std::function<void(std::span<const std::byte>)>& encrypt, const Written& written);

  // Drops segments that are no longer needed. A segment that is partly sent stays, as its header announced its length.
  void drop_segments();
  void clear() { items_.clear(); }

 private:
  static constexpr std::size_t kMaxItems = 2048;
  struct Item {
    Bytes frame;  // or the header of a segment
    std::span<const std::byte> data;
    std::shared_ptr<const TransportMessage> owner;
    bool segment = false;
    Lane lane = Lane::kControl;
    std::uint64_t number = 0;
    [[nodiscard]] std::size_t size() const { return frame.size() + data.size(); }
  };
  void first_done(const Written& written);

  std::deque<Item> items_;
  std::size_t first_sent_ = 0;  // bytes already sent of the first item
};

}  // namespace collab::tcp
