// The engine of the ucx transport: the thread that progresses each link's UCX worker, and its inputs. It gives the
// parts their turns (ucx_parts.h) and decides nothing.
//
// Every message is one active message: a preamble (and a small head) in its header, the payload as its data. Large
// payloads travel by rendezvous straight into a pool buffer. A link has several endpoints, over TCP several
// connections. Control messages use the first. Data messages go to the one of the others with the least in flight.
// Numbers restore the order of each lane. The messages that the peer has not taken are limited per lane, so neither
// side's memory grows if a connection stalls or the other side is slow.
//
// Threads: the functions of the first group from any thread; all else on the progress thread, including UCX's callbacks
// and calls of the handler. This thread sleeps in poll() when nothing is due. Callbacks of UCX only note events, which
// are handled after ucp_worker_progress has returned.
// Ownership: owns its parts; borrows the handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collab/transport.h"
#include "transport/ucx/engine/ucx_parts.h"

namespace collab {

class UcxEngine {
 public:
  static Result<std::unique_ptr<UcxEngine>> make(const UcxOptions& options);
  ~UcxEngine();
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  // From any thread.
  Status start(TransportHandler* handler);
  Result<std::string> listen(const std::string& address);
  LinkId connect(const std::string& address, Duration timeout);
  void send(LinkId link, TransportMessage message, std::uint64_t token);
  void close(LinkId link);
  [[nodiscard]] bool in_child() const;  // in a forked child UCX belongs to the parent

 private:
  UcxEngine(const UcxApi& api, const UcxOptions& options);

  void run();
  bool run_commands();
  bool handle_progress();  // handles the events that UCX's callbacks noted
  bool sleep();            // false: did not sleep, as UCX has work
  void check_deadlines();
  void shut_down();

  const pid_t pid_;
  UcxParts all_;
  std::atomic<bool> stop_{false};
  std::vector<UcxMailbox::Command> running_;
  TimePoint next_check_{};  // next check of deadlines
  std::thread thread_;
};

}  // namespace collab
