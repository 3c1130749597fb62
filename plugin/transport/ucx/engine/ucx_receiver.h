// Receives active messages: checks each one, reads it (by rendezvous if it is large), and passes it to the part it is
// for. The handler gets messages in the order of their lane.
//
// Threads: the progress thread; UCX's callbacks only note arrivals. Ownership: an operation owns the buffer that UCX
// writes until the operation is done.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/ucx/ucx_link.h"
#include "transport/ucx/ucx_preamble.h"

namespace collab {

struct UcxParts;

class UcxReceiver {
 public:
  explicit UcxReceiver(UcxParts& all);

  // UCX's callback for an active message.
  ucs_status_t receive(std::span<const std::byte> header, void* data, std::size_t length,
                       const ucp_am_recv_param_t& param);
  bool handle_arrivals();  // true: some messages had arrived
  void drop_arrivals() { arrivals_.clear(); }
  // Hands over the next messages in order, and acknowledges them to the peer from time to time.
  void take_messages(UcxLink& link, Lane which);

 private:
  struct Operation;
  struct Arrival {
    UcxConnectionPtr connection;
    Preamble preamble;
    TransportMessage message;
  };

  [[nodiscard]] std::optional<Preamble> check(const UcxConnection& connection, std::span<const std::byte> header,
                                              std::size_t length);
  void received(std::unique_ptr<Operation> operation, ucs_status_t status);
  void handle(Arrival arrival);
  bool pass_on(UcxLink& link, const Preamble& preamble, TransportMessage message);
  void send_ack(UcxLink& link);

  UcxParts& all_;
  const std::shared_ptr<BufferPool> pool_;
  std::deque<Arrival> arrivals_;
};

}  // namespace collab
