// The transport that chooses for each link: ucx where both sides have it and it gets through, else tcp.
//
// It listens by both: tcp at the address asked for, ucx on a free port of the same host. The address it gives names the
// second port behind a '+', "10.0.0.7:4000+ucx5123" (core/base/address.h); transports of one kind pass over that. A
// dial tries ucx for a part of its time and then tcp, by which all that was queued meanwhile goes. A host whose ucx
// port does not answer is dialled by tcp at once for a while. Why a link uses which is logged once for each host and
// reason. Threads and ownership: as collab/transport.h says; handlers are called from the threads of the two, one at a
// time.
#pragma once

#include <memory>

#include "collab/clock.h"
#include "collab/status.h"
#include "collab/transport.h"

namespace collab {

struct AutoOptions {
  Duration ucx_patience = std::chrono::seconds(3);  // for a dial by ucx; at most half of the dial's own limit
  Duration ucx_silence = std::chrono::minutes(10);  // without a dial by ucx to a host that did not answer one
};

// As they were made. Where there is no ucx it is `tcp` alone, which the log tells. kInvalidArgument when `tcp`
// encrypts: half of the links would not.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_auto_transport(Result<std::unique_ptr<Transport>> tcp,
                                                                     Result<std::unique_ptr<Transport>> ucx,
                                                                     const AutoOptions& options = {});

}  // namespace collab
