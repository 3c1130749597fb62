// The emulated network: hosts with a line up and a line down, and paths between them. It decides all that happens to a
// packet, in virtual time; it reads no clock and touches no device.
//
//   send ─► NAT notes the flow ─► line up ─► path ─► line down ─► cut? NAT? ─► out
//                                 (a)        (b)     (a)
//   (a) A full queue drops.
//   (b) Cut? Lost? Delay, jitter, held back, twice. Packets in flight are ordered by time.
//
// Each path has its own random numbers, derived from one seed: the n-th packet of a path has the same fate in each run,
// whatever other paths do. Threads: one owner. Ownership: owns the packets in flight.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/prng.h"
#include "tools/lab/line.h"
#include "tools/lab/nat.h"

namespace collab::lab {

// Counts for one direction between two hosts.
struct PathCounters {
  std::uint64_t sent_packets = 0, sent_bytes = 0;            // given to the sender's line
  std::uint64_t delivered_packets = 0, delivered_bytes = 0;  // that came out, including duplicates
  std::uint64_t lost = 0, duplicated = 0, held_back = 0;     // by chance
  std::uint64_t dropped_up = 0, dropped_down = 0;            // by a full queue
  std::uint64_t dropped_cut = 0, dropped_nat = 0;
};

struct NetworkSpec {
  std::vector<HostSpec> hosts;
  PathSpec path;                   // of every pair until changed
  std::uint32_t address_base = 0;  // host i has address_base + 1 + i
  std::uint64_t seed = 1;
};

struct Delivery {
  Time at{};
  HostIndex to = 0;
  Packet packet;
};

class Network {
 public:
  explicit Network(const NetworkSpec& spec);

  // Times must not decrease from call to call.
  void send(Time now, HostIndex from, Packet packet);
  // Appends to `out` all packets that came out until `now`, in order of time.
  void advance(Time now, std::vector<Delivery>& out);
  // The time of the next event, which may be in the past; kNever if there is none.
  [[nodiscard]] Time next() const;
  void apply(Time now, const Change& change);

  [[nodiscard]] std::size_t size() const { return hosts_.size(); }
  [[nodiscard]] const PathCounters& counters(HostIndex from, HostIndex to) const {
    return paths_[from * size() + to].counters;
  }
  // Packets to addresses that no host has, or that are not IPv4.
  [[nodiscard]] std::uint64_t without_route(HostIndex from) const { return hosts_[from].without_route; }

 private:
  struct Host {
    explicit Host(const HostSpec& spec) : up(spec.up, spec.queue), down(spec.down, spec.queue), behind_nat(spec.nat) {}
    Line up, down;
    Nat nat;
    bool behind_nat;
    bool cut = false;
    std::uint64_t without_route = 0;
  };
  struct Path {
    PathSpec spec;
    bool cut = false;
    Prng chance{0};
    std::uint64_t jitter_seed = 0;
    Time last_arrival = Time::zero();
    PathCounters counters;
  };
  struct InFlight {
    Time at{};
    std::uint64_t order = 0;
    Transit transit;
  };

  [[nodiscard]] Path& path(HostIndex from, HostIndex to) { return paths_[from * size() + to]; }
  [[nodiscard]] bool is_cut(HostIndex from, HostIndex to) const;
  // Handles all events that are due.
  void settle(Time now);
  void enter_path(Time now, Transit&& transit);
  void add_in_flight(Time at, Transit&& transit);
  [[nodiscard]] Transit pop_in_flight();
  void leave_down(Time now, Transit&& transit);
  void set_cut(const Cut& cut);

  std::vector<Host> hosts_;
  std::vector<Path> paths_;          // from * size + to
  std::vector<InFlight> in_flight_;  // a heap, the earliest first
  std::uint64_t next_order_ = 0;
  std::vector<Delivery> came_out_;
  std::uint32_t address_base_;
};

// The extra delay of a path at time `now`, between 0 and `jitter`. It is interpolated linearly between random values 20
// ms apart, so that packets close in time have similar delays.
[[nodiscard]] Time jitter_at(Time now, Time jitter, std::uint64_t seed);

}  // namespace collab::lab
