// A site's leader in the swarm: the loop thread that connects clock, transport and store to the site driver.
//
// Threads: the loop thread owns the driver (machine, data plane and every link); join(), round() and depart() post to
// it and wait. The caller stands still meanwhile, so the loop may read and write its parameters. With a training copy
// the loop works on the copy alone, from start_round() to the report. Ownership: owns transport and driver; borrows
// arena and parameters, which outlive it.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collab/clock.h"
#include "collab/session.h"
#include "core/runtime/callers.h"
#include "core/runtime/data/optimizer_transfer.h"
#include "core/runtime/egress_watch.h"
#include "core/runtime/events_file.h"
#include "core/runtime/helper_state.h"
#include "core/runtime/mailbox.h"
#include "core/runtime/round_in_progress.h"
#include "core/runtime/site_driver.h"
#include "core/runtime/site_parameters.h"
#include "core/runtime/site_reporter.h"
#include "core/runtime/storage/site_storage.h"

namespace collab {

// Why a site or a helper no longer takes part.
inline constexpr const char* kBudgetOver = "its egress budget is spent (COLLAB_EGRESS_BUDGET_GB)";

class Node final : private SiteDriver::Host {
 public:
  struct Options {
    Config config;
    std::string site;
    std::vector<std::string> coordinators;
    std::vector<TensorInfo> model;
    Digest fingerprint;
    std::uint32_t generation = 1;
    std::uint64_t outer_elements = UINT64_MAX;  // trained parameters; buffers follow
    bool serves_optimizer = false;
    // Set at a helper's node, which takes part in every round and contributes nothing. Called on the loop thread: with
    // ok once the helper has joined, and with the reason when it ends.
    HelperState::Callback helps{};
    std::optional<StoredResidual> residual{};  // moved to the data plane
    std::optional<RecordStore> record{};       // moved to its writer; none: the record is in memory
    std::optional<wire::Offer> kept{};         // the anchor in the state file
    bool kept_ended = false;                   // the site that left it there has ended in good order
    protocol::Egress egress{};                 // spent by earlier processes
    Disk* disk = nullptr;                      // writes state file and events; null: the system's
  };
  static Result<std::unique_ptr<Node>> start(Options options, std::unique_ptr<Transport> transport, ArenaWriter& arena,
                                             ParameterVector& parameters, TrainingCopy* copy = nullptr);
  ~Node() override;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // The address at which other sites dial this one.
  [[nodiscard]] const std::string& address() const { return address_; }

  // Joins the swarm; returns with the anchor in the parameters.
  Result<SealedAnchor> join(wire::Join join);
  Result<RoundReport> round(const protocol::Trigger& trigger) { return await(start_round(trigger, false)); }
  // `merges`: the caller trains on, and merges the copy once it has the report.
  using Pending = std::future<Result<RoundReport>>;
  Pending start_round(const protocol::Trigger& trigger, bool merges);
  Result<RoundReport> await(Pending pending);
  // Warns that the round behind the training is late: what it waits for and, once it exchanges, that it is `slow`.
  void warn_of_late_round(std::string slow);
  // The round that was reported last is merged; it is logged with these times.
  void merged(const TrainingTimes& times);
  // For a helper, in place of join() and round(). Returns at once.
  void help(wire::Join join);
  [[nodiscard]] std::uint32_t period() const { return round_.period(); }  // as in RoundReport
  [[nodiscard]] bool exchanging() const { return round_.exchanging(); }
  // COLLAB_EGRESS_BUDGET_GB does not cover another round. Updated between rounds.
  [[nodiscard]] bool budget_over() const { return egress_.over(); }
  // Leaves in good order; bounded, never fails. `next_generation`: the one in which this site goes on at once, or 0.
  void depart(const std::string& reason, std::uint32_t next_generation = 0);

  // The optimizer state; see Session. It is served from here on, or no longer because of `why_none`.
  void serve_optimizer(std::string why_none);
  [[nodiscard]] bool optimizer_wanted() const { return optimizer_->wanted(); }
  void give_optimizer(Result<OptimizerCopy> copy);
  Result<OptimizerOffer> ask_optimizer();
  Result<BufferPtr> take_optimizer();
  void end_optimizer(std::string cold);

  [[nodiscard]] std::uint64_t bytes_sent() const { return egress_.bytes_sent(); }
  [[nodiscard]] std::uint64_t bytes_received() const { return egress_.bytes_received(); }
  [[nodiscard]] std::uint64_t egress_spent() const { return egress_.spent(); }

 private:
  Node(Options options, std::unique_ptr<Transport> transport, EventsFile events, ArenaWriter& arena,
       ParameterVector& parameters, TrainingCopy* copy);
  void loop();
  void handle(LoopEvent event);
  // SiteDriver::Host
  void stepped(const protocol::SiteEvent& event, const std::vector<protocol::SiteAction>& actions) override;
  void failed(const Status& why) override { act(protocol::Failed{why}); }
  std::optional<protocol::SiteEvent> optimizer_part(LinkId link, const wire::Chunk& chunk, BufferPtr payload) override;

  // Actions in which the node has no part.
  template <typename Action>
  void act(const Action& action) {
    driver_->act(action);
  }
  void act(const protocol::StartExchange& action);
  void act(const protocol::CancelExchange& action);
  void act(const protocol::ApplyCommit& action);
  void act(const protocol::KeepAnchor& action);
  void act(const protocol::ReceiveAnchor& action);
  void act(const protocol::Persist& action);
  void act(const protocol::JoinDone& action);
  void act(const protocol::Rebase& action);
  void act(const protocol::RoundDone& action);
  void act(const protocol::RoundSkipped& action);
  void act(const protocol::OptimizerOffered& action);
  void act(const protocol::NoOptimizer& action);
  void act(const protocol::TakeOptimizerPart& action);
  void act(const protocol::OptimizerComplete& action);
  void act(const protocol::OptimizerLost& action);
  void act(const protocol::ServeOptimizer& action);
  void act(const protocol::Left& action);
  void act(const protocol::Failed& action);
  void act(const protocol::Note& action);

  void persisted(std::uint64_t number, const Status& how);
  void begin_round(protocol::Trigger trigger);
  void warn_if_nothing_changed(std::uint64_t steps);
  void handle_after_failure(const LoopEvent& event);  // once the node has failed
  // Settles what the site's ranks do with their parameters, and puts in place what they need for it.
  [[nodiscard]] Status settle_parameters();
  [[nodiscard]] Status publish_moved();
  // About to change: the arena's other slot; or that slot, outer state and residual.
  void change_slot();
  void change_state();
  [[nodiscard]] bool broken() const { return callers_.refused(); }  // the node has failed and does nothing any more
  void count_what_is_sent();
  void answer_round();
  void check_egress_budget();  // between rounds
  void report_wait();
  template <typename T, typename Begin>
  Result<T> ask(Answer<Result<T>>& answer, const std::string& what, Duration limit, Begin begin);

  // ---- fixed after start()
  Options options_;
  std::string address_;
  SteadyClock clock_;

  // ---- any thread, as these classes document
  Mailbox mailbox_;
  EgressWatch egress_;
  RoundInProgress round_;

  // ---- loop thread only
  SiteParameters parameters_;
  SiteReporter news_;
  SiteStorage storage_;
  Callers callers_;
  HelperState helper_state_;

  // ---- last, so that they stop first
  std::unique_ptr<Transport> transport_;
  std::optional<SiteDriver> driver_;
  std::optional<OptimizerTransfer> optimizer_;
  std::thread thread_;
};

}  // namespace collab
