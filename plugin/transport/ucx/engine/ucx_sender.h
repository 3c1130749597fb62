// What goes out: messages as far as a lane's window and a connection take them, and preambles by themselves.
//
// Threads: the progress thread. Ownership: an operation owns what UCX reads until it is done.
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

  // Queues it, unless the link is gone or closing.
  void send(LinkId id, TransportMessage message, std::uint64_t token);
  void send(const UcxConnectionPtr& connection, const Preamble& preamble);
  void pump_soon(LinkId id) { due_.push_back(id); }  // it may have room again
  bool pump_due();                                   // true: there were some

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
