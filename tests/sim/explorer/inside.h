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
  // About so many bytes.
  static std::size_t bytes_of(const Coordinator& machine);
  static std::size_t bytes_of(const Site& machine);
  static void write(sim::Canon& canon, const class Election& election);
  static void write(sim::Canon& canon, const class Generations& generations);
  static void write(sim::Canon& canon, const class DuplicateData& duplicate_data);
  static void write(sim::Canon& canon, const class BandwidthPartition& partition);
  static void write(sim::Canon& canon, const class Reachability& reachability);
  static void write(sim::Canon& canon, const class ExchangeWatch& watch);
  static void write(sim::Canon& canon, const class CommittedRounds& committed);
  static void write(sim::Canon& canon, const class WaitProgress& progress);
  static void write(sim::Canon& canon, const class AgreedMembership& part);
  static void write(sim::Canon& canon, const class Leadership& part);
  static void write(sim::Canon& canon, const class GenerationGate& part);
  static void write(sim::Canon& canon, const class Admission& part);
  static void write(sim::Canon& canon, const class Membership& part);
  static void write(sim::Canon& canon, const class AnchorChoice& part);
  static void write(sim::Canon& canon, const class AnchorInstaller& part);
  static void write(sim::Canon& canon, const class RoundGate& part);
  static void write(sim::Canon& canon, const class SliceOwners& part);
  static void write(sim::Canon& canon, const class Period& part);
  static void write(sim::Canon& canon, const class Round& part);
  static void write(sim::Canon& canon, const class Exclusions& part);
  static void write(sim::Canon& canon, const class Contributions& part);
  static void write(sim::Canon& canon, const class ModelReference& part);
  static void write(sim::Canon& canon, const struct Member& member);
  static void write(sim::Canon& canon, const class CoordinatorLink& part);
  static void write(sim::Canon& canon, const class SiteMembership& part);
  static void write(sim::Canon& canon, const class Inquiry& part);
  static void write(sim::Canon& canon, const class Acceptor& part);
  static void write(sim::Canon& canon, const class RecordWrites& part);
  static void write(sim::Canon& canon, const class SiteRoster& part);
  static void write(sim::Canon& canon, const class PeerLinks& part);
  static void write(sim::Canon& canon, const class HeldAnchor& part);
  static void write(sim::Canon& canon, const class AnchorInstallation& part);
  static void write(sim::Canon& canon, const class ContributedWork& part);
  static void write(sim::Canon& canon, const class SiteRound& part);
  static void write(sim::Canon& canon, const class OptimizerFetch& part);
};

}  // namespace collab::protocol
