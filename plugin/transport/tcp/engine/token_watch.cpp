#include "transport/tcp/engine/token_watch.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr Duration kEvery = std::chrono::seconds(1);  // how often the file is looked at
constexpr std::size_t kMostNamed = 3;

}  // namespace

// This also finds a connection that began before the file changed and attached after it.
void TokenWatch::tick(TimePoint now) {
  if (!all_.encrypts() || all_.links.empty() || now < next_) return;
  next_ = now + kEvery;
  const std::shared_ptr<const TlsContext> keys = all_.connection_context.keys->current();
  std::vector<std::string> peers;
  for (const auto& [id, link] : all_.links.all()) {
    if (close_old(*link, *keys)) peers.push_back(link->peer());
  }
  if (!peers.empty()) report_closed(now, peers);
}

// Reports the fault as no answer, not as an end by the peer. So if the peer is the dialler, the link waits its whole
// grace for a redial.
bool TokenWatch::close_old(const TcpLink& link, const TlsContext& keys) {
  bool any = false;
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    if (!link.connections.attached(i) || link.connections.at(i)->security().fits(keys)) continue;
    link.connections.at(i)->fail(Fault::kNoAnswer, unavailable("its token was taken out of COLLAB_TOKEN_FILE"));
    any = true;
  }
  return any;
}

void TokenWatch::report_closed(TimePoint now, const std::vector<std::string>& peers) {
  std::string named = peers.front();
  const std::size_t most = std::min(peers.size(), kMostNamed);
  for (std::size_t i = 1; i < most; ++i) named += ", " + peers[i];
  if (peers.size() > most) named += " and " + std::to_string(peers.size() - most) + " more";
  const auto line = closed_.allow(
      now,
      "tcp: a token was removed from COLLAB_TOKEN_FILE, so the connections made with it are closed: to " + named +
          ". A peer with a token that is still in the file dials again and loses nothing; other peers are shut out "
          "[token.dropped]");
  if (line) log_warning(*line);
}

}  // namespace collab::tcp
