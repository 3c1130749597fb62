// The answer to a status query.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/wire/limits.h"

namespace collab {
namespace {

constexpr std::size_t kMaxContributed = 100;  // sites whose contributions are listed
// Limits in bytes for parts of an answer, which is one message (kMaxJsonBytes). Any process can bring many names.
constexpr std::size_t kMembersBytes = 500'000;
constexpr std::size_t kListBytes = 100'000;  // of each of the five other lists
static_assert(kMembersBytes + 5 * kListBytes + 8 * wire::kMaxReasonBytes < wire::kMaxJsonBytes);

const char* text_of(protocol::MemberPhase phase) {
  switch (phase) {
    case protocol::MemberPhase::kJoined: return "joined";
    case protocol::MemberPhase::kInstalling: return "installing";
    case protocol::MemberPhase::kActive: return "active";
    case protocol::MemberPhase::kStale: return "stale";
  }
  return "unknown";
}

const char* json_bool(bool value) { return value ? "true" : "false"; }

MemberStatus status_of(const protocol::CoordinatorParts& all, const protocol::Member& member, TimePoint at) {
  const wire::Ready ready = member.round.ready().value_or(wire::Ready{});
  const wire::Measured& measured = member.round.measured();
  const auto loss = std::bit_cast<float>(measured.loss);
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
          .up_mbit = measured.up_kbit / 1e3,
          .down_mbit = measured.down_kbit / 1e3,
          .share = all.slices.share_of(member.id),
          .loss = std::isfinite(loss) ? std::optional<double>(loss) : std::nullopt,
          .times = {.step_seconds = static_cast<double>(measured.step_us) / 1e6,
                    .round_seconds = static_cast<double>(measured.round_us) / 1e6,
                    .waited = measured.waited_ppm / 1e6,
                    .overlapped = measured.overlapped_ppm / 1e6,
                    .merged = measured.merged_ppm / 1e6},
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
         ",\"step_seconds\":" + json_number(member.times.step_seconds) +
         ",\"round_seconds\":" + json_number(member.times.round_seconds) +
         ",\"waited\":" + json_number(member.times.waited) + ",\"overlapped\":" + json_number(member.times.overlapped) +
         ",\"merged\":" + json_number(member.times.merged) +
         ",\"heartbeat_age_ms\":" + std::to_string(member.heartbeat_age_ms) + "}";
}

std::string json_of(const Contributed& of) {
  return "{\"name\":" + json_quote(of.name) + ",\"samples\":" + std::to_string(of.samples) +
         ",\"rounds\":" + std::to_string(of.rounds) + "}";
}

std::string json_of(const std::string& name) { return json_quote(name); }

// As many values as fit, and how many were left out.
template <typename T>
std::string json_of(const std::vector<T>& values, std::size_t most_bytes, std::size_t& left_out) {
  std::string text = "[";
  std::size_t told = 0;
  for (; told < values.size(); ++told) {
    const std::string entry = json_of(values[told]);
    if (text.size() + entry.size() + 2 > most_bytes) break;
    text += (told == 0 ? "" : ",") + entry;
  }
  left_out = values.size() - told;
  return text + "]";
}

template <typename T>
std::string field(const std::string& name, const std::vector<T>& values, std::size_t most_bytes = kListBytes) {
  std::size_t left_out = 0;
  std::string text = ",\"" + name + "\":" + json_of(values, most_bytes, left_out);
  if (left_out > 0) text += ",\"" + name + "_left_out\":" + std::to_string(left_out);
  return text;
}

}  // namespace

std::string to_json(const std::vector<Contributed>& contributed) {
  std::size_t none = 0;
  return json_of(contributed, SIZE_MAX, none);
}

std::string to_json(const SwarmStatus& status) {
  const auto waiting_for = std::string_view(status.waiting_for).substr(0, wire::kMaxReasonBytes);
  return "{\"swarm\":" + json_quote(status.swarm) + ",\"term\":" + std::to_string(status.term.value) +
         ",\"generation\":" + std::to_string(status.generation) + ",\"run\":" + std::to_string(status.run.value) +
         ",\"round\":" + std::to_string(status.round.value) + ",\"period\":" + std::to_string(status.period) +
         ",\"attempt\":" + std::to_string(status.attempt.value) + ",\"waiting_for\":" + json_quote(waiting_for) +
         ",\"spread\":" + (status.spread ? json_number(*status.spread) : "null") +
         ",\"cosine\":" + (status.cosine ? json_number(*status.cosine) : "null") +
         ",\"leads\":" + json_bool(status.leads) + field("voters", status.voters) +
         field("recovering", status.recovering) + field("missing", status.missing) +
         field("applicants", status.applicants) + field("members", status.members, kMembersBytes) +
         field("contributed", status.contributed) + "}";
}

namespace protocol {

SwarmStatus status_of(const CoordinatorParts& all, TimePoint at) {
  const bool leads = all.leadership.leads();
  const Election& election = all.leadership.election();
  // If this coordinator does not lead: what the sites that wait here know.
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
                     .spread = all.contributions.deltas().spread,
                     .cosine = all.contributions.deltas().cosine,
                     .waiting_for = leads ? all.round.waiting_text() : election.waiting_text(at),
                     .leads = leads,
                     .voters = {},
                     .recovering = {},
                     .missing = all.leadership.missed(),
                     .applicants = election.names(),
                     .members = {},
                     .contributed = all.contributions.tally().top(kMaxContributed)};
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
