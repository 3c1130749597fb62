// The open connections, each a UCX endpoint, and those whose failure is not handled yet.
//
// Threads: the progress thread; UCX's callback for errors only notes the failure. Ownership: shares connections with
// their links and with the operations in progress on them.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/ucx/ucx_link.h"

namespace collab {

struct UcxParts;

class UcxEndpoints {
 public:
  explicit UcxEndpoints(UcxParts& all) : all_(all) {}

  Result<UcxConnectionPtr> open(const UcxWorkerPtr& worker, ucp_ep_params_t params, std::string peer);
  // Cancels operations in progress. This loses nothing: a link that ends in good order has none.
  void close(const UcxConnectionPtr& connection);
  void close_all();

  void note_failure(const UcxConnectionPtr& connection, Status why) {
    failures_.emplace_back(connection, std::move(why));
  }
  bool handle_failures();  // true: some had failed
  void drop_failures() { failures_.clear(); }

  [[nodiscard]] UcxConnectionPtr find(ucp_ep_h endpoint) const;  // null: the endpoint was closed
  [[nodiscard]] std::size_t strangers() const;
  // The worker of the accepted connections whose dialler gave this id. Null: none.
  [[nodiscard]] UcxWorkerPtr accepted_worker(std::uint64_t client_id) const;
  [[nodiscard]] TimePoint next_deadline() const;
  void close_silent(TimePoint now);  // closes strangers that sent no hello in time

 private:
  UcxParts& all_;
  std::unordered_map<ucp_ep_h, UcxConnectionPtr> connections_;
  std::vector<std::pair<UcxConnectionPtr, Status>> failures_;
};

}  // namespace collab
