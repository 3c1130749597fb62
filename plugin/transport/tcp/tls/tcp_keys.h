// The key of a transport's connections, from its settings and from the current contents of its token file.
//
// A file may hold two tokens, one per line. This side uses the first and accepts both, so that one token can replace
// the other without a stop. The file is checked when a connection begins and while there are links, at most once a
// second, on its own thread. If its file system does not answer, the old contents still apply.
// Threads: current() from any thread. Ownership: shared by a transport's connections, and by a check of the file, which
// may outlive them. Streams share the contexts.
#pragma once

#include <sys/stat.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "collab/clock.h"
#include "collab/status.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tcp/tls/tcp_tls.h"

namespace collab::tcp {

struct Tokens {
  std::string spoken, older;  // empty: none
};
// kInvalidArgument names the setting that is wrong, never its value.
[[nodiscard]] Result<Tokens> read_tokens(const TcpOptions& options);

class TlsKeys : public std::enable_shared_from_this<TlsKeys> {
 public:
  // Null: in the clear.
  static Result<std::shared_ptr<TlsKeys>> make(const TcpOptions& options);
  // The keys that a new connection uses, and that an open one must still match. If the file has become unusable, this
  // logs that, and the old contents still apply. Waits a fifth of a second for the file, once for each file that does
  // not answer.
  [[nodiscard]] std::shared_ptr<const TlsContext> current();

 private:
  TlsKeys() = default;
  [[nodiscard]] bool look_in_background();
  // Called by one check at a time.
  void look();
  [[nodiscard]] std::shared_ptr<const TlsContext> read_if_changed();  // null: the old contents still apply
  [[nodiscard]] bool file_changed();

  const SteadyClock clock_;
  TcpOptions options_;  // where the token is
  struct stat seen_ {};

  std::mutex mutex_;  // guards the members below
  std::condition_variable looked_at_;
  std::shared_ptr<const TlsContext> context_;
  TimePoint looked_{};
  bool looking_ = false;
};

}  // namespace collab::tcp
