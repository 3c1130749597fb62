// One site of a simulated swarm: what the runtime's node does, in virtual time and without threads. The Site machine
// and the data plane are joined by the same SiteDriver; here are training, faults and what the checkers are told.
//
// Threads: one. Ownership: owns its end of the network, its driver and its tensors; borrows network and checkers.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/site/egress_budget.h"
#include "core/runtime/site_driver.h"
#include "tests/sim/checkers.h"
#include "tests/sim/network.h"
#include "tests/sim/sim_data.h"
#include "tests/sim/sim_hub.h"
#include "tests/sim/sim_optimizer.h"
#include "tests/sim/sim_transport.h"
#include "tests/sim/store.h"

namespace collab::sim {

// How long until a record is durable, and how much later its site hears of that.
struct Disk {
  Duration takes{10'000};
  Duration tells{};
};

struct SimSiteOptions {
  std::string name;         // of the site
  std::string process;      // of this incarnation
  std::string address;      // empty: it cannot be dialled
  bool behind_nat = false;  // that address cannot be reached
  std::uint32_t expected_sites = 1;
  std::uint32_t generation = 1;       // of the models it trains one after the other
  std::uint32_t last_generation = 1;  // after it there is none
  std::uint64_t elements = 5'000;
  protocol::Fragments fragments{};
  DataPlane::Settings data = SimData::small();
  bool draws_rates = false;         // it tells what it has not measured
  bool leader_times = false;        // the leader chooses how often rounds come; what it is told is drawn
  bool helper = false;              // it trains nothing
  bool optimizer = false;           // it serves its optimizer's state, and begins with that of another
  std::uint64_t egress_budget = 0;  // bytes; 0: none
  SimWorld* world = nullptr;        // the world whose collectives it joins, as this rank
  std::uint32_t rank = 0;
  bool resumed = false;            // it says that its script had loaded a state
  std::string init_from;           // the site it names
  std::optional<Merge> overlap{};  // rounds run behind its training
  RoundId last_round{10};
  Duration train_min{200'000};
  Duration train_mean{400'000};
  double idle = 0.05;           // the chance that a step period brought no sample
  double damaged_parts = 0.05;  // the chance that a part of an anchor has another bit when it is sent
  protocol::SiteConfig config;
  Store* store = nullptr;  // of what earlier processes have left; null: nothing, and nothing is kept
  Disk disk{};
  std::uint64_t save_every = 1;  // rounds
  Mutation mutation = Mutation::kNone;
  std::uint64_t seed = 0;
};

// What the swarm wants to know of its sites.
struct SimSiteReport {
  bool over = false;
  bool failed = false;
  bool goes_on = false;  // with the next generation
  Status why;
  RoundId round;
  RunId run;
  std::uint64_t rounds_done = 0;
  std::uint64_t trained = 0;
  std::uint64_t unknown = 0;  // samples that may have been counted, which no site knows
  bool undisturbed = true;    // its delta was always fit, and its anchor sound
  std::uint64_t skipped = 0;  // triggers answered without a round
  std::uint64_t rebased = 0;
  std::uint64_t carried = 0;  // chunks that were here when another attempt began
  bool joined = false;
  bool spent = false;    // it has left, as what it may send does not pay for another round
  bool returns = false;  // it has left, as it was asked to, and begins again
  struct Exchanged {
    TimePoint began;
    TimePoint ended;
  };
  std::map<RoundId, Exchanged> exchanges{};
};

class SimSite final : public TransportHandler, private SiteDriver::Host {
 public:
  using Log = std::function<void(const std::string& who, const std::string& what)>;
  SimSite(SimSiteOptions options, Network& network, Checkers& checkers, Log log);

  void start();
  [[nodiscard]] NodeId node() const { return transport_.node(); }
  [[nodiscard]] const SimSiteOptions& options() const { return options_; }
  [[nodiscard]] const SimSiteReport& report() const { return report_; }
  [[nodiscard]] const SimOptimizer::Report& optimizer() const { return optimizer_.report(); }
  void leave_arena();  // the process ends, and its shared memory stays
  // After the step, or the round, that is under way. False: it had been asked before.
  bool ask_to_leave() { return !std::exchange(asked_to_leave_, true); }
  [[nodiscard]] wire::Record record() const { return driver_.site().record(); }
  [[nodiscard]] std::size_t knows() const;  // bytes
  [[nodiscard]] std::string waiting_for() const { return driver_.site().waiting_for(clock_.now()); }
  void kill();
  [[nodiscard]] SiteId self() const { return self_; }

  // Faults in the data.
  void poison_parameters() { poison_ = true; }  // NaN in the next delta
  void flip_mean_once() { flip_mean_ = true; }  // one bit of the next mean, before its digest
  void lie(std::uint64_t seed, TimePoint until) { transport_.lie(seed, until); }
  void claim(Claim claim) { transport_.claim(std::move(claim)); }
  void flip_anchor_once() { flip_anchor_ = true; }  // one bit of the next anchor, before its digest

  // TransportHandler.
  void on_accepted(LinkId link, const std::string& peer) override { driver_.on_accepted(link, peer); }
  void on_connected(LinkId link) override { is_of_rank(link) ? rank_->on_connected(link) : driver_.on_connected(link); }
  void on_message(LinkId link, TransportMessage message) override;
  void on_sent(LinkId link, std::uint64_t token) override {
    token >= OptimizerTransfer::kFirstToken ? optimizer_.sent(token) : driver_.on_sent(link, token);
  }
  void on_closed(LinkId link, Status why) override {
    if (is_of_rank(link)) return rank_->on_closed(link, why);
    optimizer_.link_closed(link);
    driver_.on_closed(link, std::move(why));
  }

 private:
  // SiteDriver::Host
  void stepped(const protocol::SiteEvent& event, const std::vector<protocol::SiteAction>& actions) override;
  void failed(const Status& why) override { act(protocol::Failed{why}); }
  std::optional<protocol::SiteEvent> optimizer_part(LinkId link, const wire::Chunk& chunk, BufferPtr payload) override {
    return optimizer_.arrived(link, chunk, std::move(payload));
  }

  [[nodiscard]] bool is_of_rank(LinkId link) const { return rank_ && rank_->has(link); }
  void heard(const protocol::SiteEvent& event);
  void act(const protocol::StartExchange& action);
  void act(const protocol::ApplyCommit& action);
  void act(const protocol::KeepAnchor& action);
  void act(const protocol::ReceiveAnchor& action);
  void act(const protocol::Persist& action);
  void act(const protocol::TakeSnapshot& action);
  void act(const protocol::Rebase& action);
  void act(const protocol::JoinDone& action);
  void act(const protocol::RoundDone& action);
  void act(const protocol::RoundSkipped& action);
  void act(const protocol::ServeOptimizer& action);
  void act(const protocol::Left& action);
  void act(const protocol::Failed& action);
  void act(const protocol::Note& action);
  // Actions that the driver does alone, and actions without a part here.
  template <typename Action>
  void act(const Action& action) {
    if constexpr (requires { driver_.act(action); }) driver_.act(action);
    if constexpr (requires { optimizer_.act(action); }) optimizer_.act(action);
  }

  void save();
  void write_record();
  [[nodiscard]] Status put(const wire::Record& record);
  void later(Duration after, std::function<void()> what);
  [[nodiscard]] bool trained_enough() const;
  [[nodiscard]] bool at_the_end() const;
  [[nodiscard]] bool budget_over();  // between rounds
  void train();
  void trained();
  void go_on();  // after a step, and the calls that came with it
  void train_in_flight();
  void round_over();
  void help(Duration after);  // a helper is ready again
  void ready(std::uint64_t samples);
  void follow(std::uint32_t period);
  [[nodiscard]] bool trains_on();  // its period is not over
  void tamper(TransportMessage& message, wire::Chunk chunk);
  [[nodiscard]] wire::Join make_join();

  SimSiteOptions options_;
  Network& network_;
  Checkers& checkers_;
  Log log_;
  Prng prng_;
  SimTransport transport_;
  SimClock clock_;
  SimData data_;
  SiteDriver driver_;
  SimOptimizer optimizer_;
  protocol::EgressBudget egress_;
  std::optional<SimRank> rank_;
  // What the leader has said last of how long to train: after which anchor, and how many steps.
  std::pair<Checkers::Told, std::uint32_t> told_{};
  std::uint32_t period_ = 0;
  std::uint32_t trained_of_period_ = 0;
  wire::Record known_;  // at the start
  bool dead_ = false;
  SimSiteReport report_;
  bool record_in_memory_ = false;          // the disk has failed
  std::deque<protocol::Persist> records_;  // the first is being written
  bool moved_ = false;                     // onto another anchor, in the round that is under way
  // It is not known whether what was contributed earlier has counted: of the anchor that was named last, and of the one
  // that is held.
  bool told_unknown_ = false;
  bool fate_unknown_ = false;
  bool training_ = false;
  bool asked_to_leave_ = false;
  enum class Flight { kNone, kUnderWay, kOver };  // of a round behind the training
  Flight flight_ = Flight::kNone;
  std::uint64_t steps_ = 0;
  SiteId self_;
  std::optional<std::pair<RunId, RoundId>> held_;  // the anchor
  std::optional<protocol::ReceiveAnchor> wanted_;  // on its way
  std::pair<RoundId, AttemptId> newest_{};         // the attempt started last
  TermId newest_term_;
  std::uint64_t sound_parts_ = 0;            // of anchors, received since one was damaged
  std::pair<RoundId, AttemptId> flipped_{};  // the mean of this attempt was
  bool poison_ = false;
  bool flip_mean_ = false;
  bool flip_anchor_ = false;
};

}  // namespace collab::sim
