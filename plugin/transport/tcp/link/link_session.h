// What one link carries: the messages of both lanes, out and in. Also the acknowledgements that are due, and how the
// link closes.
//
//   open ──close() or a bye──▶ closing: queues run dry, a bye goes out; one sent and one received──▶ over
//
// Threads: the transport's IO thread. Ownership: holds messages until they have arrived, or are handed on. The engine's
// Sessions changes it, and so does Striping, which takes segments from the outboxes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collab/transport.h"
#include "transport/tcp/session/tcp_inbox.h"
#include "transport/tcp/session/tcp_outbox.h"
#include "transport/tcp/session/tcp_unhandled.h"

namespace collab::tcp {

class LinkSession {
 public:
  LinkSession(const std::shared_ptr<BufferPool>& pool, const std::shared_ptr<UnfinishedShare>& share,
              std::shared_ptr<Unhandled> unhandled, std::shared_ptr<ControlBytes> control);
  ~LinkSession() { unhandled_->end(); }
  LinkSession(const LinkSession&) = delete;
  LinkSession& operator=(const LinkSession&) = delete;

  // ---- sending. Fails if the message, alone or with those that wait, exceeds a limit. `peer` is for error messages.
  Status push(TransportMessage message, std::uint64_t token, const std::string& peer);
  [[nodiscard]] Outbox& outbox(Lane lane) { return out_[static_cast<std::size_t>(lane)]; }
  // Bytes of memory that messages of the data lane take besides their contents. ControlShare counts those of the
  // control lane.
  [[nodiscard]] std::size_t data_cost() const { return out_[static_cast<std::size_t>(Lane::kData)].cost(); }
  [[nodiscard]] bool all_arrived() const { return out_[0].empty() && out_[1].empty(); }
  struct Progress {  // which bytes have newly arrived
    bool any = false;
    bool data = false;
  };
  Result<Progress> acknowledge(const Arrivals& arrivals, std::vector<std::uint64_t>& tokens, TimePoint now);

  // ---- receiving. Nothing for a segment that has arrived before: skip it.
  Result<std::optional<Inbox::Place>> begin(const SegmentHeader& header, ConnectionId carrier);
  // Complete messages count as unhandled from now on.
  Status end(const SegmentHeader& header, std::vector<TransportMessage>& messages);
  [[nodiscard]] Arrivals arrivals() const { return {in_[0].arrivals(), in_[1].arrivals()}; }
  [[nodiscard]] bool ack_due() const { return ack_due_; }
  [[nodiscard]] bool ack_at_once() const;
  void acknowledged();
  [[nodiscard]] bool check_full() { return unhandled_->check_full(); }
  [[nodiscard]] bool any_handled() const { return unhandled_->any_handled(); }

  // A connection is gone. Returns the number of bytes to send again, and adds the tokens that are due now.
  std::uint64_t lose(ConnectionId carrier, std::vector<std::uint64_t>& tokens);

  // ---- closing
  void close(TimePoint now);
  // This side wants to close and no longer waits for the peer's messages.
  void leave() { left_ = true; }
  [[nodiscard]] bool left() const { return left_; }
  // The closing makes progress, which extends its deadline.
  void go_on(TimePoint now);
  [[nodiscard]] bool closing() const { return closing_; }
  [[nodiscard]] bool close_timed_out(TimePoint now) const { return now >= close_by_; }
  [[nodiscard]] bool may_say_bye() const { return !bye_sent_ && all_arrived(); }
  [[nodiscard]] bool bye_sent() const { return bye_sent_; }
  void mark_bye_sent() { bye_sent_ = true; }
  [[nodiscard]] Bye bye() const { return {{out_[0].segments(), out_[1].segments()}}; }
  Status receive_bye(const Bye& bye);
  [[nodiscard]] bool over() const { return bye_sent_ && bye_received_; }

 private:
  ControlShare control_;
  std::array<Outbox, 2> out_{Outbox(Lane::kControl), Outbox(Lane::kData)};
  const std::shared_ptr<Unhandled> unhandled_;
  std::array<Inbox, 2> in_;
  bool ack_due_ = false;
  std::uint64_t bytes_unacknowledged_ = 0;  // arrived since the last acknowledgement
  bool closing_ = false;
  bool left_ = false;
  TimePoint close_by_ = kNever;
  bool bye_sent_ = false;
  bool bye_received_ = false;
};

}  // namespace collab::tcp
