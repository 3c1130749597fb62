#include "transport/tcp/engine/balance.h"

#include <algorithm>

#include "transport/tcp/engine/engine_parts.h"
#include "transport/tcp/pace/mechanisms.h"
#include "transport/tcp/pace/remaining.h"

namespace collab::tcp {
namespace {

// Whether data waits and has a connection to go over.
bool waits(const TcpLink& link) { return link.pacing.backlogged() && !link.connections.alone(); }

double to_go(TcpLink& link) { return static_cast<double>(link.session.outbox(Lane::kData).bytes_to_go()); }

}  // namespace

void Balance::tick(TimePoint now) {
  if (!off(Mechanism::kPatience)) compare();
  if (!off(Mechanism::kShares)) note_exchange(now);
}

// Compares what all links still have to send at this moment.
void Balance::compare() {
  Remaining remaining;
  for (const auto& [id, link] : all_.links.all()) {
    if (waits(*link)) remaining.add(to_go(*link), link->pacing.pace().line());
  }
  for (const auto& [id, link] : all_.links.all()) {
    link->pacing.set_behind(waits(*link) ? remaining.behind(to_go(*link), link->pacing.pace().line()) : 0);
  }
}

void Balance::note_exchange(TimePoint now) {
  const auto& links = all_.links.all();
  backlog_.note(now, std::ranges::any_of(links, [](const auto& entry) { return waits(*entry.second); }));
  if (!backlog_.over(now)) return;
  for (const auto& [id, link] : links) link->pacing.exchange_ended(backlog_);
  backlog_ = {};
}

}  // namespace collab::tcp
