#include "core/runtime/site_driver.h"

#include <chrono>
#include <utility>

#include "core/base/address.h"
#include "core/base/log.h"
#include "core/runtime/line_probe.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

constexpr Duration kDialTimeout = std::chrono::seconds(10);

}  // namespace

SiteDriver::SiteDriver(const protocol::SiteConfig& site, const DataPlane::Settings& settings,
                       const DataPlane::Parts& parts, std::optional<StoredResidual> residual, Host& host)
    : transport_(*parts.transport),
      clock_(*parts.clock),
      host_(host),
      coordinators_(site.coordinators),
      site_(site),
      data_(settings, with_heartbeats(parts), std::move(residual)),
      links_(
          transport_, clock_, [this](LinkId link) { return site_.knows(link); },
          [this](LinkId link, const std::string& why) {
            return "a message of " + end_of(link) + " was refused and its link closed: " + why +
                   " [link.site-message-refused]";
          }) {}

// A pass over the elements of a large model takes longer than the grace after which a silent site is dropped.
DataPlane::Parts SiteDriver::with_heartbeats(DataPlane::Parts parts) {
  parts.passing = [this] { while_passing(); };
  return parts;
}

// The machine's next heartbeat stays due. Its delay tells the machine that it has heard nobody meanwhile.
void SiteDriver::while_passing() {
  const TimePoint now = clock_.now();
  const std::optional<LinkId> link = site_.member_at();
  if (!link || now - last_heartbeat_ < site_.heartbeat()) return;
  last_heartbeat_ = now;
  const wire::Heartbeat beat{.progress = data_.traffic().bytes_received, .exchanged = data_.exchanged()};
  transport_.send(*link, {.lane = Lane::kControl, .head = wire::encode(beat), .payload = nullptr}, 0);
}

// ---- events --------------------------------------------------------------------------------------------

void SiteDriver::feed(protocol::SiteEvent event) {
  if (stopped_) return;
  if (std::holds_alternative<protocol::Tick>(event)) {
    links_.tick();
    if (const auto link = data_.anchors().stalled_receiver()) {
      links_.refuse(*link, "it has taken nothing of the anchor that it asked for within " +
                               std::to_string(AnchorStreams::kTakesNothing / std::chrono::seconds(1)) +
                               " s, and others wait for the room that this takes [join.fetch-not-taken]");
    }
  }
  pending_.push_back(std::move(event));
  drain();
}

void SiteDriver::feed_all(DataPlane::Events events) {
  queue(std::move(events));
  drain();
}

void SiteDriver::queue(DataPlane::Events events) {
  if (stopped_) return;
  for (protocol::SiteEvent& event : events) pending_.push_back(std::move(event));
}

void SiteDriver::drain() {
  if (std::exchange(stepping_, true)) return;
  while (!pending_.empty() && !stopped_) {
    const protocol::SiteEvent event = std::move(pending_.front());
    pending_.pop_front();
    host_.stepped(event, site_.step(clock_.now(), event));
  }
  stepping_ = false;
}

void SiteDriver::on_accepted(LinkId link, const std::string& peer) {
  ends_[link] = peer;
  links_.on_accepted(link, peer);
}

void SiteDriver::on_connected(LinkId link) {
  const auto dial = dials_.extract(link);
  if (!dial) return;
  if (const auto* site = std::get_if<SiteId>(&dial.mapped())) {
    feed(protocol::PeerConnected{*site, link});
    if (site_.knows(link)) make_room_for_link(link, voter_of(*site));  // unless it was closed at once
    return;
  }
  const auto& asked = std::get<protocol::DialCoordinator>(dial.mapped());
  feed(protocol::CoordinatorConnected{link, asked.inquiry, asked.candidate});
}

void SiteDriver::on_closed(LinkId link, Status why) {
  links_.closed(link);
  ends_.erase(link);
  data_.link_closed(link);
  const auto dial = dials_.extract(link);
  if (!dial) return feed(protocol::Closed{link, std::move(why)});
  if (const auto* peer = std::get_if<SiteId>(&dial.mapped())) return feed(protocol::DialFailed{*peer, std::move(why)});
  const auto& asked = std::get<protocol::DialCoordinator>(dial.mapped());
  feed(protocol::DialFailed{std::nullopt, std::move(why), asked.inquiry, asked.candidate});
}

// The site's name, if it is a voter.
std::string SiteDriver::voter_of(SiteId site) const {
  for (const wire::Voter& voter : site_.record().voters) {
    if (voter.site == site) return voter.name;
  }
  return {};
}

// Another site has come, or was reached.
void SiteDriver::make_room_for_link(LinkId link, const std::string& site) {
  if (links_.is_taken(link)) return;
  const auto is_voter = [voters = site_.record().voters](const std::string& name) {
    return std::ranges::any_of(voters, [&](const wire::Voter& voter) { return voter.name == name; });
  };
  const std::optional<LinkId> gone = links_.take_in(link, network_of(end_of(link)), site, is_voter);
  if (!gone) return;
  links_.expel(*gone,
               "its host has more links here than its share of a quarter of the files that this process may have "
               "open [link.site-links-full]");
}

