// Which part answers which event, and what follows from it.
//
//   what comes           answered by         what follows
//   from the coordinator
//   Welcome              SiteMembership      it follows that term and waits for an anchor; it sends a Ready that is due
//   Refuse               SiteMembership      it fails with that reason; a former member asks once more
//   Hold                 SiteMembership      it waits, and looks at other candidates (Inquiry)
//   Prepare              SiteMembership      `Promise`, once that is durable, for a term above the one it follows
//   Accept               SiteMembership      `Accepted`, once what it accepts is durable
//   Roster, Keys         PeerLinks           the members and their proofs; links that wait for these are made
//   InstallAnchor        AnchorInstallation  it takes the anchor from its sources; at its trigger if it trains
//   StartAttempt         SiteRound           at its trigger: links, exchange, `Done`; not ready: the link ends
//   Commit               SiteRound           the outer step, then `AnchorInstalled`; if it trains, at the next trigger
//   RoundSkipped         SiteRound           it trains on; the anchor stands
//   Notice               SiteMembership      a line in the log,
//                        PeerLinks           and if other sites cannot dial this site, it dials the others
//   MemberLeft           Acceptor            marked in the membership, and written
//   LeaveAck             SiteMembership      it has left
//   Leads                Inquiry             how many wait here, to be compared with what other candidates say
//   Heartbeat            CoordinatorLink     it was heard, as with all of these
//   no more: the link    CoordinatorLink     what the head of coordinator_link.h says
//   closes, or is silent
//   from another candidate, which it asked
//   Leads                Inquiry             it goes there if that one leads a better swarm, or more sites wait there
//   from another site
//   Hello                PeerLinks           the link is that member's if the key fits; nothing before it counts
//   FetchAnchor          HeldAnchor          that part of the anchor, or `AnchorMoved`
//   AnchorMoved          AnchorInstallation  that source is not asked any more
//   FetchOptimizer       the data plane      a description of the copy, or a part of it (optimizer_lease.h)
//   OptimizerState       OptimizerFetch      the copy is taken, or the next member is asked
//   Chunk                the data plane      of a contribution, a mean, an anchor, a copy
//   Heartbeat            PeerLinks           it was heard
//   the link closes      PeerLinks           in an attempt with it: `PeerUnreachable` (SiteRound::link_lost)
//   any other            take                nothing, and a warning
//
// Events from the training process, the data plane and the store are routed below, one line each.
#include "core/protocol/site/site.h"

#include <algorithm>

#include "core/protocol/site/site_parts.h"
#include "core/wire/encoding.h"

