// The coordinator's dispatch: which sub-protocol answers which event. The drawing is in coordinator_state.h.
#include "core/protocol/coordinator/coordinator.h"

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/wire/encoding.h"

namespace collab::protocol {

Coordinator::Coordinator(CoordinatorConfig config) : state_(std::make_unique<State>(std::move(config))) {}
Coordinator::~Coordinator() = default;
Coordinator::Coordinator(Coordinator&&) noexcept = default;
Coordinator& Coordinator::operator=(Coordinator&&) noexcept = default;
Coordinator::Coordinator(const Coordinator& other) : state_(std::make_unique<State>(*other.state_)) {}
Coordinator& Coordinator::operator=(const Coordinator& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}

std::vector<CoordinatorAction> Coordinator::step(TimePoint now, const CoordinatorEvent& event) {
  State& s = *state_;
  s.now = now;
  s.out.clear();
  s.idle = false;
  std::visit([&](const auto& what) { s.on_event(what); }, event);
  if (!s.idle) s.advance();
  return std::move(s.out);
}

TimePoint Coordinator::next_deadline() const { return state_->next_deadline(); }
std::string Coordinator::status_json(TimePoint now) const { return state_->status_json(now); }
std::uint64_t Coordinator::changes() const { return state_->changes; }
bool Coordinator::waits_for_sites() const { return state_->round.waiting.running() && !state_->round.attempt; }
bool Coordinator::knows(LinkId link) const {
  const State& s = *state_;
  return s.links.contains(link) || s.claims.contains(link) || s.election.has(link) ||
         s.generations.waiting().contains(link);
}
std::size_t Coordinator::members() const { return state_->members.size(); }

std::vector<std::string> Coordinator::member_names() const {
  std::vector<std::string> names;
  for (const auto& [id, member] : state_->members) names.push_back(member.name);
  // Who goes on to another generation has not left.
  for (const auto& [link, waiting] : state_->generations.waiting()) names.push_back(waiting.join.site);
  for (std::string& site : state_->generations.expected(state_->now)) names.push_back(std::move(site));
  return names;
}

void Coordinator::State::on_event(const Received& event) {
  using namespace wire;
  election.heard(now, event.link);
  if (election.has(event.link)) refuse_claims_of(election.name_of(event.link), {});
  if (const auto* join = std::get_if<Join>(&event.message)) return on_join(event.link, *join);
  if (std::holds_alternative<StatusQuery>(event.message)) {
    out.emplace_back(Send{event.link, reference
                                          ? StatusReport{status_json(now), reference->elements, reference->settings}
                                          : StatusReport{status_json(now)}});
    return;
  }
  if (const auto* inquire = std::get_if<Inquire>(&event.message)) {
    const bool ours = inquire->swarm == config.swarm;
    const std::size_t here = leads ? members.size() : election.size();
    Leads answer{ours && leads && anchor, generations.current(), config.fresh_run, {}, 0};
    if (ours) answer.members = static_cast<std::uint32_t>(here);
    if (answer.leads) std::tie(answer.run, answer.round) = std::tie(anchor->run, anchor->round);
    out.emplace_back(Send{event.link, answer});
    idle = true;
    return;
  }
  if (const auto* forget = std::get_if<Forget>(&event.message)) return on_forget(event.link, *forget);
  if (election.has(event.link)) {
    if (const auto* promise = std::get_if<Promise>(&event.message)) election.on_promise(event.link, *promise);
    if (const auto* accepted = std::get_if<Accepted>(&event.message)) election.on_accepted(event.link, *accepted);
    return seek();
  }
  if (generations.waiting().count(event.link) != 0 && std::holds_alternative<Heartbeat>(event.message)) return;
  const auto link = links.find(event.link);
  if (link == links.end()) {
    generations.forget(event.link, now);
    out.emplace_back(Hangup{event.link, "this link has not joined the swarm '" + config.swarm + "', but sent " +
                                            std::string(wire::name_of(event.message)) + "; a site sends Join first"});
    return;
  }
  MemberRecord& member = members.at(link->second);
  heard(member);
  std::visit(
      [&](const auto& message) {
        using T = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<T, AnchorInstalled>) {
          on_anchor_installed(member, message);
        } else if constexpr (std::is_same_v<T, Ready>) {
          on_ready(member, message);
        } else if constexpr (std::is_same_v<T, Decline>) {
          on_decline(member, message);
        } else if constexpr (std::is_same_v<T, PeerUnreachable>) {
          on_peer_unreachable(member, message);
        } else if constexpr (std::is_same_v<T, Done>) {
          on_done(member, message);
        } else if constexpr (std::is_same_v<T, Leave>) {
          on_leave(member, message);
        } else if constexpr (std::is_same_v<T, Heartbeat>) {
          if (message.progress > member.progress) member.progressed_at = now;
          member.progress = message.progress;
          watch.heard(member.id, message.exchanged, now);
          idle = true;
        } else if constexpr (std::is_same_v<T, Promise> || std::is_same_v<T, Accepted>) {
          idle = true;  // it came when others were enough already
        } else {
          note(Note::Level::kWarning, "ignored",
               member.name + " sent " + std::string(wire::name_of(event.message)) +
                   ", which no site sends a coordinator");
        }
      },
      event.message);
}

