// Links between sites: which side dials, and which site is at the other end.
//
//   dialled by us:    connected --our Hello--> greeting --its Hello, our Heartbeat----------------> usable
//   dialled by them:  --its Hello--> unlisted --the roster lists it: our Hello--> answered --its--> usable
//                                                                                     next message
//
// The data lane may overtake our Hello, so the dialled side sends no data before it knows that its Hello has arrived.
// If there are two links to one site, the one dialled by the higher site stays; if the same site dialled both, the
// newer one stays.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/protocol/actions.h"
#include "core/protocol/site/backoff.h"

namespace collab::protocol {

struct SiteParts;

class PeerLinks {
 public:
  struct Peer {
    enum class State : std::uint8_t {
      kGreeting,  // dialled by us: our Hello is out
      kUnlisted,  // dialled by them: its Hello came, the roster does not list it yet
      kAnswered,  // dialled by them: our Hello is out, its next message shows that it has arrived
      kUsable,    // both know each other: anything may be sent
    };
    State state = State::kUnlisted;
    SiteId site;
    std::string name;
    std::string address;   // as the roster listed it; another process has another one
    Digest key{};          // that it has shown, or that we have if we dialled
    bool dialled = false;  // by us
    TimePoint since{};
  };

  [[nodiscard]] bool knows(LinkId link) const { return peers_.contains(link); }
  [[nodiscard]] std::optional<SiteId> peer_of(LinkId link) const;  // the site that said Hello on it
  [[nodiscard]] std::optional<LinkId> link_to(SiteId site) const;  // a usable one
  [[nodiscard]] bool linked(SiteId site) const { return link_of_.count(site) != 0; }
  [[nodiscard]] bool cannot_be_dialled() const;  // this site
  // Why dials to a site have not succeeded; none if it was not dialled lately.
  [[nodiscard]] std::optional<std::string> last_reason(SiteId site) const;
  [[nodiscard]] TimePoint next_deadline() const;

  // ---- what comes
  void on_roster(const wire::Roster& update);
  void on_keys(const wire::Keys& told);
  void on_notice(const wire::Notice& notice);
  void on_hello(LinkId link, const wire::Hello& hello);
  // The peer that sends this message. Null if it may not; then the link is closed.
  [[nodiscard]] const Peer* on_message(LinkId link, const std::string& what);
  void on_connected(const PeerConnected& event);
  void on_dial_failed(SiteId site, const std::string& why);
  void on_closed(LinkId link, const std::string& why) { forget(link, why); }
  void on_tick();

  // ---- what others ask for
  bool dial(SiteId site);  // true if it dials: no dial is out, and no back-off runs
  void dial_everyone();    // if this site cannot be dialled: kMaxDials at once, in turn
  void forget_dial(SiteId site) { dials_.erase(site); }
  void close_link(LinkId link, const std::string& why);
  void close_link_to(SiteId site, const std::string& why);  // if a link is usable
  void close_each_link(const std::string& why);
  void end(const std::string& why);  // this site leaves: nothing is pursued any more

 private:
  friend struct SiteParts;
  friend struct Inside;
  // Dials to a site that have not succeeded.
  struct Dial {
    bool out = false;
    TimePoint at = kNever;  // the next try, or the limit of the dial that is out
    Duration backoff = kFirstBackoff;
    std::string last_reason = "no answer";
    void over(TimePoint now);
  };
  [[nodiscard]] bool is_in_roster(const Peer& peer) const;
  [[nodiscard]] bool is_authenticated(const Peer& peer) const;  // its key proves which site it is
  void greet(LinkId link);
  void answer(LinkId link);  // dialled by them, and listed
  void use(LinkId link);
  void forget(LinkId link, const std::string& why);
  void make_room_for_unknown();
  void pursue();  // retries what waits for links

  SiteParts* all_ = nullptr;
  std::map<LinkId, Peer> peers_;
  std::map<SiteId, LinkId> link_of_;  // the usable link to a site
  std::map<SiteId, Dial> dials_;
  SiteId next_to_dial_{};   // by dial_everyone(), or the first after it
  bool dials_out_ = false;  // no site gets through to our address
};

}  // namespace collab::protocol
