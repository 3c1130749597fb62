// One request to a coordinator, from a process that is not a member.
//
// Threads: the caller's, which waits. Ownership: takes the transport.
#pragma once

#include <memory>
#include <string>

#include "collab/clock.h"
#include "collab/status.h"
#include "collab/transport.h"
#include "core/wire/messages.h"

namespace collab {

[[nodiscard]] Result<wire::StatusReport> ask_coordinator(std::unique_ptr<Transport> transport,
                                                         const std::string& address, Duration limit);

}  // namespace collab
