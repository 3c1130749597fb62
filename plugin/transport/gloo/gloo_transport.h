// The transport over torch's own Gloo. A ProcessGroupGloo with one rank for each node of the swarm is made in Python
// and handed in. It takes the place of our own sockets.
//
// Addresses are "gloo:RANK". listen() returns this rank's own address and ignores its argument. The transport neither
// resumes nor crosses NAT. A connection that breaks takes all links to that rank with it, and a swarm that changes
// needs a new group.
// Threads: as collab/transport.h says. Gloo's calls block, so each other rank costs two threads that receive, and up to
// two that send (control and data). All sleep when idle. Handlers run on one thread of the transport.
// Ownership: shares the backend, which nothing else may use.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collab/transport.h"

namespace collab {

struct GlooOptions {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::shared_ptr<BufferPool> pool;  // for received payloads; null: the transport makes its own
};

[[nodiscard]] Result<std::unique_ptr<Transport>> make_gloo_transport(GlooOptions options);

}  // namespace collab
