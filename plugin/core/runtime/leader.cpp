#include "core/runtime/leader.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/arena/process_identity.h"
#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/protocol/formatting.h"
#include "core/protocol/fragments.h"

namespace collab {
namespace {

// Models that are trained one after the other may look alike, but the saved state of one is of no use to the next.
[[nodiscard]] Digest fingerprint_of(const SessionOptions& options) {
  const std::vector<TensorInfo>& model = options.model;
  std::string text = options.generation == 1 ? "" : "generation " + std::to_string(options.generation) + '\n';
  // Uses the words of existing state files and arenas: "averaged" is "trained" here.
  const auto word = [](TensorKind kind) { return kind == TensorKind::kAveraged ? "trained" : name_of(kind); };
  for (const TensorInfo& tensor : model) {
    text += tensor.name + ' ' + tensor.dtype + ' ' + std::string(word(tensor.kind));
    for (const std::uint64_t extent : tensor.shape) text += ' ' + std::to_string(extent);
    text += '\n';
  }
  return hash128(std::as_bytes(std::span(text)));
}

[[nodiscard]] Digest job_of(const std::string& name) {
  if (!name.empty()) return hash128(std::as_bytes(std::span(name)));
  const arena::ProcessIdentity self = arena::this_process();
  return hash128(std::as_bytes(std::span(&self, 1)));
}

}  // namespace

std::vector<std::string> left_out(const std::vector<TensorInfo>& model) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : model) {
    if (tensor.kind == TensorKind::kLeftOut) names.push_back(tensor.name);
  }
  return names;
}

MergeSettings merge_settings(const SessionOptions& options) {
  return {.merge = options.config.merge, .trained = options.compared_elements};
}

ArenaSpec arena_spec(const SessionOptions& options, std::uint64_t elements) {
  return {.key = {options.config.run, options.site, fingerprint_of(options)},
          .elements = elements,
          .outer_state = has_outer_state(options.config.outer_optimizer),
          .training_copy = options.config.overlap,
          .ranks = options.layout.size,
          .shared = options.layout.size > 1 && options.layout.one_host,
          .job = job_of(options.job),
          .places = {}};
}

RecordScope record_scope(const SessionOptions& options) {
  return {.run = options.config.run,
          .site = options.site,
          .generation = options.generation,
          .rendezvous = options.record.scope,
          .model = fingerprint_of(options)};
}

Status Leader::prepare() {
  Result<std::unique_ptr<ArenaWriter>> arena = create_arena(arena_spec(options_, parameters_.size()));
  if (!arena.ok()) return arena.status();
  arena_ = std::move(*arena);
  if (!options_.config.overlap) {
    log_debug("anchor and outer state live in " + arena_->describe());
    return {};
  }
  copy_.emplace(arena_->training_copy(), merge_settings(options_));
  if (arena_->in_memory()) pinned_ = parameters_.pin_memory(arena_->training_copy());
  log_info(
      "rounds run behind the training (COLLAB_OVERLAP); anchor, outer state and a copy of the parameters live in " +
      arena_->describe());
  return {};
}

// If there is an anchor, a checkpoint that the script has loaded is not used. The user is told.
Status Leader::warn_if_not_used(const SealedAnchor& anchor) {
  if (!options_.resumed) return {};
  const Result<bool> same = parameters_.holds(0, arena_->anchor());  // as rounded to the types of the parameters
  if (!same.ok()) return same.status();
  if (*same) return {};
  const std::string& dir = options_.config.state_dir;
  log_warning(
      "the model that the script has loaded is not used: site " + options_.site + " goes on from the anchor of round " +
      std::to_string(anchor.round.value) + " in " +
      (dir.empty() ? "shared memory" : state_path(dir, options_.site, options_.generation)) +
      ". To begin from the checkpoint, stop all sites, move the folders of COLLAB_STATE_DIR away at all of them, "
      "and start them again [state.before-checkpoint]");
  return {};
}

