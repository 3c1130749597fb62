// What a status query is told.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"

namespace collab {
namespace {

constexpr std::size_t kMaxContributed = 100;  // that are told

const char* text_of(protocol::MemberPhase phase) {
  switch (phase) {
    case protocol::MemberPhase::kJoined: return "joined";
    case protocol::MemberPhase::kInstalling: return "adopting";
    case protocol::MemberPhase::kActive: return "active";
    case protocol::MemberPhase::kStale: return "behind";
  }
  return "unknown";
}

const char* json_bool(bool value) { return value ? "true" : "false"; }

MemberStatus status_of(const protocol::CoordinatorParts& all, const protocol::Member& member, TimePoint at) {
  const wire::Ready ready = member.round.ready().value_or(wire::Ready{});
  const auto loss = std::bit_cast<float>(member.round.loss());
  const auto age = std::max<Duration::rep>(0, (at - member.contact.last_heard()).count() / 1000);
  return {.site = member.id,
          .name = member.name,
          .address = member.address,
          .state = member.contact.suspect() ? "suspect" : text_of(member.phase()),
          .helper = member.helper,
          .ready = member.round.ready().has_value(),
          .round = member.brought().round,
          .weight = ready.weight,
          .samples = ready.samples,
          .up_mbit = member.round.up_kbit() / 1e3,
          .down_mbit = member.round.down_kbit() / 1e3,
          .share = all.slices.share_of(member.id),
          .loss = std::isfinite(loss) ? std::optional<double>(loss) : std::nullopt,
          .heartbeat_age_ms = static_cast<std::uint64_t>(age)};
}

std::string json_of(const MemberStatus& member) {
  return "{\"site\":" + std::to_string(member.site.value) + ",\"name\":" + json_quote(member.name) +
         ",\"address\":" + json_quote(member.address) + ",\"state\":\"" + member.state +
         "\",\"helper\":" + json_bool(member.helper) + ",\"ready\":" + json_bool(member.ready) +
         ",\"round\":" + std::to_string(member.round.value) + ",\"weight\":" + json_number(member.weight) +
         ",\"samples\":" + std::to_string(member.samples) + ",\"up_mbit\":" + json_number(member.up_mbit) +
         ",\"down_mbit\":" + json_number(member.down_mbit) + ",\"share\":" + json_number(member.share) +
         ",\"loss\":" + (member.loss ? json_number(*member.loss) : "null") +
         ",\"heartbeat_age_ms\":" + std::to_string(member.heartbeat_age_ms) + "}";
}

std::string json_of(const Contributed& of) {
  return "{\"name\":" + json_quote(of.name) + ",\"samples\":" + std::to_string(of.samples) +
         ",\"rounds\":" + std::to_string(of.rounds) + "}";
}

template <typename T>
std::string json_of(const std::vector<T>& values) {
  std::vector<std::string> entries;
  for (const T& value : values) entries.push_back(json_of(value));
  return "[" + protocol::join_words(entries, ",") + "]";
}

}  // namespace

std::string to_json(const std::vector<Contributed>& contributed) { return json_of(contributed); }

std::string to_json(const SwarmStatus& status) {
  using protocol::json_list;
  return "{\"swarm\":" + json_quote(status.swarm) + ",\"term\":" + std::to_string(status.term.value) +
         ",\"generation\":" + std::to_string(status.generation) + ",\"run\":" + std::to_string(status.run.value) +
         ",\"round\":" + std::to_string(status.round.value) + ",\"period\":" + std::to_string(status.period) +
         ",\"attempt\":" + std::to_string(status.attempt.value) + ",\"waiting_for\":" + json_quote(status.waiting_for) +
         ",\"leads\":" + json_bool(status.leads) + ",\"voters\":" + json_list(status.voters) +
         ",\"recovering\":" + json_list(status.recovering) + ",\"missing\":" + json_list(status.missing) +
         ",\"applicants\":" + json_list(status.applicants) + ",\"members\":" + json_of(status.members) +
         ",\"contributed\":" + to_json(status.contributed) + "}";
}

namespace protocol {

SwarmStatus status_of(const CoordinatorParts& all, TimePoint at) {
  const bool leads = all.leadership.leads();
  const Election& election = all.leadership.election();
  // Where it does not lead: as far as those who wait here know.
  const Election::Newest waiting = leads ? Election::Newest() : election.newest();
  const auto& anchor = all.anchor.record();
  const wire::Offer agreed = leads && anchor ? offer_of(*anchor) : waiting.anchor;
  const Members& members = all.membership.members();
  const auto& attempt = all.round.attempt();
  SwarmStatus status{.swarm = all.config.swarm,
                     .term = all.leadership.term(),
                     .generation = all.generation.generations().current(),
                     .run = agreed.run,
                     .round = agreed.round,
                     .period = all.period.in_force(),
                     .attempt = attempt ? attempt->attempt : AttemptId{},
                     .waiting_for = leads ? all.round.waiting_text() : election.waiting_text(at),
                     .leads = leads,
                     .voters = {},
                     .recovering = {},
                     .missing = all.leadership.missed(),
                     .applicants = election.names(),
                     .members = {},
                     .contributed = all.tally.top(kMaxContributed)};
  for (const wire::Voter& voter : waiting.voters) status.voters.push_back(voter.name);
  for (const auto& [id, voter] : all.agreed.voters()) {
    status.voters.push_back(voter.name);
    const auto member = members.find(id);
    if (!voter.left && member != members.end() && member->second.anchor.acceptor() != voter.acceptor) {
      status.recovering.push_back(voter.name);  // here, without its record
    }
  }
  for (const auto& [id, member] : members) status.members.push_back(collab::status_of(all, member, at));
  return status;
}

}  // namespace protocol
}  // namespace collab
