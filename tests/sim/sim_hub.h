// The world collectives of a simulated swarm: each site that began it is a rank, each coordinator's process has a hub
// beside it, and calls of the world come while rounds run and faults happen. A process that is started again is of
// another world, so its rank is gone.
//
// Calls are beside the training, at a pace of their own and to the last, or the training's: it stands still in them.
//
// Threads: one. Ownership: the world belongs to the run, and outlives ranks and hubs; a rank belongs to its site's
// process, a hub to its coordinator's.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/prng.h"
#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/collectives/hub_client.h"
#include "tests/sim/checkers.h"
#include "tests/sim/hub_judge.h"
#include "tests/sim/sim_transport.h"

namespace collab::sim {

class SimRank;

// What ranks and hubs have alike, and what must hold of them all.
class SimWorld {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint32_t sites = 3;
    std::uint32_t rounds = 5;
    std::vector<std::string> hubs;  // addresses
    Duration grace{};
    Duration join_timeout{};
    bool liars = false;  // a rank of theirs may never do its part
  };
  struct Report {
    std::uint64_t answers = 0;  // by hubs
    std::uint64_t errors = 0;   // among them
    std::uint64_t ended = 0;    // ranks whose collectives ended too early
    std::uint64_t parted = 0;   // worlds of two that went on alone
    Report& operator+=(const Report& other) {
      answers += other.answers;
      errors += other.errors;
      ended += other.ended;
      parted += other.parted;
      return *this;
    }
  };
  using Log = std::function<void(const std::string& who, const std::string& what)>;
  SimWorld(Options options, Network& network, Checkers& checkers, Log log);

  // Every now and then: no rank waits for ever. After `calm` there are no faults.
  void look(TimePoint calm);
  // No rank has more to ask, or waits.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] Report report() const;

  // ---- of a hub
  [[nodiscard]] protocol::HubConfig hub_config();
  // ---- of a rank
  [[nodiscard]] protocol::HubClientConfig client_config(std::uint32_t rank);
  [[nodiscard]] const HubScript& script() const { return script_; }
  [[nodiscard]] HubJudge& judge() { return judge_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] bool in_training() const { return every_ != 0; }
  [[nodiscard]] bool calls_at(std::uint64_t training_step) const {
    return in_training() && training_step % every_ == 0;
  }
  [[nodiscard]] protocol::HubRequest request(std::size_t group, std::uint32_t rank, std::uint64_t step);
  [[nodiscard]] Duration draw_pause();
  void began(SimRank& rank) { ranks_.push_back(&rank); }
  void answered(const protocol::HubExchanged& exchanged);
  void ended(const SimRank& rank, const Status& why);
  void lost_one() { calm_ = std::max(calm_, network_.now()); }
  void fail(const std::string& what) { checkers_.fail("world: " + what); }
  void log(const std::string& who, const std::string& what) { log_(who, what); }
  [[nodiscard]] Network& network() { return network_; }

 private:
  void draw_groups();

  Options options_;
  Network& network_;
  Checkers& checkers_;
  Log log_;
  Prng prng_;
  std::uint64_t number_;
  std::vector<std::string> sites_;
  HubScript script_;
  HubJudge judge_;
  std::uint64_t steps_;      // of each group
  std::uint64_t every_ = 0;  // of the training's steps has a call in it; 0: calls are beside it
  Duration pause_{};         // between two, about
  std::vector<SimRank*> ranks_;
  TimePoint calm_{};
  Report report_;
};

// Beside a coordinator, as the runtime's server has it.
class SimHub {
 public:
  SimHub(SimWorld& world, std::string process, Transport& transport, const Clock& clock);

  // Whether this, on that link, is for the hub.
  [[nodiscard]] bool is_for(LinkId link, const wire::Message& message) const {
    return std::holds_alternative<wire::Enter>(message) || hub_.knows(link);
  }
  [[nodiscard]] bool knows(LinkId link) const { return hub_.knows(link); }
  void step(const protocol::HubEvent& event);
  [[nodiscard]] TimePoint next_deadline() const { return hub_.next_deadline(); }
  [[nodiscard]] protocol::CallsUnderWay calls_under_way(const protocol::CollectiveHub::SitesOf& sites_of) const {
    return hub_.calls_under_way(sites_of);
  }

 private:
  SimWorld& world_;
  std::string process_;
  Transport& transport_;
  const Clock& clock_;
  protocol::CollectiveHub hub_;
};

// In a site's process, as the runtime's hub link has it.
class SimRank {
 public:
  SimRank(SimWorld& world, std::uint32_t rank, std::string process, SimTransport& transport, const Clock& clock);

  void start();
  void kill();
  // Its site has come to its end: it leaves, at once where it has failed.
  void site_over(bool failed);
  // A step of the training is over. Whether a call comes before the next: `then` is called once it is answered.
  [[nodiscard]] bool call(std::uint64_t training_step, std::function<void()> then);

  [[nodiscard]] bool has(LinkId link) const { return links_.contains(link); }
  void on_connected(LinkId link);
  void on_message(LinkId link, const TransportMessage& message);
  void on_closed(LinkId link, const Status& why);
  void tick();

  [[nodiscard]] const std::string& process() const { return process_; }
  [[nodiscard]] bool takes_part() const { return !dead_ && !left_ && broken_.ok(); }
  [[nodiscard]] bool finished() const;
  // For how long at most it may wait for an answer now, and since when it does; kNever: it waits for none.
  struct Wait {
    std::uint64_t step = 0;
    std::size_t group = 0;
    TimePoint since = kNever;
    Duration timeout{};
  };
  [[nodiscard]] std::vector<Wait> waits() const;

 private:
  struct Calls {
    std::uint64_t asked = 0;
    std::uint64_t answered = 0;
    Wait wait;
    bool out = false;  // it takes no part in this group any more
  };
  void feed(const protocol::HubClientEvent& event);
  void act(const protocol::DialHub& action);
  void act(const protocol::HubSend& action);
  void act(const protocol::CloseLink& action) { transport_.close(action.link); }
  void act(const protocol::HubExchanged& action);
  void act(const protocol::HubBroken& action);
  void act(const protocol::Note& action) { world_.log(process_, action.event + ": " + action.text); }
  void act(const protocol::HubEntered&) { world_.log(process_, "is in its world"); }
  void act(const protocol::SenderResolved&) {}
  void ask_later(std::size_t group);
  void ask(std::size_t group);
  void leave_when_done();

  SimWorld& world_;
  std::uint32_t rank_;
  std::string process_;
  SimTransport& transport_;
  const Clock& clock_;
  protocol::HubClient client_;
  std::set<LinkId> links_;
  LinkId dialing_{};
  std::map<std::size_t, Calls> calls_;  // by group
  std::function<void()> then_;
  bool dead_ = false;
  bool site_over_ = false;
  bool left_ = false;
  bool ends_ = false;  // in this step of the machine
  Status broken_;
};

}  // namespace collab::sim
