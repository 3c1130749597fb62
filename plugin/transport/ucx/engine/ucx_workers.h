// UCX's context and its workers: one that listens and has no connections, and one per link.
//
// Threads: open() before the progress thread starts; all else on that thread. Ownership: owns the context, and shares
// each worker with its connections. Releases a worker once nothing else refers to it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "transport/ucx/ucx_link.h"

namespace collab {

struct UcxParts;

class UcxWorkers {
 public:
  explicit UcxWorkers(UcxParts& all) : all_(all) {}
  ~UcxWorkers();
  UcxWorkers(const UcxWorkers&) = delete;
  UcxWorkers& operator=(const UcxWorkers&) = delete;

  Status open();  // opens the context and the listening worker
  Result<UcxWorkerPtr> add(std::uint64_t client_id);
  [[nodiscard]] ucp_worker_h listening() const { return workers_.front()->handle; }
  [[nodiscard]] std::size_t of_links() const { return workers_.size() - 1; }
  [[nodiscard]] std::size_t max_header() const { return max_header_; }  // of an active message

  bool progress();  // true: UCX did some work
  // Adds the descriptors that wake a waiting thread. False: UCX has work that no event will announce, such as a full
  // queue of a peer in shared memory.
  bool arm(std::vector<pollfd>& waits);
  // Leaks workers whose operations cannot be cancelled.
  void abandon();

 private:
  [[nodiscard]] std::string net_devices() const;
  Status configure(ucp_config_t* config) const;
  Status prepare(UcxWorker& worker);

  UcxParts& all_;
  ucp_context_h context_ = nullptr;
  std::vector<UcxWorkerPtr> workers_;  // the first one listens
  std::size_t max_header_ = 0;
};

}  // namespace collab
