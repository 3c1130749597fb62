// Looking at the other candidates: two swarms of one run may have been founded apart, or one of them may lead where
// this site only waits.
//
//   member, waiting or held --once in a while: the next candidate--> asked --it leads, and has agreed on more--> go
//   there
//
// The answer decides by itself, and alike at all sites: one that goes is followed by the others.
#include <algorithm>
#include <tuple>

#include "core/protocol/site/site_state.h"

namespace collab::protocol {
namespace {

// Of two swarms that grow at the same pace the order must not turn over: while neither has agreed on twice as much as
// the other, the larger stays, which grows by each site that comes over; of two as large the later run.
bool outranks(const wire::Leads& there, const wire::Offer& agreed, std::uint32_t members) {
  if (there.run == agreed.run) return false;
  if (there.round.value > 2 * agreed.round.value + 2) return true;
  if (agreed.round.value > 2 * there.round.value + 2) return false;
  return std::tie(there.members, there.run) > std::tie(members, agreed.run);
}

// Of candidates where sites wait, the one where most do; of two alike the one with the lower name. So they all come
// together, whichever they know and can reach.
bool waits_better(const wire::Leads& there, const wire::Leads& here) {
  return there.members > here.members || (there.members == here.members && there.run < here.run);
}

}  // namespace

// Where nobody leads, or nothing was agreed on yet.
bool Site::State::waits() const {
  return membership == SitePhase::kWaiting || (membership == SitePhase::kAsking && up.join_sent && !hold);
}

// Those who train here are at another generation, or may come back at one. Elsewhere this site's own may have begun.
bool Site::State::held() const { return membership == SitePhase::kAsking && up.join_sent && hold; }

bool Site::State::inquires() const {
  if (config.coordinators.size() < 2) return false;
  return waits() || held() || (membership == SitePhase::kActive && !join.helper);
}

void Site::State::inquire() {
  if (!inquires() || now < up.inquiry.next) return;
  if (up.inquiry.of) return end_inquiry("no answer");
  const auto count = static_cast<std::uint32_t>(config.coordinators.size());
  up.inquiry.last = (up.inquiry.last + 1) % count;
  if (up.inquiry.last == up.candidate) up.inquiry.last = (up.inquiry.last + 1) % count;
  up.inquiry.of = up.inquiry.last;
  const Duration each = std::max(up.heartbeat, up.grace / static_cast<int>(count - 1));  // once a grace
  up.inquiry.next = later(now, waits() || held() ? kLeastPatience : each);
  out.emplace_back(DialCoordinator{up.inquiry.last, true});
}

void Site::State::end_inquiry(const std::string& why) {
  if (up.inquiry.link) out.emplace_back(Hangup{*up.inquiry.link, why});
  up.inquiry.link.reset();
  up.inquiry.of.reset();
  const TimePoint soon = later(now, up.heartbeat);  // who waits goes through a long list in good time
  up.inquiry.next = waits() || held() ? soon : std::max(up.inquiry.next, soon);
}

void Site::State::on_leads(const wire::Leads& leads) {
  const std::uint32_t candidate = *up.inquiry.of;
  end_inquiry("it has answered");
  const bool same = leads.generation == join.generation || (join.helper && agreed.run.value == 0);
  if ((leads.leads && !same) || !inquires() || !up.link) return;
  std::string what;
  if (!waits() && !held()) {
    if (!leads.leads || !outranks(leads, agreed, static_cast<std::uint32_t>(roster.size()))) return;
    what = "leads a swarm that has agreed on more, of run " + std::to_string(leads.run.value);
  } else if (leads.leads) {
    what = "leads a swarm that has begun";
  } else if (waits() && up.here && now >= up.stays_until && waits_better(leads, *up.here)) {
    what = "is where most wait: " + std::to_string(leads.members) + " there, " + std::to_string(up.here->members) +
           " here";
  } else {
    return;
  }
  drop_coordinator("another candidate " + what);
  up.candidate = candidate;
  up.dial_at = now;
}

}  // namespace collab::protocol
