// All that a machine knows, as canonical bytes (canon.h). Each part is taken apart whole: a field that is added does
// not compile before it is named here.
//
// Threads: one. Ownership: none.
#pragma once

#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/site/site.h"
#include "tests/sim/explorer/canon.h"

namespace collab::protocol {

struct Inside {
  static void write(sim::Canon& canon, const Coordinator& machine);
  static void write(sim::Canon& canon, const Site& machine);
  static void write(sim::Canon& canon, const class Election& election);
  static void write(sim::Canon& canon, const class Generations& generations);
  static void write(sim::Canon& canon, const class DuplicateData& duplicate_data);
  static void write(sim::Canon& canon, const class BandwidthPartition& partition);
  static void write(sim::Canon& canon, const class Reachability& reachability);
  static void write(sim::Canon& canon, const class ExchangeWatch& watch);
  static void write(sim::Canon& canon, const class CommittedRounds& committed);
  static void write(sim::Canon& canon, const class WaitProgress& progress);
};

}  // namespace collab::protocol
