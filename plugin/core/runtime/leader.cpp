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
#include "core/runtime/storage/beginning.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// Models that are trained one after the other may look alike: what is kept of one is nothing to the next.
[[nodiscard]] Digest fingerprint_of(const SessionOptions& options) {
  const std::vector<TensorInfo>& model = options.model;
  std::string text = options.generation == 1 ? "" : "generation " + std::to_string(options.generation) + '\n';
  // The words are those of state files and arenas that are about: "averaged" is "trained" here.
  const auto word = [](TensorKind kind) { return kind == TensorKind::kAveraged ? "trained" : name_of(kind); };
  for (const TensorInfo& tensor : model) {
    text += tensor.name + ' ' + tensor.dtype + ' ' + std::string(word(tensor.kind));
    for (const std::uint64_t extent : tensor.shape) text += ' ' + std::to_string(extent);
    text += '\n';
  }
  return hash128(std::as_bytes(std::span(text)));
}

[[nodiscard]] std::vector<std::string> left_out(const std::vector<TensorInfo>& model) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : model) {
    if (tensor.kind == TensorKind::kLeftOut) names.push_back(tensor.name);
  }
  return names;
}

// Why a state file is of another model than ours, where it is for the buffers left out of it; else empty.
[[nodiscard]] std::string other_buffers(const std::vector<TensorInfo>& here, const std::vector<TensorInfo>& there) {
  const std::vector<std::string> ours = left_out(here);
  const std::vector<std::string> theirs = left_out(there);
  if (ours == theirs) return {};
  return ", buffers left out of the average: " + protocol::names_text(theirs, ours) + " there, " +
         protocol::names_text(ours, theirs) + " here";
}

[[nodiscard]] std::optional<wire::Offer> kept_in(const std::optional<StateHeader>& state) {
  return state ? std::optional(wire::Offer{state->run, state->round, state->digest}) : std::nullopt;
}

[[nodiscard]] Digest job_of(const std::string& name) {
  if (!name.empty()) return hash128(std::as_bytes(std::span(name)));
  const arena::ProcessIdentity self = arena::this_process();
  return hash128(std::as_bytes(std::span(&self, 1)));
}

}  // namespace

MergeSettings merge_settings(const SessionOptions& options) {
  return {.merge = options.config.merge, .trained = options.compared_elements};
}

ArenaSpec arena_spec(const SessionOptions& options, std::uint64_t elements) {
  return {.key = {options.config.run, options.site, fingerprint_of(options)},
          .elements = elements,
          .outer_state = has_outer_state(options.config.outer_optimizer),
          .training_copy = options.config.overlap,
          .ranks = options.site_size,
          .shared = options.site_size > 1 && options.one_host,
          .job = job_of(options.job),
          .places = {}};
}

