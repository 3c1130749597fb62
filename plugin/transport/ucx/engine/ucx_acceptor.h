// The listening ports, and how accepted connections become links: each connection sends a hello with its link's token,
// and the last one opens the link.
//
// Threads: listen() from any thread; all else on the progress thread. UCX's callback only notes the request.
// Ownership: owns the listeners.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/base/rate_limit.h"
#include "transport/ucx/ucx_link.h"
#include "transport/ucx/ucx_preamble.h"

namespace collab {

struct UcxParts;

class UcxAcceptor {
 public:
  explicit UcxAcceptor(UcxParts& all) : all_(all) {}

  Result<std::string> listen(const std::string& address);
  bool accept_requests();  // true: some requests waited
  // A hello arrived on an accepted connection.
  void greeted(const UcxConnectionPtr& connection, const Preamble& hello);
  // The link ended before it was open.
  void forget(const UcxLink::Token& token) { half_open_.erase(token); }
  void stop();

 private:
  void accept(ucp_conn_request_h request);
  Result<UcxWorkerPtr> worker_for(std::uint64_t client_id);

  UcxParts& all_;
  std::vector<ucp_listener_h> listeners_;
  std::vector<ucp_conn_request_h> requests_;
  std::map<UcxLink::Token, LinkId> half_open_;  // links that still lack a hello
  RateLimit refusal_log_limit_{std::chrono::seconds(1)};
};

}  // namespace collab
