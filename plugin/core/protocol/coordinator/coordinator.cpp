// Which part answers which event, and what follows from it.
//
//   what comes           answered by         what follows
//   from any process
//   Join                 Admission           `Welcome`, and one more member. Or `Refuse`; or it waits: for an election
//                                            (Leadership), for its generation (GenerationGate: `Hold`), for its name
//   StatusQuery          tell_status         `StatusReport`
//   Inquire              tell_who_leads      `Leads`
//   Forget               Leadership          a `Notice`; sites that wait here may go on without the named sites
//   from a site that waits for an election
//   Promise, Accepted    Leadership          counted (election.h). Enough of them: it leads, all that wait are let in
//   from a member; any other link is closed
//   AnchorInstalled      AnchorInstaller     the swarm's anchor: it is active. Another: it takes the swarm's; one that
//                                            trains, at its trigger (stale)
//   Ready                Round               counts for the next attempt; for an earlier round: it takes the anchor
//   Done                 Round               all are done alike: `Commit`; else another attempt (round_end.cpp)
//   Decline              Round               another attempt, to which it contributes nothing; a second one: expelled
//   PeerUnreachable      Round               another attempt; the pair owns no slice in it if it failed before
//   Leave                Membership          `LeaveAck`; the others get `MemberLeft`; it goes as if its link had closed
//   Heartbeat            AnchorInstaller     what it has taken of the anchor,
//                        Round               and whether its exchange moves (exchange_watch.h)
//   Promise, Accepted    take                nothing: it leads already
//   any other            take                nothing, and a warning: no site sends it
//   not from a site
//   Closed               Membership          the member goes; its attempt is formed anew without it (Round::lost). What
//                                            waits on that link waits no more
//   Undialable           Membership          it owns no slices while others can be dialled
//   CallsUnderWay        RoundGate           a round does not wait for a site in a call that waits for the round
//   Tick                 each part           what has taken too long ends: silence, joining, taking an anchor, a round
//
// After each event `advance` looks at what has become possible. Round is in round.cpp, round_attempt.cpp and
// round_end.cpp.
#include "core/protocol/coordinator/coordinator.h"

#include <algorithm>
#include <tuple>

#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/wire/encoding.h"

