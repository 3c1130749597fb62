// UCX, loaded when it is first needed: nothing links libucp, and `import torch` does not pay for it.
//
// The library is looked for, in order, at $COLLAB_UCX_LIBRARY, in the directory the caller names (the libucx wheel
// beside the installed package), where it was when this was built, and where the system keeps it. UCX is a guest in the
// user's process: its signal handlers, memory hooks and virtual file system stay off unless the user's own UCX_*
// variables say otherwise.
//
// Threads: load_ucx and GuestEnvironment from any thread. Ownership: the library stays loaded for good.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <mutex>
#include <string>

#include "collab/status.h"

namespace collab {

// The functions used, by their names without the prefix.
struct UcxApi {
  decltype(&::ucp_get_version) get_version = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_query) worker_query = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_listener_create) listener_create = nullptr;
  decltype(&::ucp_listener_query) listener_query = nullptr;
  decltype(&::ucp_listener_destroy) listener_destroy = nullptr;
  decltype(&::ucp_conn_request_query) conn_request_query = nullptr;
  decltype(&::ucp_listener_reject) listener_reject = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;

  std::string path;     // of the library as loaded
  std::string version;  // "1.22.0"
};

// Loads once; later calls return the same table whatever directory they name.
[[nodiscard]] Result<const UcxApi*> load_ucx(const std::string& library_dir);

// While this object lives, the environment also holds the UCX_* settings of a guest, except those that the user has
// set. The user's array of variables is put aside and restored, never edited.
class GuestEnvironment {
 public:
  GuestEnvironment();
  ~GuestEnvironment();
  GuestEnvironment(const GuestEnvironment&) = delete;
  GuestEnvironment& operator=(const GuestEnvironment&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;  // one at a time
  char** saved_ = nullptr;
};

}  // namespace collab