void Coordinator::State::on_event(const Closed& event) {
  const auto link = links.find(event.link);
  if (link == links.end()) {
    claims.erase(event.link);
    generations.forget(event.link, now);
    if (election.go(now, event.link)) {
      generations.seen(now);
      seek();
    }
    return;
  }
  remove(link->second, event.why.ok() ? "its link was closed" : "its link was lost: " + event.why.message());
}

void Coordinator::State::on_event(const CallsUnderWay& event) { calls = event.sites; }

void Coordinator::State::on_event(const Tick&) {
  on_generation_tick();
  on_election_tick();
  on_heartbeat_tick();
  on_gathering_tick();
  on_round_tick();
}

// One place decides what is possible now, after any event: an anchor to choose, joiners to serve, an attempt to finish,
// a round to form. Whoever is removed on the way makes it look again.
void Coordinator::State::advance() {
  do {
    changed = false;
    settle_generations();
    settle_claims();
    if (!members.empty()) judge_quorum();
    if (members.empty()) return;
    choose_anchor();
    offer_anchor();
    if (round.attempt) finish_attempt();
    if (!round.attempt) try_to_start();
  } while (changed);
}

TimePoint Coordinator::State::next_deadline() const {
  const TimePoint generation = generations.next_deadline(now, config.link_grace, config.join_timeout);
  TimePoint claim = kNever;
  for (const auto& [link, join] : claims) claim = std::min(claim, free_at(join));
  if (!leads) return std::min({election.next_deadline(now), generation, claim});
  if (members.empty()) return generation;
  TimePoint next = std::min({next_heartbeat, round.limit, generation, claim, later(minority_since, config.link_grace)});
  next = std::min(next, round.waiting.next());
  const TimePoint grace = later(round.majority_since, config.straggler_grace);
  if (!round.attempt && grace > now) next = std::min(next, grace);
  if (!round.attempt && round.circle_until > now) next = std::min(next, round.circle_until);
  next = std::min(next, gathering.next());
  if (gathering.running()) {
    next = std::min(next, later(gathering.since(), wanted_missed() ? config.link_grace : config.join_timeout));
  }
  if (!round.attempt && round.joiners_until > now) next = std::min(next, round.joiners_until);
  if (!round.attempt && round.helpers_until > now) next = std::min(next, round.helpers_until);
  for (const auto& [id, member] : members) {
    if (member.phase == MemberPhase::kInstalling) next = std::min(next, installing_until(member));
  }
  return next;
}

}  // namespace collab::protocol
