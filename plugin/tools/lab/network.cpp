#include "tools/lab/network.h"

#include <algorithm>
#include <utility>

namespace collab::lab {
namespace {

// The order for heap functions: the earliest on top.
constexpr auto kLater = [](const auto& a, const auto& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; };

}  // namespace

Network::Network(const NetworkSpec& spec) : address_base_(spec.address_base) {
  SplitMix64 seeds(spec.seed);
  for (const HostSpec& host : spec.hosts) hosts_.emplace_back(host);
  paths_.resize(size() * size());
  for (Path& each : paths_) {
    each.spec = spec.path;
    each.chance = Prng(seeds.next());
    each.jitter_seed = seeds.next();
  }
}

void Network::send(Time now, HostIndex from, Packet packet) {
  settle(now);  // packets that have left the queue by now make room
  const std::optional<PacketView> view = view_of(packet.bytes);
  const std::uint32_t to = view ? view->destination - address_base_ - 1 : 0;
  if (!view || to >= size() || to == from) {
    ++hosts_[from].without_route;
    return;
  }
  PathCounters& count = path(from, to).counters;
  ++count.sent_packets;
  count.sent_bytes += packet.bytes.size();
  Host& host = hosts_[from];
  if (host.behind_nat) host.nat.went_out(now, *view);
  if (!host.up.push(now, {std::move(packet), from, to})) ++count.dropped_up;
}

void Network::advance(Time now, std::vector<Delivery>& out) {
  settle(now);
  for (Delivery& delivery : came_out_) out.push_back(std::move(delivery));
  came_out_.clear();
}

void Network::settle(Time now) {
  while (true) {
    Time earliest = in_flight_.empty() ? kNever : in_flight_.front().at;
    Host* host = nullptr;
    bool is_up = false;
    for (Host& each : hosts_) {
      if (each.down.next() < earliest) {
        earliest = each.down.next();
        host = &each;
        is_up = false;
      }
      if (each.up.next() < earliest) {
        earliest = each.up.next();
        host = &each;
        is_up = true;
      }
    }
    if (earliest == kNever || earliest > now) return;
    if (host == nullptr) {
      Transit transit = pop_in_flight();
      PathCounters& count = path(transit.from, transit.to).counters;
      if (!hosts_[transit.to].down.push(earliest, std::move(transit))) ++count.dropped_down;
    } else if (is_up) {
      enter_path(earliest, host->up.pop());
    } else {
      leave_down(earliest, host->down.pop());
    }
  }
}

Time Network::next() const {
  if (!came_out_.empty()) return came_out_.front().at;
  Time earliest = in_flight_.empty() ? kNever : in_flight_.front().at;
  for (const Host& host : hosts_) earliest = std::min({earliest, host.up.next(), host.down.next()});
  return earliest;
}

bool Network::is_cut(HostIndex from, HostIndex to) const {
  return hosts_[from].cut || hosts_[to].cut || paths_[from * size() + to].cut;
}

void Network::enter_path(Time now, Transit&& transit) {
  Path& path = this->path(transit.from, transit.to);
  // Every packet draws all of these, used or not, so that turning one on does not change the others.
  const bool lost = path.chance.chance(path.spec.loss);
  const bool held = path.chance.chance(path.spec.reorder);
  const bool twice = path.chance.chance(path.spec.duplicate);
  if (is_cut(transit.from, transit.to)) {
    ++path.counters.dropped_cut;
    return;
  }
  if (lost) {
    ++path.counters.lost;
    return;
  }
  Time arrival = now + path.spec.delay + jitter_at(now, path.spec.jitter, path.jitter_seed);
  if (held) {
    arrival += kReorderHold;
    ++path.counters.held_back;
  } else {
    arrival = path.last_arrival = std::max(arrival, path.last_arrival);
  }
  if (twice) {
    ++path.counters.duplicated;
    add_in_flight(arrival, Transit(transit));
  }
  add_in_flight(arrival, std::move(transit));
}

void Network::add_in_flight(Time at, Transit&& transit) {
  in_flight_.push_back({at, next_order_++, std::move(transit)});
  std::push_heap(in_flight_.begin(), in_flight_.end(), kLater);
}

Transit Network::pop_in_flight() {
  std::pop_heap(in_flight_.begin(), in_flight_.end(), kLater);
  Transit transit = std::move(in_flight_.back().transit);
  in_flight_.pop_back();
  return transit;
}

void Network::leave_down(Time now, Transit&& transit) {
  PathCounters& count = path(transit.from, transit.to).counters;
  Host& host = hosts_[transit.to];
  if (is_cut(transit.from, transit.to)) {
    ++count.dropped_cut;
    return;
  }
  if (host.behind_nat) {
    const std::optional<PacketView> view = view_of(transit.packet.bytes);
    if (!view || !host.nat.lets_in(now, *view)) {
      ++count.dropped_nat;
      return;
    }
  }
  ++count.delivered_packets;
  count.delivered_bytes += transit.packet.bytes.size();
  came_out_.push_back({now, transit.to, std::move(transit.packet)});
}

void Network::apply(Time now, const Change& change) {
  settle(now);
  if (const auto* cut = std::get_if<Cut>(&change)) {
    set_cut(*cut);
  } else if (const auto* rate = std::get_if<SetRate>(&change)) {
    hosts_[rate->host].down.set_rate(now, rate->down);
    hosts_[rate->host].up.set_rate(now, rate->up);
  } else if (const auto* set = std::get_if<SetPath>(&change)) {
    set->change.apply_to(path(set->from, set->to).spec);
    if (set->both_ways) set->change.apply_to(path(set->to, set->from).spec);
  }
}

void Network::set_cut(const Cut& cut) {
  if (!cut.host) {
    for (Host& host : hosts_) host.cut = cut.cut;
    for (Path& each : paths_) each.cut = cut.cut;
  } else if (!cut.peer) {
    hosts_[*cut.host].cut = cut.cut;
  } else {
    path(*cut.host, *cut.peer).cut = cut.cut;
    path(*cut.peer, *cut.host).cut = cut.cut;
  }
}

Time jitter_at(Time now, Time jitter, std::uint64_t seed) {
  if (jitter <= Time::zero()) return Time::zero();
  constexpr Time kStep = std::chrono::milliseconds(20);
  const auto knot = [&](std::int64_t index) {
    SplitMix64 hash(seed ^ static_cast<std::uint64_t>(index) * 0xD1B5'4A32'D192'ED03);
    return static_cast<double>(hash.next() >> 11) * 0x1.0p-53;
  };
  const std::int64_t index = now / kStep;
  const double part = static_cast<double>((now % kStep).count()) / static_cast<double>(kStep.count());
  const double value = knot(index) * (1 - part) + knot(index + 1) * part;
  return Time(static_cast<std::int64_t>(value * static_cast<double>(jitter.count())));
}

}  // namespace collab::lab
