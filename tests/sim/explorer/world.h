// Sites and candidates as they are, and everything around them as thin as possible: one value that can be copied, one
// step at a time. A rule says what comes next; a schedule says where to depart from it.
//
//   the rule    of all that is on its way the next in turn (round robin over the sites' own affairs and over both
//               directions of each link, each in order); a timer when nothing is on its way
//   d           skip: the next in turn waits until it is its turn again
//   D           hold back: it waits until nothing else is on its way; where that is so already, until a timer has fired
//   k r w l     the site or candidate it is for dies before it: for good; a site is begun again with its record as last
//               written, as asked to be written (nobody heard that it was), or without it and its anchor
//   x           the link breaks, and one dial there fails
//   q           the site leaves
//
// In place of data planes, disks and transports: parameters are numbers of samples. An exchange is complete once all
// participants have begun it and none of them died before it was done. A record is written some time later. Links
// between sites are as fast as light.
//
// Threads: one. Ownership: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/fragments.h"
#include "core/protocol/site/site.h"
#include "tests/sim/explorer/ledger.h"
#include "tests/unit/protocol/invariants.h"

namespace collab::sim {

// The state in which a swarm begins.
enum class Start : std::uint8_t {
  kAgreed,   // all were members at round 0, and begin again
  kSplit,    // the same, and the first dial of most of them goes wrong: the second candidate is to lead
  kJoining,  // the last one was not
  kFresh,    // no site was a member
};
[[nodiscard]] std::optional<Start> start_from(std::string_view name);  // "agreed", "split", "joining", "fresh"

struct Beginning {
  Start start = Start::kAgreed;
  std::uint32_t fragments = 1;  // of the model, that take turns
};

class World {
 public:
  static constexpr std::uint32_t kSites = 3;
  static constexpr std::uint32_t kCandidates = 2;

  explicit World(const Beginning& setup = {});

  // The round that all living sites must reach: in the last one the first fragment has its turn again.
  [[nodiscard]] std::uint64_t rounds() const { return setup_.fragments + 1; }

  // One step of the rule. False: nothing is on its way, and no timer waits.
  bool step();
  // The departures from the rule that mean something here.
  [[nodiscard]] std::string choices() const;
  void depart(char how);

  [[nodiscard]] std::uint32_t steps() const { return steps_; }
  [[nodiscard]] Digest digest();
  // Every living site has all rounds, of one run.
  [[nodiscard]] bool is_done() const;
  // Nothing has been agreed on for long, and no site has died since.
  [[nodiscard]] bool is_stuck() const;
  // Whether the living sites can agree.
  [[nodiscard]] bool can_agree() const;
  [[nodiscard]] std::vector<std::string> broken() const;
  [[nodiscard]] std::size_t commits() const { return ledger_.commits(); }
  // Each step in words, and what the machines say. None: there is no listener.
  std::function<void(const std::string&)> log;
  [[nodiscard]] std::string story() const;

 private:
  // What is on its way: a site's own affair or a direction of a link. In the order of turns.
  enum class Kind : std::uint8_t { kBegin, kDial, kWrite, kData, kTrain, kUp, kDown };
  struct Source {
    std::uint64_t line = 0;  // the site's number; links follow after the sites
    Kind kind = Kind::kBegin;
    auto operator<=>(const Source&) const = default;
  };
  struct Parcel {
    std::optional<wire::Message> message;  // none: the link is closed
    Digest digest;
  };
  struct Link {
    std::uint32_t site = 0;
    std::uint32_t candidate = 0;
    std::uint32_t life = 0;  // of the site
    bool inquiry = false;
    std::deque<Parcel> up{};
    std::deque<Parcel> down{};
    bool up_open = true;  // the site may send
    bool down_open = true;
  };
  struct PeerLink {
    struct End {
      std::uint32_t site = 0;
      std::uint32_t life = 0;
    };
    End a, b;
    [[nodiscard]] const End& other(std::uint32_t site) const { return a.site == site ? b : a; }
  };
  struct Anchor {
    wire::Offer offer{};
    protocol::KnownMembership membership{};
  };
  // An event of the data plane.
  struct Complete {
    wire::StartAttempt start;
  };
  struct Fetch {
    std::uint32_t from = 0;
    SiteId id;
    LinkId over;
  };
  struct PeerLost {
    LinkId link;
  };
  using Data = std::variant<Complete, Fetch, PeerLost>;
  struct Process {
    std::string name;
    std::uint32_t life = 0;
    std::optional<protocol::Site> machine{};
    bool dead = false;  // for good
    bool left = false;
    bool begins = false;
    std::deque<protocol::DialCoordinator> dials{};
    std::set<std::uint32_t> unreachable{};  // candidates, for one dial
    // On disk, and to be written.
    wire::Record disk{};
    std::deque<protocol::Persist> writes{};
    // The data plane.
    Anchor anchor{};  // outlives the process
    std::deque<Data> data{};
    std::optional<wire::StartAttempt> exchange{};
    std::optional<wire::StartAttempt> mean{};  // of this attempt, whole
    std::optional<protocol::ReceiveAnchor> wanted{};
    bool training = false;
    TimePoint trains_until{};  // without a round it takes some time
    std::uint64_t trained = 0;
    std::vector<std::uint64_t> uncounted_from{};  // in each fragment
    std::uint32_t fragment = 0;                   // of the exchange begun last
    std::optional<std::uint64_t> snapshot{};
    std::uint64_t asked = 0;  // records
    [[nodiscard]] std::string id() const { return name + "." + std::to_string(life); }
  };
  struct Candidate {
    std::string name;
    std::optional<protocol::Coordinator> machine{};
  };
  enum class Wait : std::uint8_t { kForOthers, kForTimer };