Result<wire::Join> Leader::describe() {
  wire::Join join;
  join.swarm = options_.config.run;
  join.site = options_.site;
  join.index = options_.config.site_index.value_or(wire::kNoIndex);
  // The coordinator waits for the sites that trained the generation before: it knows which of them left for this one.
  join.expected_sites = options_.generation == 1 ? options_.config.min_sites : 1;
  join.generation = options_.generation;
  join.address = node_->address();
  join.elements = parameters_.size();
  join.fingerprint = fingerprint_of(options_);
  join.report.record = saved_.known();
  if (const std::optional<SealedAnchor> sealed = arena_->sealed()) {
    join.offer = {sealed->run, sealed->round, sealed->digest};
    COLLAB_RETURN_IF_ERROR(warn_if_not_used(*sealed));
  } else {
    const std::span<float> outer = arena_->outer();
    std::ranges::fill(outer, 0.0F);
    const Result<Digest> parameters = digest_of_parameters(parameters_);
    if (!parameters.ok()) return parameters.status();
    join.offer.digest = digest_of_state(*parameters, outer.empty() ? Digest{} : digest_of_vector(outer));
  }
  for (const auto& [name, value] : shared_settings(options_.config)) join.settings.push_back({name, value});
  if (options_.compared_elements < parameters_.size()) {
    join.settings.push_back({kOuterElements, std::to_string(options_.compared_elements)});
  }
  for (const TensorInfo& tensor : options_.model) {
    join.model.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.kind, tensor.digest});
  }
  join.resumed = options_.resumed;
  join.init_from = options_.config.init_from;
  join.process = random_bits();
  join.world = options_.world;
  return join;
}

Result<SealedAnchor> Leader::join() {
  if (const std::vector<std::string> names = left_out(options_.model); !names.empty()) {
    log_info("buffers left out of the average, because they are not persistent or not finite: " +
             protocol::names_text(names, {}));
  }
  COLLAB_RETURN_IF_ERROR(saved_.find(*arena_, parameters_.size()));
  Result<std::unique_ptr<Transport>> transport = options_.make_transport();
  if (!transport.ok()) return transport.status();
  Node::Options node_options{.config = options_.config,
                             .site = options_.site,
                             .coordinators = options_.coordinators,
                             .model = options_.model,
                             .fingerprint = fingerprint_of(options_),
                             .generation = options_.generation,
                             .outer_elements = options_.compared_elements,
                             .serves_optimizer = options_.serves_optimizer,
                             .residual = saved_.take_residual(),
                             .record = saved_.take_record(),
                             .kept = saved_.state(),
                             .kept_ended = saved_.state_ended(),
                             .egress = saved_.egress(),
                             .disk = options_.disk};
  if (copy_) COLLAB_RETURN_IF_ERROR(copy_->take(parameters_));
  ParameterVector& worked_on = copy_ ? static_cast<ParameterVector&>(*copy_) : parameters_;
  Result<std::unique_ptr<Node>> node =
      Node::start(std::move(node_options), std::move(*transport), *arena_, worked_on, copy_ ? &*copy_ : nullptr);
  if (!node.ok()) return node.status();
  node_ = std::move(*node);
  Result<wire::Join> join = describe();
  if (!join.ok()) return join.status();
  Result<SealedAnchor> joined = node_->join(std::move(*join));
  if (joined.ok() && copy_) COLLAB_RETURN_IF_ERROR(merge(ParameterChange::kTakeCopy, kWholeVector));
  if (joined.ok()) termination_hook_.emplace([this] { on_termination(); });
  return joined;
}

Result<RoundReport> Leader::round(const protocol::Trigger& trigger) {
  if (copy_) COLLAB_RETURN_IF_ERROR(copy_->take(parameters_));
  Result<RoundReport> report = node_->round(trigger);
  if (!report.ok()) return report;
  if (copy_) COLLAB_RETURN_IF_ERROR(merge(*report));
  COLLAB_RETURN_IF_ERROR(judge(*report));
  return report;
}

