// Ways to the anchor: what a site does that nobody can dial, and that reaches nobody who holds it.
#include <algorithm>

#include "core/protocol/site/site_state.h"

namespace collab::protocol {

// Who is on its way to the anchor becomes a source once it has it.
bool Site::State::has_way() const {
  const auto& sources = adoption->adopt.sources;
  return std::ranges::any_of(
             sources, [this](SiteId source) { return linked(source) && adoption->useless.count(source) == 0; }) ||
         std::ranges::any_of(roster, [this](const auto& entry) {
           return entry.second.state == wire::MemberState::kJoining && linked(entry.first);
         });
}

// Where this site can be dialled the others may come to it yet.
TimePoint Site::State::no_way_until() const {
  if (!adoption || adoption->keeps || !cannot_be_dialled()) return kNever;
  return later(adoption->no_way_since, up.grace);
}

// Who has joined once trains on, and asks again at its next trigger.
void Site::State::no_way(const std::string& what) {
  const std::string reason = "the anchor is at " + sources_in_words() + ", and " + what +
                             ": set COLLAB_LISTEN and COLLAB_ADVERTISE at one of them, or run `collab helper` on a "
                             "machine that both reach";
  if (!join_done) return fail(unavailable(reason));
  drop_coordinator(reason);
  if (at_trigger()) skip(reason);
}

void Site::State::on_no_way_tick() {
  if (now < no_way_until()) return;
  std::string last;
  for (const SiteId source : adoption->adopt.sources) {
    const auto dial = peer_dials.find(source);
    if (dial != peer_dials.end()) last = ", last: " + dial->second.last_reason;
  }
  no_way("neither it nor this site can be dialled (no link within " + in_seconds(up.grace) + ", COLLAB_LINK_GRACE" +
         last + ")");
}

std::string Site::State::no_way_in_words(TimePoint at) const {
  if (no_way_until() == kNever) return "";
  return " (no link with it so far, and nobody can dial this site: in " +
         in_seconds(std::max(Duration{0}, no_way_until() - at)) +
         " it gives up, unless `collab helper` runs on a machine that both reach)";
}

}  // namespace collab::protocol