namespace collab::protocol {

SiteParts::SiteParts(SiteConfig c) : config(std::move(c)) { bind(); }

void SiteParts::bind() {
  coordinator.all_ = membership.all_ = inquiry.all_ = writes.all_ = this;
  peers.all_ = held.all_ = installation.all_ = round.all_ = optimizer.all_ = this;
}

std::string SiteParts::name_of(SiteId site) const {
  if (site == membership.self()) return membership.join().site;
  const wire::Member* const member = roster.find(site);
  return member == nullptr ? "site " + std::to_string(site.value) : member->name;
}

Site::Site(SiteConfig config) : parts_(std::make_unique<SiteParts>(std::move(config))) {}
Site::~Site() = default;
Site::Site(Site&&) noexcept = default;
Site& Site::operator=(Site&&) noexcept = default;
Site::Site(const Site& other) : parts_(std::make_unique<SiteParts>(*other.parts_)) { parts_->bind(); }
Site& Site::operator=(const Site& other) { return *this = Site(other); }

bool Site::knows(LinkId link) const { return parts_->peers.knows(link); }
std::optional<SiteId> Site::peer_of(LinkId link) const { return parts_->peers.peer_of(link); }
std::optional<LinkId> Site::member_at() const {
  const SitePhase phase = parts_->membership.phase();
  const bool member = phase == SitePhase::kWaiting || phase == SitePhase::kInstalling || phase == SitePhase::kActive;
  return member ? parts_->coordinator.link() : std::nullopt;
}
Duration Site::heartbeat() const { return parts_->coordinator.heartbeat(); }
wire::Record Site::record() const { return parts_->membership.report().record; }
std::string Site::waiting_for(TimePoint now) const { return parts_->membership.waiting_text(now); }

namespace {

// ---- messages of the coordinator -----------------------------------------------------------------

void take(SiteParts& all, const wire::Welcome& what) { all.membership.on_welcome(what); }
void take(SiteParts& all, const wire::Refuse& what) { all.membership.on_refuse(what); }
void take(SiteParts& all, const wire::Hold& what) { all.membership.on_hold(what); }
void take(SiteParts& all, const wire::Prepare& what) { all.membership.on_prepare(what); }
void take(SiteParts& all, const wire::Accept& what) { all.membership.on_accept(what); }
void take(SiteParts& all, const wire::LeaveAck&) { all.membership.on_leave_ack(); }
void take(SiteParts& all, const wire::Roster& what) { all.peers.on_roster(what); }
void take(SiteParts& all, const wire::Keys& what) { all.peers.on_keys(what); }
void take(SiteParts& all, const wire::InstallAnchor& what) { all.installation.on_install_anchor(what); }
void take(SiteParts& all, const wire::StartAttempt& what) { all.round.on_start_attempt(what); }
void take(SiteParts& all, const wire::Commit& what) { all.round.on_commit(what); }
void take(SiteParts& all, const wire::RoundSkipped& what) { all.round.on_skipped(what); }
void take(SiteParts& all, const wire::Leads& what) { all.inquiry.on_here(what); }
void take(SiteParts&, const wire::Heartbeat&) {}  // only its arrival matters
void take(SiteParts& all, const wire::Notice& what) {
  all.membership.on_notice(what);
  all.peers.on_notice(what);
}
void take(SiteParts& all, const wire::MemberLeft& what) {
  if (all.acceptor.on_member_left(what)) all.writes.keep();
}
template <typename Other>
void take(SiteParts& all, const Other& what) {
  all.note(Note::Level::kWarning, "ignored",
           "the coordinator sent " + std::string(wire::name_of(what)) +
               ", a message that coordinators never send to sites [link.not-for-a-site]");
}

// ---- messages of other sites ---------------------------------------------------------------------

void take(SiteParts& all, LinkId link, const PeerLinks::Peer&, const wire::FetchAnchor& what) {
  all.held.on_fetch(link, what);
}
void take(SiteParts& all, LinkId, const PeerLinks::Peer& peer, const wire::AnchorMoved& what) {
  all.installation.on_anchor_moved(peer.site, what);
}
void take(SiteParts& all, LinkId link, const PeerLinks::Peer& peer, const wire::FetchOptimizer& what) {
  all.out.emplace_back(ServeOptimizer{link, peer.name, what});
}
void take(SiteParts& all, LinkId link, const PeerLinks::Peer&, const wire::OptimizerState& what) {
  all.optimizer.on_state(link, what);
}
void take(SiteParts&, LinkId, const PeerLinks::Peer&, const wire::Chunk&) {}  // the data plane takes it
void take(SiteParts&, LinkId, const PeerLinks::Peer&, const wire::Heartbeat&) {}
template <typename Other>
void take(SiteParts& all, LinkId, const PeerLinks::Peer& peer, const Other& what) {
  all.note(Note::Level::kWarning, "ignored",
           peer.name + " sent " + std::string(wire::name_of(what)) +
               ", a message that sites never send each other [link.not-between-sites]");
}

void from_peer(SiteParts& all, LinkId link, const wire::Message& message) {
  if (const auto* hello = std::get_if<wire::Hello>(&message)) return all.peers.on_hello(link, *hello);
  const PeerLinks::Peer* const peer = all.peers.on_message(link, std::string(wire::name_of(message)));
  if (peer == nullptr) return;
  std::visit([&](const auto& what) { take(all, link, *peer, what); }, message);
}

// ---- events from the training process ------------------------------------------------------------

void on_event(SiteParts& all, const Begin& event) { all.membership.begin(event); }
void on_event(SiteParts& all, const Trigger& event) { all.round.on_trigger(event); }
void on_event(SiteParts& all, const Depart& event) { all.membership.depart(event); }
void on_event(SiteParts& all, const FindOptimizerSource&) { all.optimizer.find_source(); }
void on_event(SiteParts& all, const TakeOptimizer&) { all.optimizer.take(); }
void on_event(SiteParts& all, const EndOptimizer&) { all.optimizer.end(); }

// ---- events from links ---------------------------------------------------------------------------

void on_event(SiteParts& all, const CoordinatorConnected& event) {
  if (event.inquiry) return all.inquiry.on_connected(event.link, event.candidate);
  all.coordinator.on_connected(event);
}

void on_event(SiteParts& all, const PeerConnected& event) { all.peers.on_connected(event); }

void on_event(SiteParts& all, const DialFailed& event) {
  if (event.inquiry) return all.inquiry.on_dial_failed(event.candidate, event.why.message());
  if (event.site) return all.peers.on_dial_failed(*event.site, event.why.message());
  all.coordinator.on_dial_failed(event);
}

void on_event(SiteParts& all, const Received& event) {
  const auto& [link, message] = event;
  if (all.coordinator.link() == link) {
    all.coordinator.heard();
    return std::visit([&all](const auto& what) { take(all, what); }, message);
  }
  if (const auto* leads = std::get_if<wire::Leads>(&message); leads != nullptr && all.inquiry.is_over(link)) {
    return all.inquiry.on_leads(*leads);
  }
  from_peer(all, link, message);
}

void on_event(SiteParts& all, const Closed& event) {
  if (all.coordinator.link() == event.link) return all.coordinator.on_closed(event.why);
  const std::string why = event.why.ok() ? "the link was closed" : event.why.message();
  if (all.inquiry.is_over(event.link)) return all.inquiry.on_closed(why);
  all.peers.on_closed(event.link, why);
}

// ---- events from the data plane and the store -----------------------------------------------------

void on_event(SiteParts& all, const ExchangeComplete& event) { all.round.on_exchanged(event); }
void on_event(SiteParts& all, const ContributionUnfit& event) { all.round.on_unfit(event); }
void on_event(SiteParts& all, const ExchangeFailed& event) { all.round.on_exchange_failed(event); }
void on_event(SiteParts& all, const AnchorInPlace& event) { all.installation.on_in_place(event); }
void on_event(SiteParts& all, const AnchorSourceWrong& event) { all.installation.on_source_wrong(event); }
void on_event(SiteParts& all, const Persisted& event) { all.writes.on_persisted(event); }
void on_event(SiteParts& all, const OptimizerPart& event) { all.optimizer.on_part(event); }
void on_event(SiteParts& all, const OptimizerUnfit& event) { all.optimizer.on_unfit(event); }

void on_event(SiteParts& all, const Applied& event) {
  all.round.on_applied(event);
  all.membership.applied();
}

// ---- time ----------------------------------------------------------------------------------------

void on_event(SiteParts& all, const Tick&) {
  all.membership.on_leave_tick();
  if (all.membership.over() || all.membership.phase() == SitePhase::kLeaving) return;
  all.membership.on_ask_tick();
  if (all.membership.over()) return;
  all.coordinator.on_dial_tick();
  all.membership.on_wait_tick();
  if (all.membership.over()) return;
  all.installation.on_tick();
  if (all.membership.over()) return;
  all.coordinator.on_silence_tick();
  if (all.membership.over()) return;
  all.peers.on_tick();
  if (all.membership.over()) return;
  all.optimizer.on_tick();
  all.writes.on_tick();
  all.inquiry.on_tick();
  all.round.on_tick();
}

}  // namespace

std::vector<SiteAction> Site::step(TimePoint now, const SiteEvent& event) {
  SiteParts& all = *parts_;
  all.now = now;
  all.out.clear();
  if (all.membership.over()) return {};
  std::visit([&all](const auto& what) { on_event(all, what); }, event);
  return std::move(all.out);
}

TimePoint Site::next_deadline() const {
  const SiteParts& all = *parts_;
  const TimePoint membership = all.membership.next_deadline();
  if (all.membership.over() || all.membership.phase() == SitePhase::kIdle) return kNever;
  if (all.membership.phase() == SitePhase::kLeaving) return membership;
  return std::min({membership, all.coordinator.next_deadline(), all.inquiry.next_deadline(), all.writes.next_deadline(),
                   all.peers.next_deadline(), all.installation.next_deadline(), all.round.next_deadline(),
                   all.optimizer.next_deadline()});
}

}  // namespace collab::protocol