std::string SiteDriver::end_of(LinkId link) const {
  const auto found = ends_.find(link);
  return found == ends_.end() ? "a peer" : found->second;
}

void SiteDriver::on_message(LinkId link, TransportMessage message) {
  if (links_.has_left(link)) return;  // a message that came before the link was closed
  Result<wire::Message> decoded = wire::decode(message.head);
  if (!decoded.ok()) {
    if (!decode_line(message.head).ok()) return links_.refuse(link, decoded.status().message());
    const auto line = probed_.allow(clock_.now(), "`collab doctor --peer` at " + end_of(link) + " has tried this port");
    if (line) log_info(*line);
    return transport_.close(link);
  }
  if (const auto* hello = std::get_if<wire::Hello>(&*decoded)) {
    if (const std::string why = links_.difference(link, hello->name); !why.empty()) return links_.refuse(link, why);
    make_room_for_link(link, hello->name);
    if (links_.has_left(link)) return;
  }
  const auto* chunk = std::get_if<wire::Chunk>(&*decoded);
  if (chunk == nullptr) return feed(protocol::Received{link, std::move(*decoded)});
  const std::optional<SiteId> from = site_.peer_of(link);
  if (!from) return;  // not a member, or no longer one
  if (chunk->kind != wire::ChunkKind::kOptimizer) {
    return feed_all(data_.on_chunk(link, *from, *chunk, std::move(message.payload)));
  }
  if (auto part = host_.optimizer_part(link, *chunk, std::move(message.payload))) feed(std::move(*part));
}

// ---- actions -------------------------------------------------------------------------------------------

void SiteDriver::act(const protocol::Send& action) {
  wire::Message message = action.message;
  if (auto* beat = std::get_if<wire::Heartbeat>(&message); beat != nullptr && !beat->reply) {
    beat->progress = data_.traffic().bytes_received;
    beat->exchanged = data_.exchanged();
    last_heartbeat_ = clock_.now();
  }
  Result<std::vector<std::byte>> head = wire::try_encode(message);
  if (!head.ok()) {
    return host_.failed(invalid_argument(
        "what this site has to say does not fit a message: " + head.status().message() + " [link.message-unfit]"));
  }
  transport_.send(action.link, {.lane = Lane::kControl, .head = std::move(*head), .payload = nullptr}, 0);
}

void SiteDriver::act(const protocol::CloseLink& action) {
  log_debug("closing a link: " + action.why);
  links_.close_link(action.link);
}

void SiteDriver::act(const protocol::DialCoordinator& action) {
  const LinkId link = transport_.connect(coordinators_[action.candidate], kDialTimeout);
  dials_[link] = action;
  ends_[link] = coordinators_[action.candidate];
}

void SiteDriver::act(const protocol::DialPeer& action) {
  const LinkId link = transport_.connect(action.address, kDialTimeout);
  dials_[link] = action.site;
  ends_[link] = action.address;
}

void SiteDriver::act(const protocol::StartExchange& action) { queue(data_.start(action)); }

void SiteDriver::act(const protocol::CancelExchange& action) {
  log_debug("the exchange was cancelled: " + action.why);
  data_.cancel();
}

std::optional<DataPlane::Applied> SiteDriver::act(const protocol::ApplyCommit& action) {
  const Result<DataPlane::Applied> applied = data_.apply(action);
  if (!applied.ok()) {
    host_.failed(applied.status());
    return std::nullopt;
  }
  pending_.push_back(protocol::Applied{action.commit.round, applied->state});
  return *applied;
}

void SiteDriver::act(const protocol::KeepAnchor& action) {
  const Result<SealedAnchor> kept = data_.keep_anchor(action);
  if (!kept.ok()) return host_.failed(kept.status());
  pending_.push_back(protocol::AnchorInPlace{kept->run, kept->round, kept->digest});
}

void SiteDriver::act(const protocol::ReceiveAnchor& action) { data_.receive_anchor(action); }

void SiteDriver::act(const protocol::AddAnchorSource& action) { queue(data_.anchors().add_source(action)); }

void SiteDriver::act(const protocol::DropAnchorSource& action) { queue(data_.anchors().drop_source(action.site)); }

void SiteDriver::act(const protocol::StopReceiving&) { data_.anchors().stop(); }

void SiteDriver::act(const protocol::SendAnchor& action) {
  const Status status = data_.anchors().send(action);
  if (status.ok()) return;
  links_.refuse(action.to, status.message());
}

void SiteDriver::act(const protocol::Rebase& action) { check(data_.rebase(action.base)); }

void SiteDriver::act(const protocol::TakeSnapshot&) { check(data_.take_snapshot()); }

}  // namespace collab
