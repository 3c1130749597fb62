// Room for connections of those who have not said who they are, and of links that others have dialled.
#include <sys/resource.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/base/log.h"
#include "transport/tcp/tcp_engine.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kMaxSilent = 128;     // connections that have sent nothing
constexpr std::size_t kMaxStrangers = 256;  // that have not said who they are, those included
constexpr std::size_t kMaxHosts = 4096;     // remembered
constexpr std::size_t kLeastDataConnections = 256;

}  // namespace

// Those who have said nothing at all go first: to be kept, a stranger has to take the trouble of a handshake.
void TcpEngine::make_room() {
  const auto is_silent = [](const ConnectionPtr& connection) { return !connection->has_spoken(); };
  if (std::cmp_greater_equal(std::ranges::count_if(loose_, is_silent), kMaxSilent)) {
    turn_out(is_silent);
  } else if (loose_.size() >= kMaxStrangers) {
    turn_out([](const ConnectionPtr&) { return true; });
  }
}

// The oldest of the network with the most, so that one scanner cannot push others out; of hosts that have had a link
// here only where nobody else is left.
template <typename Among>
void TcpEngine::turn_out(Among among) {
  std::map<std::pair<bool, asio::ip::address>, std::size_t> by_network;
  const auto network = [this](const ConnectionPtr& connection) {
    const asio::ip::address address = connection->peer().address();
    return std::pair(!hosts_.contains(address), network_of(address));
  };
  for (const ConnectionPtr& connection : loose_) {
    if (among(connection)) ++by_network[network(connection)];
  }
  const auto most = std::ranges::max_element(by_network, [](const auto& a, const auto& b) {
    return std::pair(a.first.first, a.second) < std::pair(b.first.first, b.second);
  });
  const auto oldest = std::ranges::find_if(
      loose_, [&](const ConnectionPtr& connection) { return among(connection) && network(connection) == most->first; });
  (*oldest)->close();
  loose_.erase(oldest);
  ++counters_.refused;
}

void TcpEngine::remember_host(const boost::asio::ip::address& host) {
  if (!hosts_.insert(host).second) return;
  hosts_in_order_.push_back(host);
  if (hosts_in_order_.size() <= kMaxHosts) return;
  hosts_.erase(hosts_in_order_.front());
  hosts_in_order_.pop_front();
}

void TcpEngine::turn_away(Connection& connection, Refusal why, const std::string& words) {
  ++counters_.refused;
  Bytes answer = encode_preface();
  const Bytes refusal = encode(Refuse{why, words});
  answer.insert(answer.end(), refusal.begin(), refusal.end());
  connection.send(std::move(answer));
  connection.deadline = now() + kDrainLimit;
  connection.drain();
}

void TcpEngine::tell_turned_away(const Endpoint& from, const std::string& words) {
  const auto line = turned_away_.let(now(), "tcp: a connection from " + to_text(from) + " was turned away: " + words);
  if (line) log_warning(*line);
}

// Of links that others have dialled: a process may have 1,024 files, and needs some for its own.
std::size_t TcpEngine::most_data_connections() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return kLeastDataConnections;
  return std::max<std::size_t>(kLeastDataConnections, files.rlim_cur / 2);
}

std::size_t TcpEngine::data_connections() const {
  std::size_t count = 0;
  for (const auto& [id, link] : links_) count += link->dialled ? 0 : link->attached_data();
  return count;
}

}  // namespace collab::tcp
