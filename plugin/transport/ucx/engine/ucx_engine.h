// The engine of the ucx transport: the thread that progresses a UCX worker for each link, and what reaches it. It gives
// the parts their turns (ucx_parts.h) and decides nothing.
//
// Every message is one active message: a preamble (and a small head) in its header, the payload as its data.
// Large payloads travel by rendezvous straight into a pool buffer. A link has several endpoints, over TCP
// several connections: control messages use the first, data messages go to whichever of the others has least
// in flight, and numbers put each lane back in order. What the peer has not taken is bounded per lane, so
// neither side's memory grows when one connection stalls or the other side is slow.
//
// Threads: the functions of the first group from any thread; all else, UCX's callbacks and the handler's
// calls included, on the progress thread, which sleeps in poll() when nothing is due. Callbacks of UCX only
// note what happened; it is dealt with after ucp_worker_progress has returned.
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
  [[nodiscard]] bool in_child() const;  // of a fork: UCX belongs to the parent

 private:
  UcxEngine(const UcxApi& api, const UcxOptions& options);

  void run();
  bool run_commands();
  bool handle_progress();  // what UCX's callbacks have noted
  bool sleep();            // false: it did not, for UCX has work
  void check_deadlines();
  void shut_down();

  const pid_t pid_;
  UcxParts all_;
  std::atomic<bool> stop_{false};
  std::vector<UcxMailbox::Command> running_;
  TimePoint next_check_{};  // of deadlines
  std::thread thread_;
};

}  // namespace collab
