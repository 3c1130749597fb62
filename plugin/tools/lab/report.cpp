#include "tools/lab/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "core/base/text.h"
#include "tools/lab/host_network.h"

namespace collab::lab {
namespace {

double seconds_of(Time time) { return std::chrono::duration<double>(time).count(); }

std::string megabytes(std::uint64_t bytes) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3f", static_cast<double>(bytes) / 1e6);
  return buffer;
}

std::string row(std::size_t width, const std::vector<std::string>& cells) {
  std::string line = "lab: " + cells[0] + std::string(width - cells[0].size(), ' ');
  for (std::size_t i = 1; i < cells.size(); ++i) {
    line += std::string(cells[i].size() < 13 ? 13 - cells[i].size() : 1, ' ') + cells[i];
  }
  return line + "\n";
}

}  // namespace

std::string traffic_table(const Network& network, const NetworkSpec& spec, Time elapsed) {
  char head[96];
  std::snprintf(head, sizeof head, "lab: traffic in %.1f s, bytes and packets of IP\n", seconds_of(elapsed));
  std::size_t width = 4;
  for (const HostSpec& host : spec.hosts) width = std::max(width, host.name.size());
  std::string text =
      head + row(width, {"site", "sent MB", "received MB", "lost", "queue full", "cut", "nat", "no route"});
  for (HostIndex host = 0; host < network.size(); ++host) {
    std::uint64_t sent = 0, received = 0, lost = 0, full = 0, cut = 0, nat = 0;
    for (HostIndex peer = 0; peer < network.size(); ++peer) {
      const PathCounters& out = network.counters(host, peer);
      sent += out.sent_bytes;
      received += network.counters(peer, host).delivered_bytes;
      lost += out.lost;
      full += out.dropped_up + out.dropped_down;
      cut += out.dropped_cut;
      nat += out.dropped_nat;
    }
    text += row(
        width, {spec.hosts[host].name, megabytes(sent), megabytes(received), std::to_string(lost), std::to_string(full),
                std::to_string(cut), std::to_string(nat), std::to_string(network.without_route(host))});
  }
  return text;
}

std::string traffic_json(const Network& network, const NetworkSpec& spec, Time elapsed) {
  char head[96];
  std::snprintf(head, sizeof head, "{\"seconds\": %.6f, \"seed\": %" PRIu64 ", \"sites\": [", seconds_of(elapsed),
                spec.seed);
  std::string text = head;
  for (HostIndex host = 0; host < network.size(); ++host) {
    text += (host > 0 ? ",\n  {" : "\n  {");
    text += "\"name\": " + json_quote(spec.hosts[host].name);
    text += ", \"address\": " + json_quote(address_text(spec.address_base + 1 + static_cast<std::uint32_t>(host)));
    text += ", \"without_route\": " + std::to_string(network.without_route(host)) + "}";
  }
  text += "],\n \"paths\": [";
  bool first = true;
  for (HostIndex from = 0; from < network.size(); ++from) {
    for (HostIndex to = 0; to < network.size(); ++to) {
      if (from == to) continue;
      const PathCounters& count = network.counters(from, to);
      text += first ? "\n  {" : ",\n  {";
      first = false;
      text += "\"from\": " + json_quote(spec.hosts[from].name) + ", \"to\": " + json_quote(spec.hosts[to].name);
      const std::pair<const char*, std::uint64_t> values[] = {{"sent_packets", count.sent_packets},
                                                              {"sent_bytes", count.sent_bytes},
                                                              {"delivered_packets", count.delivered_packets},
                                                              {"delivered_bytes", count.delivered_bytes},
                                                              {"lost", count.lost},
                                                              {"duplicated", count.duplicated},
                                                              {"held_back", count.held_back},
                                                              {"dropped_up", count.dropped_up},
                                                              {"dropped_down", count.dropped_down},
                                                              {"dropped_cut", count.dropped_cut},
                                                              {"dropped_nat", count.dropped_nat}};
      for (const auto& [name, value] : values) text += ", \"" + std::string(name) + "\": " + std::to_string(value);
      text += "}";
    }
  }
  return text + "]}\n";
}

}  // namespace collab::lab