  // ---- turns (world.cpp)
  [[nodiscard]] std::vector<Source> on_their_way() const;
  [[nodiscard]] bool is_ready(const Process& site, Kind kind) const;
  [[nodiscard]] std::vector<Source> in_turn() const;  // the next one first; none: a timer is next
  void release();
  bool fire_timer();
  void handle(const Source& source);
  [[nodiscard]] bool is_noise(const Source& source) const;
  [[nodiscard]] std::string faults_of(const Source& source) const;
  [[nodiscard]] std::string text_for(const Source& source) const;
  [[nodiscard]] static std::uint64_t line_of(LinkId link) { return kSites + link.value; }
  [[nodiscard]] static LinkId link_of(const Source& source) { return LinkId{source.line - kSites}; }
  void begin_as(std::uint32_t site);

  // ---- what befalls them (world_faults.cpp)
  void befall(const Source& source, char how);
  void kill_site(std::uint32_t site, char how);
  void kill_candidate(std::uint32_t candidate);
  void break_link(LinkId link);
  void lose_peers_of(std::uint32_t site);
  void drop_dead_links();

  // ---- sites and candidates (world_machines.cpp)
  void begin_site(std::uint32_t site);
  void connect(std::uint32_t site);
  void write_record(std::uint32_t site);
  void train(std::uint32_t site);
  void carry(LinkId link, bool upwards);
  void tell(std::uint32_t site, const protocol::SiteEvent& event);
  void tell_now(std::uint32_t site, const protocol::SiteEvent& event);
  void tell_candidate(std::uint32_t candidate, const protocol::CoordinatorEvent& event);
  void sent(LinkId link, const wire::Message& message);
  void say(const std::string& line) const {
    if (log) log(line);
  }

  // What a site's machine asks for.
  void act(std::uint32_t site, const protocol::Send& action);
  void act(std::uint32_t site, const protocol::CloseLink& action);
  void act(std::uint32_t site, const protocol::DialCoordinator& action);
  void act(std::uint32_t site, const protocol::Persist& action);
  void act(std::uint32_t site, const protocol::DialPeer& action);
  void act(std::uint32_t site, const protocol::JoinDone& action);
  void act(std::uint32_t site, const protocol::RoundDone& action);
  void act(std::uint32_t site, const protocol::RoundSkipped& action);
  void act(std::uint32_t site, const protocol::Left& action);
  void act(std::uint32_t site, const protocol::Failed& action);
  void act(std::uint32_t site, const protocol::Note& action);
  // world_data.cpp
  void act(std::uint32_t site, const protocol::StartExchange& action);
  void act(std::uint32_t site, const protocol::CancelExchange& action);
  void act(std::uint32_t site, const protocol::ApplyCommit& action);
  void act(std::uint32_t site, const protocol::KeepAnchor& action);
  void act(std::uint32_t site, const protocol::ReceiveAnchor& action);
  void act(std::uint32_t site, const protocol::AddAnchorSource& action);
  void act(std::uint32_t site, const protocol::DropAnchorSource& action);
  void act(std::uint32_t site, const protocol::StopReceiving& action);
  void act(std::uint32_t site, const protocol::Rebase& action);
  void act(std::uint32_t site, const protocol::TakeSnapshot& action);
  template <typename Action>
  void act(std::uint32_t, const Action&) {}  // optimizers' states and parts of anchors: no site has any
  [[nodiscard]] bool can_be_handled(const Process& site, const Data& data) const;
  void handle_data(std::uint32_t site);
  void complete_exchange(const wire::StartAttempt& start);
  void moved(Process& site, protocol::Base base);
  [[nodiscard]] std::uint32_t fragment_of(RoundId round) const {
    return protocol::Fragments{setup_.fragments}.in_turn(round);
  }
  [[nodiscard]] std::optional<std::uint32_t> index_of(const std::string& name) const;

  // ---- world_digest.cpp
  void write_site(Canon& canon, const Process& site) const;
  void write_links(Canon& canon) const;
  void write_turns(Canon& canon) const;
  [[nodiscard]] std::vector<LinkId> links_alive() const;

  Beginning setup_;
  TimePoint now_{};
  std::array<Process, kSites> sites_;
  std::array<Candidate, kCandidates> candidates_;
  std::map<LinkId, Link> links_;
  std::map<LinkId, PeerLink> peers_;
  std::uint64_t last_link_ = 0;
  std::deque<std::pair<std::uint32_t, protocol::SiteEvent>> at_once_;  // what follows before anything else
  std::optional<Source> last_;                                         // whose turn it was
  std::map<Source, Wait> held_back_;
  std::uint32_t steps_ = 0;
  std::uint32_t faults_ = 0;
  TimePoint last_progress_{};
  std::uint32_t ticks_at_once_ = 0;
  protocol::Invariants invariants_;
  Ledger ledger_;
  // For each machine, the sites first: its state as of `digest_now_`, and the links that existed.
  std::array<std::optional<Digest>, kSites + kCandidates> digests_{};
  std::pair<TimePoint, std::vector<LinkId>> digests_of_{};
};

}  // namespace collab::sim
