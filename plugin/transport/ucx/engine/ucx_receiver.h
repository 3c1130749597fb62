// What comes in: active messages are checked, taken in, by rendezvous where they are large, and handed to the part that
// they are for; messages go to the handler in the order of their lane.
//
// Threads: the progress thread; UCX's callbacks only note what arrived. Ownership: an operation owns the buffer that
// UCX writes until it is done.
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
  bool handle_arrivals();  // true: there were some
  void drop_arrivals() { arrivals_.clear(); }
  // Hands over what is next in order, and tells the peer now and then.
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
