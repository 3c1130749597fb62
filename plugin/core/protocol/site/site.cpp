// Which part answers which event, and what follows from it.
//
//   what comes           answered by         what follows
//   from the coordinator
//   Welcome              SiteMembership      it follows that term, and waits for an anchor; a Ready that is due is said
//   Refuse               SiteMembership      it fails with that reason; who was a member asks once more
//   Hold                 SiteMembership      it waits, and looks at other candidates (Inquiry)
//   Prepare              SiteMembership      `Promise`, once that is durable, for a term above the one it follows
//   Accept               SiteMembership      `Accepted`, once that is durable
//   Roster, Keys         PeerLinks           who is a member, and how it proves that; links that wait for it are made
//   InstallAnchor        AnchorInstallation  it takes the anchor from its sources; at its trigger if it trains
//   StartAttempt         SiteRound           at its trigger: links, exchange, `Done` once durable; else ignored
//   Commit               SiteRound           the outer step, then `AnchorInstalled`; if it trains, at the next trigger
//   RoundSkipped         SiteRound           it trains on; the anchor stands
//   Notice               SiteMembership      a line in the log,
//                        PeerLinks           and where nobody can dial this site, it dials the others
//   MemberLeft           Acceptor            marked in the membership, and written
//   LeaveAck             SiteMembership      it has left
//   Leads                Inquiry             how many wait here, to be compared with what other candidates say
//   Heartbeat            CoordinatorLink     it was heard, as with all of these
//   no more: the link    CoordinatorLink     what the head of coordinator_link.h says
//   closes, or is silent
//   from another candidate, which it asked
//   Leads                Inquiry             it goes there, if that one leads a better swarm, or more wait there
//   from another site
//   Hello                PeerLinks           the link is that member's, if the key is theirs; nothing counts before it
//   FetchAnchor          HeldAnchor          that part of the anchor, or `AnchorMoved`
//   AnchorMoved          AnchorInstallation  that source is not asked any more
//   FetchOptimizer       the data plane      a description of the copy, or a part of it (optimizer_lease.h)
//   OptimizerState       OptimizerFetch      the copy is taken, or the next member is asked
//   Chunk                the data plane      of a contribution, a mean, an anchor, a copy
//   Heartbeat            PeerLinks           it was heard
//   the link closes      PeerLinks           in an attempt with it: `PeerUnreachable` (SiteRound::link_lost)
//   any other            from_coordinator,   nothing, and a warning
//                        from_peer
//
// What comes from the training process, the data plane and the store is routed below, one line an event.
#include "core/protocol/site/site.h"

#include <algorithm>
#include <type_traits>

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

std::vector<SiteAction> Site::step(TimePoint now, const SiteEvent& event) {
  SiteParts& all = *parts_;
  all.now = now;
  all.out.clear();
  if (all.membership.over()) return {};
  std::visit([this](const auto& what) { on_event(what); }, event);
  return std::move(all.out);
}

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

// ---- events from the training process ------------------------------------------------------------

void Site::on_event(const Begin& event) { parts_->membership.begin(event); }
void Site::on_event(const Trigger& event) { parts_->round.on_trigger(event); }
void Site::on_event(const Depart& event) { parts_->membership.depart(event); }
void Site::on_event(const SeekOptimizer&) { parts_->optimizer.seek(); }
void Site::on_event(const TakeOptimizer&) { parts_->optimizer.take(); }
void Site::on_event(const EndOptimizer&) { parts_->optimizer.end(); }

// ---- events from links ---------------------------------------------------------------------------

void Site::on_event(const CoordinatorConnected& event) {
  if (event.inquiry) return parts_->inquiry.on_connected(event.link, event.candidate);
  parts_->coordinator.on_connected(event);
}

void Site::on_event(const PeerConnected& event) { parts_->peers.on_connected(event); }

void Site::on_event(const DialFailed& event) {
  if (event.inquiry) return parts_->inquiry.on_dial_failed(event.candidate, event.why.message());
  if (event.site) return parts_->peers.on_dial_failed(*event.site, event.why.message());
  parts_->coordinator.on_dial_failed(event);
}

void Site::on_event(const Received& event) {
  const auto& [link, message] = event;
  if (parts_->coordinator.link() == link) return from_coordinator(message);
  if (const auto* leads = std::get_if<wire::Leads>(&message); leads != nullptr && parts_->inquiry.is_over(link)) {
    return parts_->inquiry.on_leads(*leads);
  }
  from_peer(link, message);
}

void Site::on_event(const Closed& event) {
  if (parts_->coordinator.link() == event.link) return parts_->coordinator.on_closed(event.why);
  const std::string why = event.why.ok() ? "the link was closed" : event.why.message();
  if (parts_->inquiry.is_over(event.link)) return parts_->inquiry.on_closed(why);
  parts_->peers.on_closed(event.link, why);
}