Status Leader::start_round(const protocol::Trigger& trigger, TimePoint called) {
  COLLAB_CHECK(copy_ && !flight_, "a round behind the training needs the copy, which another one has");
  COLLAB_RETURN_IF_ERROR(copy_->take(parameters_));
  flight_.emplace(Flight{node_->start_round(trigger, true), called, 0});
  flight_->stalled = seconds_since(called);
  return {};
}

bool Leader::round_is_over() const {
  return flight_ && flight_->report.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

Result<RoundReport> Leader::end_round(TimePoint called) {
  COLLAB_CHECK(flight_, "no round runs behind the training");
  Flight flight = std::move(*flight_);
  flight_.reset();
  Result<RoundReport> report = node_->await(std::move(flight.report));
  if (!report.ok()) return report;
  COLLAB_RETURN_IF_ERROR(merge(*report));
  if (report->skipped.empty()) {
    node_->merged({.overlap = seconds_since(flight.began),
                   .stall = flight.stalled + seconds_since(called),
                   .merge = std::chrono::duration<double>(merging_).count()});
  }
  COLLAB_RETURN_IF_ERROR(judge(*report));
  return report;
}

Status Leader::merge(ParameterChange change, ElementRange range) {
  return merge_copy(parameters_, change, copy_->values(), copy_->settings(), range);
}

Status Leader::merge(const RoundReport& report) {
  const TimePoint began = clock_.now();
  Status status = merge(report.change, report.range);
  merging_ = clock_.now() - began;
  return status;
}

double Leader::seconds_since(TimePoint when) const {
  return std::chrono::duration<double>(clock_.now() - when).count();
}

// Each time, the site gets the anchor and trains on. The cause of an unfit delta usually lies in the script.
Status Leader::judge(const RoundReport& report) {
  constexpr std::uint32_t kMost = 3;
  if (!report.unfit.empty()) {
    ++unfit_rounds_;
    fit_rounds_ = 0;
  } else if (std::ranges::find(report.contributors, options_.site) != report.contributors.end()) {
    // A round checks only its fragment: the model is fit once all fragments were.
    const auto fragments = protocol::fragments_for(options_.config.fragments, parameters_.size());
    if (++fit_rounds_ >= fragments.count) unfit_rounds_ = 0;
  }
  if (report.unfit.empty() || unfit_rounds_ < kMost || options_.config.on_nonfinite == OnNonfinite::kContinue) {
    return {};
  }
  return refused("the update of site " + options_.site + " was left out " + protocol::times_text(unfit_rounds_) +
                 " in a row: " + report.unfit +
                 ". With COLLAB_ON_NONFINITE=continue it trains on, from the anchor each time [round.not-finite]");
}

// The process ends before its training has ended by itself: it waits for a round of the others, or is in the middle of
// something long. If it says that it leaves, the others go on without it at once.
void Leader::on_termination() {
  constexpr std::chrono::milliseconds kExchangeEnds{2500};
  const bool exchanged = node_->exchanging();
  const TimePoint by = clock_.now() + kExchangeEnds;
  while (node_->exchanging() && clock_.now() < by) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!exchanged || node_->exchanging()) {
    log_warning(
        "site " + options_.site + " leaves the swarm without a last round, because " + asked_to_end() +
        ", and there was no round in time: what it has trained since its last round is in no average. A shorter " +
        "COLLAB_SYNC_EVERY loses less [round.none-in-time]");
  }
  node_->depart(asked_to_end(), 0);
}

std::string asked_to_end() { return std::string("it was asked to end (") + termination_signal() + ")"; }

void Leader::leave(const std::string& reason, std::uint32_t next_generation) {
  termination_hook_.reset();
  if (node_) node_->depart(reason, next_generation);
  node_.reset();
}

}  // namespace collab
