// Sends messages, as far as the lane's window and a connection have room, and preambles without a message.
//
// Threads: the progress thread. Ownership: an operation owns the memory that UCX reads until the operation is done.
#pragma once

#include <memory>
#include <vector>

#include "transport/ucx/ucx_link.h"
#include "transport/ucx/ucx_preamble.h"

namespace collab {

struct UcxParts;

class UcxSender {
 public:
  explicit UcxSender(UcxParts& all) : all_(all) {}

  // Queues the message, unless the link is gone or closing.
  void send(LinkId id, TransportMessage message, std::uint64_t token);
  void send(const UcxConnectionPtr& connection, const Preamble& preamble);
  void pump_soon(LinkId id) { due_.push_back(id); }  // the link may have room again
  bool pump_due();                                   // true: some links were due

 private:
  struct Operation;

  void pump(UcxLink& link);
  void send_next(UcxLink& link, Lane lane, UcxConnectionPtr connection);
  void submit(std::unique_ptr<Operation> operation);
  void sent(std::unique_ptr<Operation> operation, ucs_status_t status);

  UcxParts& all_;
  std::vector<LinkId> due_;
};

}  // namespace collab