void Site::from_coordinator(const wire::Message& message) {
  SiteParts& all = *parts_;
  all.coordinator.heard();
  std::visit(
      [&](const auto& what) {
        using T = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<T, wire::Welcome>) {
          all.membership.on_welcome(what);
        } else if constexpr (std::is_same_v<T, wire::Refuse>) {
          all.membership.on_refuse(what);
        } else if constexpr (std::is_same_v<T, wire::Hold>) {
          all.membership.on_hold(what);
        } else if constexpr (std::is_same_v<T, wire::Roster>) {
          all.peers.on_roster(what);
        } else if constexpr (std::is_same_v<T, wire::Keys>) {
          all.peers.on_keys(what);
        } else if constexpr (std::is_same_v<T, wire::InstallAnchor>) {
          all.installation.on_install_anchor(what);
        } else if constexpr (std::is_same_v<T, wire::StartAttempt>) {
          all.round.on_start_attempt(what);
        } else if constexpr (std::is_same_v<T, wire::Commit>) {
          all.round.on_commit(what);
        } else if constexpr (std::is_same_v<T, wire::RoundSkipped>) {
          all.round.on_skipped(what);
        } else if constexpr (std::is_same_v<T, wire::Prepare>) {
          all.membership.on_prepare(what);
        } else if constexpr (std::is_same_v<T, wire::Accept>) {
          all.membership.on_accept(what);
        } else if constexpr (std::is_same_v<T, wire::Notice>) {
          all.membership.on_notice(what);
          all.peers.on_notice(what);
        } else if constexpr (std::is_same_v<T, wire::MemberLeft>) {
          if (all.acceptor.on_member_left(what)) all.writes.keep();
        } else if constexpr (std::is_same_v<T, wire::LeaveAck>) {
          all.membership.on_leave_ack();
        } else if constexpr (std::is_same_v<T, wire::Leads>) {
          all.inquiry.on_here(what);
        } else if constexpr (std::is_same_v<T, wire::Heartbeat>) {
          // That it came is all that matters.
        } else {
          all.note(Note::Level::kWarning, "ignored",
                   "the coordinator sent " + std::string(wire::name_of(message)) +
                       ", which it never sends a site [link.not-for-a-site]");
        }
      },
      message);
}

void Site::from_peer(LinkId link, const wire::Message& message) {
  SiteParts& all = *parts_;
  if (const auto* hello = std::get_if<wire::Hello>(&message)) return all.peers.on_hello(link, *hello);
  const std::string name(wire::name_of(message));
  const PeerLinks::Peer* const peer = all.peers.on_message(link, name);
  if (peer == nullptr) return;
  std::visit(
      [&](const auto& what) {
        using T = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<T, wire::FetchAnchor>) {
          all.held.on_fetch(link, what);
        } else if constexpr (std::is_same_v<T, wire::AnchorMoved>) {
          all.installation.on_anchor_moved(peer->site, what);
        } else if constexpr (std::is_same_v<T, wire::FetchOptimizer>) {
          all.out.emplace_back(ServeOptimizer{link, peer->name, what});
        } else if constexpr (std::is_same_v<T, wire::OptimizerState>) {
          all.optimizer.on_state(link, what);
        } else if constexpr (std::is_same_v<T, wire::Chunk> || std::is_same_v<T, wire::Heartbeat>) {
          // The data plane takes chunks; that a heartbeat came is all that matters.
        } else {
          all.note(Note::Level::kWarning, "ignored",
                   peer->name + " sent " + name + ", which no site sends another [link.not-between-sites]");
        }
      },
      message);
}

// ---- events from the data plane and the store -----------------------------------------------------

void Site::on_event(const ExchangeComplete& event) { parts_->round.on_exchanged(event); }
void Site::on_event(const ContributionUnfit& event) { parts_->round.on_unfit(event); }
void Site::on_event(const ExchangeFailed& event) { parts_->round.on_exchange_failed(event); }
void Site::on_event(const AnchorInPlace& event) { parts_->installation.on_in_place(event); }
void Site::on_event(const AnchorSourceWrong& event) { parts_->installation.on_source_wrong(event); }
void Site::on_event(const Persisted& event) { parts_->writes.on_persisted(event); }
void Site::on_event(const OptimizerPart& event) { parts_->optimizer.on_part(event); }
void Site::on_event(const OptimizerUnfit& event) { parts_->optimizer.on_unfit(event); }

void Site::on_event(const Applied& event) {
  parts_->round.on_applied(event);
  parts_->membership.applied();
}

// ---- time ----------------------------------------------------------------------------------------

void Site::on_event(const Tick&) {
  SiteParts& all = *parts_;
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
