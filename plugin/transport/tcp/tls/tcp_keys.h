// The key of a transport's connections, as its settings say and its token's file has it now.
//
// A file may hold two tokens, one a line: the first is spoken, and both are accepted, so that one takes the other's
// place without a stop. It is looked at when a connection begins and while links stand, once a second at most, on a
// thread of its own: where the file lies in a file system that does not answer, what it held before goes on.
// Threads: current() from any thread. Ownership: shared by a transport's connections, and by a look at the file, which
// may outlive them; streams share the contexts.
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
  // What a connection that begins uses, and one that stands is held to. A file that has become unfit is told of, and
  // what it held before goes on. Waits a fifth of a second for the file, once for each that does not answer.
  [[nodiscard]] std::shared_ptr<const TlsContext> current();

 private:
  TlsKeys() = default;
  [[nodiscard]] bool look_in_background();
  // By one look at a time.
  void look();
  [[nodiscard]] std::shared_ptr<const TlsContext> read_if_changed();  // null: go on with what it held before
  [[nodiscard]] bool file_changed();

  const SteadyClock clock_;
  TcpOptions options_;  // what says where the key is
  struct stat seen_ {};

  std::mutex mutex_;  // of what follows
  std::condition_variable looked_at_;
  std::shared_ptr<const TlsContext> context_;
  TimePoint looked_{};
  bool looking_ = false;
};

}  // namespace collab::tcp
