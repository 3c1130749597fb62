// Ways to the anchor: what a site does that nobody can dial, and that reaches nobody who holds it.
#include <algorithm>

#include "core/protocol/site/site_state.h"

namespace collab::protocol {

// Who is on its way to the anchor becomes a source once it has it.
bool Site::State::reaches() const {
  const auto& sources = installation->install.sources;
  return std::ranges::any_of(
             sources, [this](SiteId source) { return linked(source) && installation->useless.count(source) == 0; }) ||
         std::ranges::any_of(roster, [this](const auto& entry) {
           return entry.second.state == wire::MemberState::kJoining && linked(entry.first);
         });
}

// Where this site can be dialled the others may come to it yet.
TimePoint Site::State::unreachable_until() const {
  if (!installation || installation->keeps || !cannot_be_dialled()) return kNever;
  return later(installation->unreachable_since, up.grace);
}

// Who has joined once trains on, and asks again at its next trigger.
void Site::State::unreachable(const std::string& what) {
  const std::string reason = "the anchor is at " + sources_text() + ", and " + what +
                             ": set COLLAB_LISTEN and COLLAB_ADVERTISE at one of them, or run `collab helper` on a "
                             "machine that both reach";
  if (!join_done) return fail(unavailable(reason));
  drop_coordinator(reason);
  if (at_trigger()) skip(reason);
}

void Site::State::on_unreachable_tick() {
  if (now < unreachable_until()) return;
  std::string last;
  for (const SiteId source : installation->install.sources) {
    const auto dial = peer_dials.find(source);
    if (dial != peer_dials.end()) last = ", last: " + dial->second.last_reason;
  }
  unreachable("neither it nor this site can be dialled (no link within " + in_seconds(up.grace) +
              ", COLLAB_LINK_GRACE" + last + ")");
}

std::string Site::State::unreachable_text(TimePoint at) const {
  if (unreachable_until() == kNever) return "";
  return " (no link with it so far, and nobody can dial this site: in " +
         in_seconds(std::max(Duration{0}, unreachable_until() - at)) +
         " it gives up, unless `collab helper` runs on a machine that both reach)";
}

}  // namespace collab::protocol