namespace collab::protocol {

CoordinatorParts::CoordinatorParts(CoordinatorConfig c) : config(std::move(c)), leadership(config) { bind(); }

void CoordinatorParts::bind() {
  leadership.all_ = generation.all_ = admission.all_ = membership.all_ = this;
  anchor.all_ = installer.all_ = gate.all_ = slices.all_ = period.all_ = round.all_ = this;
  exclusions.all_ = contributions.all_ = digests.all_ = this;
}

void CoordinatorParts::forget_swarm() {
  agreed.forget();
  leadership.forget();
  admission.forget();
  membership.forget();
  anchor.forget();
  slices.forget();
  period.forget();
  round.forget();
  exclusions.forget();
  contributions.forget();
  gate.forget();
}

Coordinator::Coordinator(CoordinatorConfig config) : parts_(std::make_unique<CoordinatorParts>(std::move(config))) {}
Coordinator::~Coordinator() = default;
Coordinator::Coordinator(Coordinator&&) noexcept = default;
Coordinator& Coordinator::operator=(Coordinator&&) noexcept = default;
Coordinator::Coordinator(const Coordinator& other) : parts_(std::make_unique<CoordinatorParts>(*other.parts_)) {
  parts_->bind();
}
Coordinator& Coordinator::operator=(const Coordinator& other) { return *this = Coordinator(other); }

SwarmStatus Coordinator::status(TimePoint now) const { return status_of(*parts_, now); }
std::string Coordinator::status_json(TimePoint now) const { return to_json(status(now)); }
std::uint64_t Coordinator::changes() const { return parts_->membership.changes(); }
bool Coordinator::waits_for_sites() const { return parts_->round.waits_for_sites(); }
std::size_t Coordinator::members() const { return parts_->members().size(); }
bool Coordinator::knows(LinkId link) const { return parts_->membership.has(link) || keeps_join_of(link); }

bool Coordinator::keeps_join_of(LinkId link) const {
  const CoordinatorParts& all = *parts_;
  return all.admission.has_claim(link) || all.leadership.election().has(link) ||
         all.generation.generations().waiting().contains(link);
}

bool Coordinator::is_voter(const std::string& site) const {
  const auto is_it = [&](const auto& entry) { return entry.second.name == site; };
  const AgreedMembership& agreed = parts_->agreed;
  return std::ranges::any_of(agreed.voters(), is_it) || std::ranges::any_of(agreed.next_voters(), is_it);
}

std::set<std::string> Coordinator::sites_of(std::uint64_t world) const {
  std::set<std::string> sites;
  for (const auto& [id, member] : parts_->members()) {
    if (world != 0 && member.join.world == world) sites.insert(member.name);
  }
  return sites;
}

std::vector<std::string> Coordinator::member_names() const {
  const Generations& generations = parts_->generation.generations();
  std::vector<std::string> names = parts_->membership.names();
  // A site that goes on to another generation has not left.
  for (const auto& [link, waiting] : generations.waiting()) names.push_back(waiting.join.site);
  for (std::string& site : generations.expected(parts_->now)) names.push_back(std::move(site));
  return names;
}

namespace {

void take(CoordinatorParts& all, Member& from, const wire::AnchorInstalled& what) {
  all.installer.on_installed(from, what);
}
void take(CoordinatorParts& all, Member& from, const wire::Ready& what) { all.round.on_ready(from, what); }
void take(CoordinatorParts& all, Member& from, const wire::Decline& what) { all.round.on_decline(from, what); }
void take(CoordinatorParts& all, Member& from, const wire::PeerUnreachable& what) {
  all.round.on_peer_unreachable(from, what);
}
void take(CoordinatorParts& all, Member& from, const wire::Done& what) { all.round.on_done(from, what); }
void take(CoordinatorParts& all, Member& from, const wire::Leave& what) { all.membership.on_leave(from, what); }
void take(CoordinatorParts& all, Member& from, const wire::Heartbeat& what) {
  all.installer.on_progress(from, what.progress);
  all.round.on_exchanged(from, what.exchanged);
  all.idle = true;
}
// These came when enough others had answered already.
void take(CoordinatorParts& all, Member&, const wire::Promise&) { all.idle = true; }
void take(CoordinatorParts& all, Member&, const wire::Accepted&) { all.idle = true; }
template <typename Other>
void take(CoordinatorParts& all, Member& from, const Other& what) {
  all.note(Note::Level::kWarning, "ignored",
           from.name + " sent " + std::string(wire::name_of(what)) +
               ", a message that sites never send to coordinators [link.unexpected-message]");
}

void tell_status(CoordinatorParts& all, LinkId link) {
  wire::StatusReport report{to_json(status_of(all, all.now))};
  if (const auto& reference = all.admission.reference()) {
    report.elements = reference->elements();
    report.settings = reference->settings();
    report.tensors = reference->tensors();
  }
  all.out.emplace_back(Send{link, std::move(report)});
}

void tell_who_leads(CoordinatorParts& all, LinkId link, const wire::Inquire& inquire) {
  const bool ours = inquire.swarm == all.config.swarm;
  const bool leads = all.leadership.leads();
  const auto& anchor = all.anchor.record();
  wire::Leads answer{ours && leads && anchor, all.generation.generations().current(), all.config.fresh_run, {}, 0};
  const std::size_t here = leads ? all.members().size() : all.leadership.election().size();
  if (ours) answer.members = static_cast<std::uint32_t>(here);
  if (answer.leads) std::tie(answer.run, answer.round) = std::tie(anchor->run, anchor->round);
  all.out.emplace_back(Send{link, answer});
  all.idle = true;
}

void on_event(CoordinatorParts& all, const Closed& event) {
  if (const Member* member = all.membership.find_by_link(event.link)) {
    const std::string why = event.why.ok() ? "its link was closed" : "its link was lost: " + event.why.message();
    return all.membership.remove(member->id, why);
  }
  all.admission.drop_claim(event.link);
  all.generation.forget(event.link);
  all.leadership.remove_applicant(event.link);
}

void on_event(CoordinatorParts& all, const Received& event) {
  const auto& [link, message] = event;
  if (const std::string why = all.admission.far_term(message); !why.empty()) {
    all.out.emplace_back(CloseLink{link, why});
    return on_event(all, Closed{link, refused(why)});
  }
  if (const std::string why = all.admission.damage(link, message); !why.empty()) {
    const Member* said = all.membership.find_by_link(link);
    const auto* join = std::get_if<wire::Join>(&message);
    all.admission.refuse_link(link, said != nullptr ? said->name : join != nullptr ? join->site : "a site", why);
    return on_event(all, Closed{link, refused(why)});
  }
  all.leadership.heard(link);
  if (const auto* join = std::get_if<wire::Join>(&message)) return all.admission.on_join(link, *join);
  if (std::holds_alternative<wire::StatusQuery>(message)) return tell_status(all, link);
  if (const auto* inquire = std::get_if<wire::Inquire>(&message)) return tell_who_leads(all, link, *inquire);
  if (const auto* forget = std::get_if<wire::Forget>(&message)) return all.leadership.on_forget(link, *forget);
  if (all.leadership.from_applicant(link, message)) return;
  const bool waits = all.generation.generations().waiting().contains(link);
  if (waits && std::holds_alternative<wire::Heartbeat>(message)) return;
  Member* member = all.membership.find_by_link(link);
  if (member == nullptr) {
    all.generation.forget(link);
    all.out.emplace_back(CloseLink{link, "this link has not joined the swarm '" + all.config.swarm + "', but sent " +
                                             std::string(wire::name_of(message)) +
                                             "; a site sends Join first [link.not-joined]"});
    return;
  }
  all.membership.heard(*member);
  std::visit([&](const auto& what) { take(all, *member, what); }, message);
}

void on_event(CoordinatorParts& all, const Undialable& event) { all.membership.on_undialable(event); }

void on_event(CoordinatorParts& all, const CallsUnderWay& event) { all.gate.calls_under_way(event.sites); }

void on_event(CoordinatorParts& all, const Tick&) {
  all.generation.on_tick();
  all.leadership.on_tick();
  all.membership.on_tick();
  all.anchor.on_tick();
  all.installer.on_tick();
  all.round.on_tick();
}

// After any event, one place decides what is possible now: to choose an anchor, to serve joiners, to finish an attempt,
// to form a round. If a member is removed on the way, it looks again.
void advance(CoordinatorParts& all) {
  do {
    all.changed = false;
    all.generation.settle();
    all.admission.settle_claims();
    if (!all.members().empty()) all.leadership.judge_quorum();
    if (all.members().empty()) return;
    all.anchor.choose();
    all.installer.offer();
    all.round.advance();
  } while (all.changed);
}

}  // namespace

std::vector<CoordinatorAction> Coordinator::step(TimePoint now, const CoordinatorEvent& event) {
  CoordinatorParts& all = *parts_;
  all.now = now;
  all.out.clear();
  all.idle = false;
  std::visit([&all](const auto& what) { on_event(all, what); }, event);
  if (!all.idle) advance(all);
  return std::move(all.out);
}

TimePoint Coordinator::next_deadline() const {
  const CoordinatorParts& all = *parts_;
  const TimePoint generation = all.generation.next_deadline();
  const TimePoint term = std::min(all.leadership.next_deadline(), all.admission.next_deadline());
  if (!all.leadership.leads()) return std::min(generation, term);
  if (parts_->members().empty()) return generation;
  return std::min({generation, term, all.membership.next_heartbeat(), all.anchor.next_deadline(),
                   all.installer.next_deadline(), all.round.next_deadline()});
}

}  // namespace collab::protocol
