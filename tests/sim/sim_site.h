// One site of a simulated swarm: the protocol's Site and Exchange on a virtual network, with a small vector for a model
// and real arithmetic, so that digests mean something. It does what the runtime does, minus threads, codecs and files.
//
// Threads: one. Ownership: owns its machines and its model; borrows network and checkers.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/protocol/anchor_fetch.h"
#include "core/protocol/carryover.h"
#include "core/protocol/exchange.h"
#include "core/protocol/rate_meter.h"
#include "core/protocol/site.h"
#include "tests/sim/checkers.h"
#include "tests/sim/network.h"

namespace collab::sim {

enum class Mutation : std::uint8_t { kNone, kForgeDone, kCountTwice, kFlipBit, kLoseSteps, kCarryStale };

// What a process leaves behind on disk.
struct Saved {
  RunId run;
  RoundId round;
  std::vector<float> anchor;
  std::vector<wire::Voter> voters{};
  std::vector<wire::Branch> branch{};
  TermId term{};
};

struct SimSiteOptions {
  std::string name;     // of the site
  std::string process;  // of this incarnation
  std::string address;
  bool behind_nat = false;  // nobody gets through to that address
  std::uint32_t expected_sites = 1;
  std::uint32_t generation = 1;       // of the models it trains one after the other
  std::uint32_t last_generation = 1;  // after it there is none
  std::uint64_t elements = 5'000;
  std::uint64_t chunk_elements = 1'024;
  std::uint32_t window = 4;
  bool draws_rates = false;  // it tells what it has not measured
  bool helper = false;       // it trains nothing
  bool resumed = false;      // it says that its script had loaded a state
  std::string init_from;     // the site it names
  RoundId last_round{10};
  Duration train_min{200'000};
  Duration train_mean{400'000};
  double idle = 0.05;           // the chance that a step period brought no sample
  double damaged_parts = 0.05;  // the chance that a part of an anchor has another bit when it is sent
  std::vector<std::string> coordinators;
  protocol::SiteConfig config;
  std::optional<Saved> saved;
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
  bool undisturbed = true;  // its delta was always fit, and whether it was counted was always known
  std::uint64_t uncounted_from = 0;
  std::uint64_t skipped = 0;  // triggers answered without a round
  std::uint64_t rebased = 0;
  std::uint64_t carried = 0;  // chunks that were not sent again for another attempt
  bool joined = false;
  std::optional<wire::Form> form;  // the newest it heard of
  struct Exchanged {
    TimePoint began;
    TimePoint ended;
  };
  std::map<RoundId, Exchanged> exchanges{};
};

class SimSite final : public Node {
 public:
  using Log = std::function<void(const std::string& who, const std::string& what)>;
  SimSite(SimSiteOptions options, Network& network, Checkers& checkers, Log log);

  void start();
  [[nodiscard]] NodeId node() const { return node_; }
  [[nodiscard]] const SimSiteOptions& options() const { return options_; }
  [[nodiscard]] const SimSiteReport& report() const { return report_; }
  [[nodiscard]] std::optional<Saved> saved() const;
  [[nodiscard]] const std::vector<wire::Voter>& voters() const { return site_.voters(); }
  [[nodiscard]] std::string waiting_for() const { return site_.waiting_for(network_.now()); }
  void kill() { dead_ = true; }
  [[nodiscard]] SiteId self() const { return self_; }

  // Faults in the data.
  void poison_parameters() { poison_ = true; }      // NaN in the next delta
  void flip_mean_once() { flip_mean_ = true; }      // one bit of the next mean, before its digest
  void flip_anchor_once() { flip_anchor_ = true; }  // one bit of the next anchor, before its digest

  // Node.
  void on_connected(LinkId link, std::uint64_t token) override;
  void on_dial_failed(std::uint64_t token, const Status& why) override;
  void on_frame(LinkId link, const Frame& frame) override;
  void on_sent(LinkId link, std::uint64_t token) override;
  void on_closed(LinkId link, const Status& why) override;
  void on_timer() override;

 private:
  using Payload = std::shared_ptr<const std::vector<float>>;
  struct Arrived {
    wire::Chunk chunk;
    Payload payload;
  };
  struct Attempt {
    wire::Form form;
    std::vector<LinkId> links;
    protocol::Exchange exchange;
    std::vector<float> delta;
    std::vector<float> mean;
    std::map<std::uint64_t, Payload> means;      // of the others' slices
    std::map<std::uint64_t, Payload> own_means;  // by first element, both
  };
  struct Incoming {
    protocol::ReceiveAnchor wanted;
    protocol::AnchorFetch fetch;
    std::vector<float> anchor;
    std::map<SiteId, LinkId> links{};
  };

  // sim_site.cpp: driving the machine
  void post(protocol::SiteEvent event);
  void later(Duration after, std::function<void()> what);
  void act(const protocol::SiteAction& action);
  void send(LinkId link, const wire::Message& message);
  void train();
  void help(Duration after);  // a helper is ready again
  void trained();
  void round_done(const protocol::RoundDone& done);
  [[nodiscard]] wire::Join make_join() const;

  // sim_site_data.cpp: the data plane
  void start_exchange(const protocol::StartExchange& start);
  void step_exchange(const protocol::ExchangeEvent& event, SiteId from);
  void perform(const protocol::ExchangeAction& action);
  void send_contribution(const protocol::SendContribution& send);
  void reduce(const ElementRange& range);
  void exchange_done();
  void on_chunk(LinkId link, const wire::Chunk& chunk, const Payload& payload);
  void take_chunk(const Arrived& arrived);
  // `to`: a round's, which counts.
  void send_chunk(LinkId link, wire::ChunkKind kind, const ElementRange& range, Payload payload,
                  std::optional<SiteId> to = {});
  void send_anchor(const protocol::SendAnchor& send);
  void receive_anchor(const protocol::ReceiveAnchor& receive);
  void fetch(const protocol::AnchorFetchEvent& event, const Payload& payload);
  void anchor_whole();
  void keep_anchor(const protocol::KeepAnchor& keep);
  void apply(const protocol::ApplyCommit& apply);
  void move_onto_anchor(protocol::Base base, const std::vector<float>& previous);
  void leave_branch(const std::vector<float>& previous);
  void expect_lossless();
  [[nodiscard]] bool fit() const;
  [[nodiscard]] LinkId link_to(SiteId site) const;

  SimSiteOptions options_;
  Network& network_;
  Checkers& checkers_;
  Log log_;
  Prng prng_;
  NodeId node_ = 0;
  bool dead_ = false;
  protocol::Site site_;
  std::deque<protocol::SiteEvent> inbox_;
  bool stepping_ = false;
  SimSiteReport report_;

  std::vector<float> theta_;
  std::vector<float> anchor_;
  std::optional<Saved> saved_;
  std::vector<float> previous_;  // the anchor before the one that was received last
  struct Snapshot {
    std::vector<float> theta;
    std::vector<double> moves;
    std::uint64_t trained = 0;
  };
  std::optional<Snapshot> snapshot_;
  struct Fork {
    std::vector<float> anchor;
    std::uint64_t uncounted_from = 0;
  };
  std::optional<Fork> fork_;
  bool entering_branch_ = false;
  bool training_ = false;
  bool rebase_owed_ = false;   // a branch was entered while the parameters moved
  std::vector<double> moves_;  // what was trained and is not counted yet: parameters - anchor, by another way
  bool sound_ = true;          // no bit of the model was flipped
  std::uint64_t uncounted_from_ = 0;
  std::uint64_t steps_ = 0;
  SiteId self_;
  protocol::RateMeter up_;
  protocol::RateMeter down_;
  struct Sent {
    std::uint64_t bytes = 0;
    protocol::ChunkSent chunk;
    std::pair<RoundId, AttemptId> attempt;
  };
  std::map<std::uint64_t, Sent> sent_;
  std::uint64_t next_sent_ = 1;
  std::optional<Attempt> attempt_;
  protocol::Carryover<Payload> carried_;
  std::optional<Incoming> incoming_;
  std::uint64_t sound_parts_ = 0;  // of anchors, sent since one was damaged
  std::pair<RoundId, AttemptId> newest_{};
  std::map<std::pair<RoundId, AttemptId>, std::vector<Arrived>> early_;  // of attempts we have not heard of yet
  std::pair<RoundId, AttemptId> flipped_{};                              // the mean of this attempt was
  bool poison_ = false;
  bool flip_mean_ = false;
  bool flip_anchor_ = false;
};

// Token spaces of dials and sends.
inline constexpr std::uint64_t kCoordinatorDial = 1ULL << 40;

// Of a vector whose tiles have this many elements, as sites agree on it: small, so that an anchor has several.
inline constexpr std::uint64_t kTileElements = 512;
[[nodiscard]] Digest digest_of(const std::vector<float>& values);
[[nodiscard]] std::vector<Digest> tiles_of(std::span<const float> values);

}  // namespace collab::sim
