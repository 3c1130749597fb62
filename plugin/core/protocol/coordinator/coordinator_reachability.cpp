// Ways between members: who can be dialled, and what follows where nobody can. The coordinator's own try is a hint and
// no verdict: whom it does not get through to others may reach, so such pairs try each other all the same.
#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"

namespace collab::protocol {

// It dials the others from now on, and owns no slice while there are some that can be dialled for sure.
void Coordinator::State::on_event(const Undialable& event) {
  const auto found = links.find(event.link);
  if (found == links.end()) return;
  MemberRecord& member = members.at(found->second);
  member.unverified = true;
  note(Note::Level::kWarning, "address",
       member.name + " cannot be dialled at " + member.address + " (" + event.reason + "): it dials the others",
       {{"who", json_quote(member.name)}});
  send(member, wire::Notice{std::string(kDialOut),
                            "nobody can dial this site at " + member.address + " (" + event.reason +
                                "): it dials out, and owns no part of the model in rounds where others can. If it can "
                                "be dialled at another address, set COLLAB_ADVERTISE, and a port in COLLAB_LISTEN; "
                                "COLLAB_ADVERTISE=none says that it cannot"});
  for (auto& [id, other] : members) {  // sources were chosen before this was known
    if (other.phase != MemberPhase::kInstalling || reaches_any(other, other.sources)) continue;
    std::vector<SiteId> better = pick_sources(other);
    if (reaches_any(other, better)) send_install(other, std::move(better));
  }
  spare_links();
  tell_unreachable("");
}

bool Coordinator::State::reaches_any(const MemberRecord& member, const std::vector<SiteId>& sources) const {
  return std::ranges::any_of(
      sources, [&](SiteId id) { return id == member.id || member.dialable() || members.at(id).dialable(); });
}

// Nobody who holds the anchor has an address, nor has the joiner: one that can be dialled may take it first, or a
// helper may come. Who has one tries it at once, and gives up by itself.
bool Coordinator::State::waits_until_reachable(MemberRecord& joiner, const std::vector<SiteId>& sources) {
  const auto has_address = [this](SiteId id) { return !members.at(id).address.empty(); };
  if (!joiner.address.empty() || sources == std::vector{joiner.id}) return false;
  if (std::ranges::any_of(sources, has_address)) return false;
  const bool comes = std::ranges::any_of(members, [](const auto& entry) {
    const bool on_its_way =
        entry.second.phase == MemberPhase::kJoined || entry.second.phase == MemberPhase::kInstalling;
    return on_its_way && entry.second.dialable();
  });
  if (comes) return true;
  if (joiner.unreachable_since == kNever) {
    joiner.unreachable_since = now;
    note(Note::Level::kWarning, "waiting",
         joiner.name + " cannot take the anchor from " + name_of(sources.front()) +
             ": neither can be dialled; run `collab helper` on a machine that both reach (" +
             in_seconds(config.link_grace) + ", COLLAB_LINK_GRACE)",
         {{"who", json_quote(joiner.name)}});
  }
  return now < later(joiner.unreachable_since, config.link_grace);
}

// That of two an owner has no way to would show after the limit for links only: the attempt is formed again with owners
// that all can reach. Where somebody is done all have reached each other.
void Coordinator::State::spare_links() {
  if (!round.attempt || round.done > 0) return;
  std::vector<std::string> unverified;
  bool any_dialable = false;
  for (const wire::Participant& p : round.attempt->participants) {
    if (!p.here) continue;
    const MemberRecord& member = members.at(p.site);
    any_dialable = any_dialable || member.dialable();
    if (!member.dialable()) unverified.push_back(member.name);
  }
  const bool owned = std::ranges::any_of(
      round.attempt->slices, [this](const wire::Slice& slice) { return !members.at(slice.owner).dialable(); });
  if (!any_dialable || unverified.size() < 2 || !owned) return;
  note(Note::Level::kInfo, "address",
       "round " + std::to_string(number().value) + ": of " + join_words(unverified) +
           " none can be dialled; another attempt is formed, in which they own no slice",
       {{"round", std::to_string(number().value)}});
  abandon_attempt();
}

void Coordinator::State::tell_unreachable(const std::string& because) {
  const auto can = [](const auto& entry) { return entry.second.dialable(); };
  if (members.size() < 2 || std::ranges::any_of(members, can) || std::exchange(unreachable_told, true)) return;
  const std::string text = because + "none of " + join_words(member_list()) +
                           " can be dialled: unless they reach each other all the same, run `collab helper` on a "
                           "machine that all of them reach";
  note(Note::Level::kWarning, "address", text);
  Broadcast all{{}, wire::Notice{std::string(kDialOut), text}};
  for (const auto& [id, member] : members) all.links.push_back(member.link);
  out.emplace_back(std::move(all));
}

}  // namespace collab::protocol
