// Room for connections of those who have not said who they are, and of links that others have dialled.
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "transport/tcp/tcp_engine.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kMaxStrangers = 256;  // connections that have not said who they are
constexpr std::size_t kLeastStrangers = 32;
constexpr std::size_t kMaxHosts = 4096;  // remembered
constexpr std::size_t kLeastDataConnections = 128;

// A process may have 1,024 files, as a rule, and needs some of its own, for its record above all: an eighth is for
// strangers, another for links of which nothing was handled yet, a quarter for data.
std::size_t files() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}
std::size_t most_strangers() { return std::clamp<std::size_t>(files() / 8, kLeastStrangers, kMaxStrangers); }

}  // namespace

// Those whose hello has not come go first: with a token nobody else can send one, so however many knock and however
// far away a newcomer is, it keeps its place through the handshake.
void TcpEngine::make_room() {
  const auto is_silent = [](const ConnectionPtr& connection) { return !connection->hello_came(); };
  const std::size_t most = most_strangers();
  while (std::cmp_greater_equal(std::ranges::count_if(loose_, is_silent), most / 2)) turn_out(is_silent);
  while (loose_.size() >= most) turn_out([](const ConnectionPtr&) { return true; });
}

// Links come as fast as others open them, and whoever serves them in this process may be at work elsewhere meanwhile.
// Those of which no message has been handled yet are bounded: the oldest goes, of the networks with the most.
void TcpEngine::make_room_for_link() {
  std::map<asio::ip::address, std::vector<TcpLink*>> waiting;  // the oldest first
  std::size_t count = 0;
  for (const auto& [id, link] : links_) {
    if (link->dialled || link->unhandled->any_handled()) continue;
    const Connection* const control = link->control();
    waiting[control == nullptr ? asio::ip::address() : network_of(control->peer().address())].push_back(link.get());
    ++count;
  }
  if (count < most_strangers()) return;
  const auto most_of = std::ranges::max_element(waiting, {}, [](const auto& entry) { return entry.second.size(); });
  end_link(*most_of->second.front(), unavailable("too many links wait here for their first message to be handled"));
}

// The oldest of the networks with the most, so that one scanner cannot push others out; of hosts that have had a link
// here only where nobody else is left.
template <typename Among>
void TcpEngine::turn_out(Among among) {
  std::map<asio::ip::address, std::size_t> by_network;
  for (const ConnectionPtr& connection : loose_) {
    if (among(connection)) ++by_network[network_of(connection->peer().address())];
  }
  auto chosen = loose_.end();
  std::pair<bool, std::size_t> worst;
  for (auto at = loose_.begin(); at != loose_.end(); ++at) {
    if (!among(*at)) continue;
    const asio::ip::address address = (*at)->peer().address();
    const std::pair<bool, std::size_t> rank(!hosts_.contains(address), by_network.at(network_of(address)));
    if (chosen != loose_.end() && rank <= worst) continue;  // the oldest comes first
    worst = rank;
    chosen = at;
  }
  (*chosen)->close();
  loose_.erase(chosen);
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

std::size_t TcpEngine::most_data_connections() { return std::max(kLeastDataConnections, files() / 4); }

// Of links that others have dialled.
std::size_t TcpEngine::data_connections() const {
  std::size_t count = 0;
  for (const auto& [id, link] : links_) count += link->dialled ? 0 : link->attached_data();
  return count;
}

}  // namespace collab::tcp
