// Closes connections whose token COLLAB_TOKEN_FILE no longer holds. Their links survive. A peer that redials with a
// token in the file continues where it was. A peer that has only the old token stays out.
//
// Threads: the IO thread. Ownership: none. TlsKeys holds the file's contents (tls/tcp_keys.h).
#pragma once

#include <string>
#include <vector>

#include "core/base/rate_limit.h"
#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class TokenWatch {
 public:
  explicit TokenWatch(EngineParts& all) : all_(all) {}

  void tick(TimePoint now);

 private:
  static bool close_old(const TcpLink& link, const TlsContext& keys);  // true: it closed some
  void report_closed(TimePoint now, const std::vector<std::string>& peers);

  EngineParts& all_;
  TimePoint next_{};
  RateLimit closed_{std::chrono::seconds(10)};
};

}  // namespace collab::tcp
