// Connects the Site machine to its links and tensors: transport reports become events, actions are carried out, and
// their events are fed back. The node's loop drives it in real time, a simulated site in virtual time.
//
// Threads: one caller at a time; nothing blocks, and no clock is read but the one given.
// Ownership: owns machine and data plane; borrows transport, clock, arena, parameters and host.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "collab/clock.h"
#include "collab/transport.h"
#include "core/base/rate_limit.h"
#include "core/protocol/site/site.h"
#include "core/runtime/data/data_plane.h"
#include "core/runtime/link_admission.h"

namespace collab {

class SiteDriver final : public TransportHandler {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // The machine has made a step. The host carries its actions out, in this order: by act(), or by itself.
    virtual void stepped(const protocol::SiteEvent& event, const std::vector<protocol::SiteAction>& actions) = 0;
    // An action failed in act(): the site cannot go on.
    virtual void failed(const Status& why) = 0;
    // A part of another site's optimizer state; nullopt if none is being fetched.
    virtual std::optional<protocol::SiteEvent> optimizer_part(LinkId link, const wire::Chunk& chunk,
                                                              BufferPtr payload) = 0;
  };

  SiteDriver(const protocol::SiteConfig& site, const DataPlane::Settings& settings, const DataPlane::Parts& parts,
             std::optional<StoredResidual> residual, Host& host);

  [[nodiscard]] const protocol::Site& site() const { return site_; }
  [[nodiscard]] DataPlane& data() { return data_; }
  [[nodiscard]] const DataPlane& data() const { return data_; }

  // The machine is never re-entered: events that come during a step wait for its end.
  void feed(protocol::SiteEvent event);
  [[nodiscard]] TimePoint next_deadline() const {
    return stopped_ ? kNever : std::min(site_.next_deadline(), links_.next_deadline());
  }
  // No event is fed or kept any more.
  void stop() {
    stopped_ = true;
    pending_.clear();
  }
  [[nodiscard]] std::size_t waiting() const { return pending_.size(); }  // events

  // ---- from the transport
  void on_authenticated(LinkId link, const std::vector<std::string>& names) override {
    links_.on_authenticated(link, names);
  }
  void on_accepted(LinkId link, const std::string& peer) override;
  void on_connected(LinkId link) override;
  void on_message(LinkId link, TransportMessage message) override;
  void on_sent(LinkId, std::uint64_t token) override { feed_all(data_.on_sent(token)); }
  void on_closed(LinkId link, Status why) override;

  // ---- the actions of links and tensors
  void act(const protocol::Send& action);
  void act(const protocol::CloseLink& action);
  void act(const protocol::DialCoordinator& action);
  void act(const protocol::DialPeer& action);
  void act(const protocol::StartExchange& action);
  void act(const protocol::CancelExchange& action);
  // Returns what became of the parameters; nullopt on failure, of which the host has been told.
  std::optional<DataPlane::Applied> act(const protocol::ApplyCommit& action);
  void act(const protocol::KeepAnchor& action);
  void act(const protocol::ReceiveAnchor& action);
  void act(const protocol::AddAnchorSource& action);
  void act(const protocol::DropAnchorSource& action);
  void act(const protocol::StopReceiving& action);
  void act(const protocol::SendAnchor& action);
  void act(const protocol::Rebase& action);
  void act(const protocol::TakeSnapshot& action);

 private:
  using Dial = std::variant<protocol::DialCoordinator, SiteId>;

  [[nodiscard]] DataPlane::Parts with_heartbeats(DataPlane::Parts parts);
  // Tells the coordinator, in the middle of a pass over all elements, that this site is alive.
  void while_passing();
  void make_room_for_link(LinkId link, const std::string& site);
  [[nodiscard]] std::string voter_of(SiteId site) const;
  [[nodiscard]] std::string end_of(LinkId link) const;
  void feed_all(DataPlane::Events events);
  void queue(DataPlane::Events events);
  void drain();
  void check(const Status& status) {
    if (!status.ok()) host_.failed(status);
  }

  Transport& transport_;
  const Clock& clock_;
  Host& host_;
  std::vector<std::string> coordinators_;
  protocol::Site site_;
  TimePoint last_heartbeat_{};
  DataPlane data_;
  std::map<LinkId, Dial> dials_;
  std::map<LinkId, std::string> ends_;  // the address of each link's other end
  LinkAdmission links_;                 // admits links whose peers have said Hello
  RateLimit probed_{std::chrono::seconds(10)};
  std::deque<protocol::SiteEvent> pending_;
  bool stepping_ = false;
  bool stopped_ = false;
};

}  // namespace collab
