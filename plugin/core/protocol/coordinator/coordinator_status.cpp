// What a status query is told.
#include <algorithm>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"

namespace collab::protocol {
namespace {

const char* text_of(MemberPhase phase) {
  switch (phase) {
    case MemberPhase::kJoined: return "joined";
    case MemberPhase::kInstalling: return "adopting";
    case MemberPhase::kActive: return "active";
    case MemberPhase::kStale: return "behind";
  }
  return "unknown";
}

const char* json_bool(bool value) { return value ? "true" : "false"; }

std::string member_json(const CoordinatorParts& all, const Member& member, TimePoint at) {
  const wire::Ready ready = member.round.ready().value_or(wire::Ready{});
  const auto age = std::max<Duration::rep>(0, (at - member.contact.last_heard()).count() / 1000);
  return "{\"site\":" + std::to_string(member.id.value) + ",\"name\":" + json_quote(member.name) +
         ",\"address\":" + json_quote(member.address) + ",\"state\":\"" +
         (member.contact.suspect() ? "suspect" : text_of(member.phase())) +
         "\",\"helper\":" + json_bool(member.helper) + ",\"ready\":" + json_bool(member.round.ready().has_value()) +
         ",\"round\":" + std::to_string(member.brought().round.value) + ",\"weight\":" + json_number(ready.weight) +
         ",\"samples\":" + std::to_string(ready.samples) + ",\"up_mbit\":" + json_number(member.round.up_kbit() / 1e3) +
         ",\"down_mbit\":" + json_number(member.round.down_kbit() / 1e3) +
         ",\"share\":" + json_number(all.slices.share_of(member.id)) + ",\"heartbeat_age_ms\":" + std::to_string(age) +
         "}";
}

}  // namespace

std::string status_json(const CoordinatorParts& all, TimePoint at) {
  const bool leads = all.leadership.leads();
  const Election& election = all.leadership.election();
  // Where it does not lead: as far as those who wait here know.
  const Election::Newest waiting = leads ? Election::Newest() : election.newest();
  const auto& anchor = all.anchor.record();
  const wire::Offer agreed = leads && anchor ? offer_of(*anchor) : waiting.anchor;
  const Members& members = all.membership.members();
  std::vector<std::string> voter_names;
  for (const wire::Voter& voter : waiting.voters) voter_names.push_back(voter.name);
  std::vector<std::string> recovering;  // here, without their records
  for (const auto& [id, voter] : all.agreed.voters()) {
    voter_names.push_back(voter.name);
    const auto member = members.find(id);
    if (!voter.left && member != members.end() && member->second.anchor.acceptor() != voter.acceptor) {
      recovering.push_back(voter.name);
    }
  }
  const auto& attempt = all.round.attempt();
  std::string text =
      "{\"swarm\":" + json_quote(all.config.swarm) + ",\"term\":" + std::to_string(all.leadership.term().value) +
      ",\"generation\":" + std::to_string(all.generation.generations().current()) +
      ",\"run\":" + std::to_string(agreed.run.value) + ",\"round\":" + std::to_string(agreed.round.value) +
      ",\"period\":" + std::to_string(all.period.in_force()) +
      ",\"attempt\":" + std::to_string(attempt ? attempt->attempt.value : 0) +
      ",\"waiting_for\":" + json_quote(leads ? all.round.waiting_text() : election.waiting_text(at)) +
      ",\"leads\":" + json_bool(leads) + ",\"voters\":" + json_list(voter_names) +
      ",\"recovering\":" + json_list(recovering) + ",\"missing\":" + json_list(all.leadership.missed()) +
      ",\"applicants\":" + json_list(election.names()) + ",\"members\":[";
  std::vector<std::string> entries;
  for (const auto& [id, member] : members) entries.push_back(member_json(all, member, at));
  return text + join_words(entries, ",") + "]}";
}

}  // namespace collab::protocol