RecordScope record_scope(const SessionOptions& options) {
  return {.run = options.config.run,
          .site = options.site,
          .generation = options.generation,
          .rendezvous = options.record_scope,
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
  if (arena_->in_memory()) lent_ = parameters_.lend(arena_->training_copy());
  log_info(
      "rounds run behind the training (COLLAB_OVERLAP); anchor, outer state and a copy of the parameters live in " +
      arena_->describe());
  return {};
}

// What this site has promised and accepted, if an earlier process has left it.
Result<std::optional<wire::Record>> Leader::open_record() {
  Result<RecordStore> store = RecordStore::open(options_.record_dir, record_scope(options_),
                                                options_.disk != nullptr ? *options_.disk : system_disk());
  if (!store.ok()) return store.status();
  store_ = std::move(*store);
  if (store_->stale()) {
    return invalid_argument(
        "the record " + store_->path() +
        " can be neither written nor removed, and it would be out of date after this start: remove it, or name another "
        "folder with COLLAB_STATE_DIR [record.stuck]");
  }
  if (!store_->read()) return std::optional<wire::Record>();
  Result<wire::Record> found = wire::decode_record(*store_->read());
  if (found.ok()) return std::optional(std::move(*found));
  COLLAB_RETURN_IF_ERROR(store_->set_aside(found.status().message()));
  return std::optional<wire::Record>();
}

// Looked at before the record is: a start that fails here changes nothing.
Result<std::optional<StateHeader>> Leader::find_state_file() const {
  if (options_.config.state_dir.empty()) return std::optional<StateHeader>();
  const std::string path = state_path(options_.config.state_dir, options_.site, options_.generation);
  COLLAB_RETURN_IF_ERROR(check_state_writable(path));
  Result<std::optional<StateHeader>> found = read_state_header(path);
  if (!found.ok() || !found->has_value()) return found;
  const StateHeader& header = **found;
  const ArenaSpec spec = arena_spec(options_, parameters_.size());
  if (header.swarm != options_.config.run && options_.run_of_rendezvous) {
    log_info("going on with the state of run " + header.swarm + " in " + path + ", as run " + options_.config.run);
  } else if (header.swarm != options_.config.run) {
    return invalid_argument("COLLAB_STATE_DIR: " + path + " is of run " + header.swarm + ", this is run " +
                            options_.config.run + "; name another directory, move the file away, or set COLLAB_RUN=" +
                            header.swarm + " to go on with it [state.other-run]");
  }
  if (header.elements != spec.elements || header.fingerprint != spec.key.fingerprint) {
    return invalid_argument("COLLAB_STATE_DIR: " + path + " is of another model (" + std::to_string(header.elements) +
                            " elements, this model has " + std::to_string(spec.elements) +
                            other_buffers(options_.model, header.model) +
                            "); move it away or name another directory [state.other-model]");
  }
  if (header.outer_state != spec.outer_state) {
    return invalid_argument(
        "COLLAB_STATE_DIR: " + path + (header.outer_state ? " holds" : " lacks") +
        " the state of an outer optimizer, and COLLAB_OUTER_OPTIMIZER says otherwise; set it as it was, or "
        "move the file away [state.other-outer]");
  }
  return found;
}

// The newest anchor that is kept here becomes the sealed one.
Status Leader::begin_with_remains() {
  Result<std::optional<StateHeader>> state = find_state_file();
  if (!state.ok()) return state.status();
  state_ = std::move(*state);
  const Result<std::optional<wire::Record>> record = open_record();
  if (!record.ok()) return record.status();
  Remains remains{*record, arena_->sealed()};
  // One of another COLLAB_RUN is of a swarm of which nobody comes to this one.
  if (state_) remains.state = {*kept_in(state_), state_->record, state_->ended || state_->swarm != options_.config.run};
  Beginning beginning = begin_with(remains, fresh_acceptor());
  known_ = std::move(beginning.record);
  if (!state_) return {};
  const std::string path = state_path(options_.config.state_dir, options_.site, options_.generation);
  COLLAB_RETURN_IF_ERROR(load_residual(path, *state_));
  egress_ = state_->egress;
  // Rounds after the last write to the disk, by a process that was killed.
  const std::optional<SealedAnchor>& held = remains.arena;
  if (held && held->run == state_->run && held->round > state_->round) {
    egress_.spent += (held->round.value - state_->round.value) * egress_.round;
  }
  return beginning.from_state ? load_state_file(*state_, *beginning.anchor) : Status();
}

Status Leader::load_state_file(const StateHeader& header, const SealedAnchor& anchor) {
  const std::string path = state_path(options_.config.state_dir, options_.site, options_.generation);
  if (!arena_->outer().empty()) arena_->begin_outer_update();
  COLLAB_RETURN_IF_ERROR(read_state_into(path, header, arena_->next_anchor(), arena_->outer()));
  arena_->seal(anchor);
  log_info("found the anchor of round " + std::to_string(header.round.value) + " in " + path);
  return {};
}

// That of an older round is closer to what is missing than none.
Status Leader::load_residual(const std::string& path, const StateHeader& header) {
  const Codecs& codec = options_.config.codec;
  const bool wanted =
      options_.config.error_feedback && (needs_error_feedback(codec.up) || needs_error_feedback(codec.down));
  if (!wanted || header.residual.empty()) return {};
  Result<StoredResidual> stored = read_residual(path, header);
  if (!stored.ok()) return stored.status();
  residual_ = std::move(*stored);
  return {};
}

// A checkpoint that the script has loaded is not looked at where there is an anchor: nobody is to train on unawares.
Status Leader::warn_if_passed_over(const SealedAnchor& anchor) {
  if (!options_.resumed) return {};
  const Result<bool> same = parameters_.holds(0, arena_->anchor());  // as the types of the parameters round it
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
  // Who trained the generation before is waited for by the coordinator, which knows who left it for this one.
  join.expected_sites = options_.generation == 1 ? options_.config.min_sites : 1;
  join.generation = options_.generation;
  join.address = node_->address();
  join.elements = parameters_.size();
  join.fingerprint = fingerprint_of(options_);
  join.report.record = known_;
  if (const std::optional<SealedAnchor> sealed = arena_->sealed()) {
    join.offer = {sealed->run, sealed->round, sealed->digest};
    COLLAB_RETURN_IF_ERROR(warn_if_passed_over(*sealed));
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
  COLLAB_RETURN_IF_ERROR(begin_with_remains());
  egress_.spent = std::max(egress_.spent, options_.egress_spent);
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
                             .residual = std::exchange(residual_, std::nullopt),
                             .record = std::exchange(store_, std::nullopt),
                             .kept = kept_in(state_),
                             .kept_ended = state_ && state_->ended,
                             .egress = egress_,
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
  if (joined.ok()) last_word_.emplace([this] { say_last_word(); });
  return joined;
}

Result<RoundReport> Leader::round(const protocol::Trigger& trigger) {
  if (copy_) COLLAB_RETURN_IF_ERROR(copy_->take(parameters_));
  Result<RoundReport> report = node_->round(trigger);
  if (!report.ok()) return report;
  if (copy_) COLLAB_RETURN_IF_ERROR(merge(report->change, report->range));
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
  COLLAB_RETURN_IF_ERROR(merge(report->change, report->range));
  if (report->skipped.empty()) node_->merged(seconds_since(flight.began), flight.stalled + seconds_since(called));
  COLLAB_RETURN_IF_ERROR(judge(*report));
  return report;
}

Status Leader::merge(ParameterChange change, ElementRange range) {
  return merge_copy(parameters_, change, copy_->values(), copy_->settings(), range);
}

double Leader::seconds_since(TimePoint when) const {
  return std::chrono::duration<double>(clock_.now() - when).count();
}

// Each time it is given the anchor and trains on: what makes its delta unfit lies in the script, as a rule.
Status Leader::judge(const RoundReport& report) {
  constexpr std::uint32_t kMost = 3;
  if (!report.unfit.empty()) {
    ++unfit_rounds_;
    fit_rounds_ = 0;
  } else if (std::ranges::find(report.contributors, options_.site) != report.contributors.end()) {
    // A round looks at its fragment alone: the model is fit once all of them were.
    const auto fragments = protocol::fragments_for(options_.config.fragments, parameters_.size());
    if (++fit_rounds_ >= fragments.count) unfit_rounds_ = 0;
  }
  if (report.unfit.empty() || unfit_rounds_ < kMost || options_.config.on_nonfinite == OnNonfinite::kContinue) {
    return {};
  }
  return refused("what site " + options_.site + " has learned was left out " + protocol::times_text(unfit_rounds_) +
                 " running: " + report.unfit +
                 ". COLLAB_ON_NONFINITE=continue trains on, with the anchor each time [round.not-finite]");
}

// The process ends, and its training has come to no end by itself: it waits for a round of the others, or is in the
// midst of something long. They go on without it at once when it says so.
void Leader::say_last_word() {
  constexpr std::chrono::milliseconds kExchangeEnds{2500};
  const bool exchanged = node_->exchanging();
  const TimePoint by = clock_.now() + kExchangeEnds;
  while (node_->exchanging() && clock_.now() < by) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!exchanged || node_->exchanging()) {
    log_warning("site " + options_.site + " leaves the swarm without a last round, because " + asked_to_end() +
                ", and no round happened in time: what it trained since its last round is in no average. A shorter " +
                "COLLAB_SYNC_EVERY loses less [round.none-in-time]");
  }
  node_->depart(asked_to_end(), 0);
}

std::string asked_to_end() { return std::string("it was asked to end (") + termination_signal() + ")"; }

void Leader::leave(const std::string& reason, std::uint32_t next_generation) {
  last_word_.reset();
  if (node_) node_->depart(reason, next_generation);
  node_.reset();
}

}  // namespace collab
