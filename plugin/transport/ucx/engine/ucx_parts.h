// The parts of the engine.
//
//   calls      pending calls of the handler
//   workers    UCX's context, and a worker for each link
//   endpoints  the open and the failed connections
//   links      the links, how they open and end
//   dialler    how links are dialled
//   acceptor   the ports, and how accepted connections become links
//   sender     sends, and chooses the connection
//   receiver   receives
//
// Each part has private fields and never changes those of another part: it asks the owner, through `all_`. UcxEngine
// (ucx_engine.h) routes calls and the turns of its thread to them.
//
// Threads: the progress thread. Callbacks of UCX only note events, in the part that handles them.
// Ownership: parts refer to this struct, so it stays where it is. The workers end after everything that uses them.
#pragma once

#include <memory>
#include <string>

#include "transport/ucx/engine/ucx_acceptor.h"
#include "transport/ucx/engine/ucx_calls.h"
#include "transport/ucx/engine/ucx_dialler.h"
#include "transport/ucx/engine/ucx_endpoints.h"
#include "transport/ucx/engine/ucx_links.h"
#include "transport/ucx/engine/ucx_receiver.h"
#include "transport/ucx/engine/ucx_sender.h"
#include "transport/ucx/engine/ucx_workers.h"
#include "transport/ucx/ucx_mailbox.h"
#include "transport/ucx/ucx_transport.h"

namespace collab {

// An error text; the peer's address precedes it.
inline constexpr const char* kUcxNotNear =
    " is neither this machine nor a private address, and links over UCX are not encrypted: set the swarm's "
    "COLLAB_TOKEN at all sites (made once by `collab token`) and leave COLLAB_TRANSPORT unset, or set "
    "COLLAB_INSECURE=1 to send the model in the clear";

struct UcxParts {
  UcxParts(const UcxApi& functions, const UcxOptions& given) : api(functions), options(given) {}
  UcxParts(const UcxParts&) = delete;
  UcxParts& operator=(const UcxParts&) = delete;
  ~UcxParts() = default;

  [[nodiscard]] TimePoint now() const { return clock.now(); }
  [[nodiscard]] std::string reason(ucs_status_t status) const { return api.status_string(status); }

  const UcxApi& api;
  const UcxOptions options;
  const SteadyClock clock;
  const std::shared_ptr<UcxMailbox> mailbox = std::make_shared<UcxMailbox>();
  UcxCalls calls;
  UcxWorkers workers{*this};
  UcxEndpoints endpoints{*this};
  UcxLinks links{*this};
  UcxDialler dialler{*this};
  UcxAcceptor acceptor{*this};
  UcxSender sender{*this};
  UcxReceiver receiver{*this};
};

}  // namespace collab
