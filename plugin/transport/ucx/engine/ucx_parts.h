// The parts of the engine.
//
//   calls      what the handler is to be told
//   workers    UCX's context, and a worker for each link
//   endpoints  the connections that are open, and those that have failed
//   links      which links there are, how they open and end
//   dialler    how links are dialled
//   acceptor   the ports, and how connections that were accepted become links
//   sender     what goes out, over which connection
//   receiver   what comes in
//
// Each part has private fields and changes no other's: it asks the part that owns them, over `all_`. UcxEngine
// (ucx_engine.h) routes calls and the turns of its thread to them.
//
// Threads: the progress thread. Callbacks of UCX only note what happened, with the part that they belong to.
// Ownership: parts refer to this struct, so it stays where it is. The workers end
// after all that uses them.
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

// To people, after the address that was dialled or dialled us.
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
