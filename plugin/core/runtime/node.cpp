#include "core/runtime/node.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/base/open_files.h"
#include "core/base/text.h"
#include "core/runtime/addresses.h"
#include "core/runtime/schedule.h"
#include "core/runtime/tensors/kept_tensors.h"
#include "core/runtime/tensors/radial_tensors.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// The machine bounds every wait itself; this is for a loop thread that cannot, a bug.
constexpr std::chrono::seconds kBeyondLimit{60};

// Chunks are whole groups of top-k, so that their size does not change what is sent.
constexpr std::uint64_t kGrain = 4096;

// By which COLLAB_OUTER_LR=auto goes. All sites must have the same, whenever they came: not what the leader has chosen.
[[nodiscard]] std::uint64_t period_of(const Config& config, std::uint32_t fragments) {
  const std::uint64_t steps = period_of_elements(config.sync_every, fragments);
  return steps == 0 ? kReferencePeriod : steps;
}

// With `rda` norms follow a mean: at most 16 bytes for each of 65536 tensors, and two parts with 4096 sites each.
constexpr std::uint32_t kMostRadialKib = 32 * 1024;

[[nodiscard]] DataPlane::Settings data_settings(const Config& config, const protocol::Fragments& fragments,
                                                std::uint64_t outer_elements, std::vector<ElementRange> kept,
                                                std::vector<ElementRange> radial) {
  const bool follows = config.outer_optimizer == OuterId::kRda;
  const std::uint64_t kib = follows ? std::min(config.chunk_kib, kMostRadialKib) : config.chunk_kib;
  const std::uint64_t chunk = kib * 1024 / sizeof(float);
  return {.codec = config.codec,
          .error_feedback = config.error_feedback,
          .feedback_decay = static_cast<float>(config.feedback_decay),
          .kept = std::move(kept),
          .radial = std::move(radial),
          .outer = {.id = config.outer_optimizer,
                    .lr = static_cast<float>(config.outer_lr),
                    .momentum = static_cast<float>(config.outer_momentum),
                    .clip = static_cast<float>(config.outer_clip),
                    .period = period_of(config, fragments.count)},
          .keeps_mean = config.overlap && config.merge.rule == MergeRule::kRebase,
          .outer_elements = outer_elements,
          .chunk_elements = has_top_k(config.codec) ? (chunk + kGrain - 1) / kGrain * kGrain : chunk};
}

// The calling thread's work is to fill the time that the training leaves.
void yield_to_the_script() {
  constexpr int kLess = 5;  // than the process has, of 40 steps
  const auto self = static_cast<id_t>(::gettid());
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, self);
  if (errno != 0 || ::setpriority(PRIO_PROCESS, self, now + kLess) != 0) {
    log_debug("the node's thread keeps its priority: the system allows no other");
  }
}

}  // namespace

Result<std::unique_ptr<Node>> Node::start(Options options, std::unique_ptr<Transport> transport, ArenaWriter& arena,
                                          ParameterVector& parameters, TrainingCopy* copy) {
  Disk& disk = options.disk != nullptr ? *options.disk : system_disk();
  Result<EventsFile> events = EventsFile::open(options.config.events_file, disk);
  if (!events.ok()) return events.status();
  std::unique_ptr<Node> node(
      new Node(std::move(options), std::move(transport), std::move(*events), arena, parameters, copy));
  COLLAB_RETURN_IF_ERROR(node->transport_->start(&node->mailbox_));
  const Result<std::string> bound = node->transport_->listen(node->options_.config.listen);
  if (!bound.ok()) return bound.status();
  node->address_ = dialable(*bound, node->options_.config.advertise);
  if (node->options_.config.advertise == kNotDialable) node->address_.clear();
  node->thread_ = std::thread([raw = node.get()] { raw->loop(); });
  return node;
}

Node::Node(Options options, std::unique_ptr<Transport> transport, EventsFile events, ArenaWriter& arena,
           ParameterVector& parameters, TrainingCopy* copy)
    : options_(std::move(options)),
      fragments_(protocol::fragments_for(options_.config.fragments, parameters.size())),
      arena_(arena),
      parameters_(parameters),
      copy_(copy),
      egress_(options_.config.egress_budget_gb, options_.egress),
      events_(std::move(events)),
      saver_(options_.config.state_dir.empty()
                 ? std::string()
                 : state_path(options_.config.state_dir, options_.site, options_.generation),
             options_.disk != nullptr ? *options_.disk : system_disk()),
      transport_(std::move(transport)) {
  allow_more_open_files();  // a link for each other site
  const protocol::SiteConfig site{
      .coordinators = options_.coordinators,
      .join_timeout = options_.config.join_timeout,
      .round_timeout = options_.config.round_timeout,
      .link_grace = options_.config.link_grace,
      .weight = options_.config.weight,
      .terms = protocol::term_limit(std::chrono::system_clock::now().time_since_epoch(), SteadyClock().now())};
  KeptTensors kept =
      kept_tensors(options_.config.keep_fp16, options_.model, parameters.size(), options_.outer_elements);
  for (const std::string& word : kept.unmatched) {
    log_warning("COLLAB_KEEP_FP16: no tensor of the model has " + json_quote(word) +
                " in its name, so it keeps nothing [knob.keeps-nothing]");
  }
  if (fragments_.count != options_.config.fragments) {
    log_warning("COLLAB_FRAGMENTS=" + std::to_string(options_.config.fragments) + ": the model has " +
                std::to_string(parameters.size()) + " elements, and a fragment at least " +
                std::to_string(kBlockElements) + "; rounds average all of it [knob.too-many-fragments]");
  }
  std::vector<ElementRange> radial = radial_tensors(options_.model, parameters.size(), options_.outer_elements);
  driver_.emplace(
      site,
      data_settings(options_.config, fragments_, options_.outer_elements, std::move(kept.ranges), std::move(radial)),
      DataPlane::Parts{transport_.get(), &clock_, &arena_, &parameters_,
                       [this](const protocol::Note& note) { act(note); }, options_.model, copy_},
      std::exchange(options_.residual, std::nullopt), static_cast<SiteDriver::Host&>(*this));
  if (options_.record) {
    records_.emplace(*std::exchange(options_.record, std::nullopt), [this](std::uint64_t number, const Status& how) {
      mailbox_.post([this, number, how] { persisted(number, how); });
    });
  }
  if (options_.kept) saver_.found(*options_.kept);
  for (const std::string& warning : value_warnings(options_.config)) log_warning(warning);
  const char* none = !options_.config.join_optimizer ? "COLLAB_JOIN_OPTIMIZER is 0 there"
                     : options_.serves_optimizer     ? "it has not made a step yet"
                                                     : "it does not serve optimizer state";
  optimizer_.emplace(*transport_, clock_, options_.config.link_grace, none);
}

Node::~Node() {
  mailbox_.close();
  if (thread_.joinable()) thread_.join();
  saver_.wait();  // it may read the data plane's residual
  transport_.reset();
}

// A later process would take what lies there for all this one has promised and accepted: nothing more may be said.
void Node::persisted(std::uint64_t number, const Status& how) {
  if (broken_) return;
  if (how.ok() || !records_->stale()) return driver_->feed(protocol::Persisted{number, how});
  act(protocol::Failed{unavailable(
      "this site's record can be neither written nor removed (" + how.message() +
      "), and a later process would trust the old one: this process cannot go on. Remove the record, or name another "
      "folder with COLLAB_STATE_DIR, and start again [record.stale]")});
}

// `begin` runs on the loop, with where the answer will be put.
template <typename T, typename Begin>
Result<T> Node::ask(Answer<Result<T>>& answer, const std::string& what, Duration limit, Begin begin) {
  std::promise<Result<T>> promise;
  std::future<Result<T>> future = promise.get_future();
  mailbox_.post([this, &answer, begin = std::move(begin), promise = std::move(promise)]() mutable {
    if (broken_) return promise.set_value(*broken_);
    answer.wait(std::move(promise));
    callers_.stand_still(clock_.now());
    begin();
  });
  if (future.wait_for(limit + kBeyondLimit) != std::future_status::ready) {
    return internal_error(what + " did not end within its own time-outs [join.call-stuck]");
  }
  return future.get();
}

Result<SealedAnchor> Node::join(wire::Join join) {
  // Gathering, an exchange that is under way, then the transfer of the anchor have limits of their own.
  const auto limit = options_.config.join_timeout + 8 * options_.config.round_timeout + options_.config.link_grace;
  return ask(callers_.join, "joining the swarm", limit,
             [this, join = std::move(join)]() mutable { driver_->feed(protocol::Begin{std::move(join)}); });
}

Node::Pending Node::start_round(const protocol::Trigger& trigger, bool merges) {
  std::promise<Result<RoundReport>> promise;
  Pending pending = promise.get_future();
  mailbox_.post([this, trigger, merges, promise = std::move(promise)]() mutable {
    if (broken_) return promise.set_value(*broken_);
    callers_.round.wait(std::move(promise));
    if (copy_ != nullptr) copy_->begin_round(merges);
    begin_round(trigger);
  });
  return pending;
}

Result<RoundReport> Node::await(Pending pending) {
  mailbox_.post([this] {
    if (callers_.round.awaited()) callers_.stand_still(clock_.now());
  });
  // The machine gives up after six limits and the grace (kRoundLimits).
  const auto limit = 7 * options_.config.round_timeout + options_.config.link_grace;
  if (pending.wait_for(limit + kBeyondLimit) != std::future_status::ready) {
    return internal_error("a round did not end within its own time-out [round.stuck]");
  }
  return pending.get();
}

void Node::warn_of_late_round(std::string slow) {
  mailbox_.post([this, slow = std::move(slow)] {
    if (broken_ || !callers_.round.awaited()) return;
    const std::string waits = driver_->site().waiting_for(clock_.now());
    log_warning(
        "a round is due, and the one before it is still on its way: the due one begins when that one is merged (" +
        (exchanging_ ? slow + "; now " : "") + waits + ") [round.overlap-late]");
  });
}

void Node::merged(double overlap_seconds, double stall_seconds) {
  mailbox_.post([this, overlap_seconds, stall_seconds] {
    round_.merged(overlap_seconds, stall_seconds);
    tell_of_round();
  });
}

void Node::begin_round(protocol::Trigger trigger) {
  const std::uint64_t steps = round_.begin(trigger, clock_.now());
  driver_->data().start_round_clock();
  warn_if_nothing_changed(steps);
  trigger.sampled_delta = driver_->data().sample_delta();
  trigger.up_kbit = driver_->data().up_kbit();
  trigger.down_kbit = driver_->data().down_kbit();
  driver_->feed(std::move(trigger));
}

// Rounds of a site whose training does not reach the vector look as healthy as others.
void Node::warn_if_nothing_changed(std::uint64_t steps) {
  if (steps == 0 || !driver_->data().is_unchanged()) return;
  act(protocol::make_note(
      protocol::Note::Level::kWarning, "unchanged",
      "this site has made " + std::to_string(steps) +
          " steps since the last round, and its parameters are bit for bit what they were then: it contributes "
          "nothing. Likely: the optimizer holds other parameters than the model that is wrapped in "
          "DistributedDataParallel (it was made before the model was copied, converted or loaded); its learning rate "
          "is 0; or every step was skipped (GradScaler) [round.unchanged]",
      {{"steps", std::to_string(steps)}}));
}

void Node::help(wire::Join join) {
  mailbox_.post([this, join = std::move(join)]() mutable {
    if (!broken_) driver_->feed(protocol::Begin{std::move(join)});
  });
}

void Node::depart(const std::string& reason, std::uint32_t next_generation) {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  mailbox_.post([this, reason, next_generation, promise = std::move(promise)]() mutable {
    if (broken_) return promise.set_value();
    callers_.departure.wait(std::move(promise));
    driver_->feed(protocol::Depart{reason, next_generation});
  });
  if (future.wait_for(kBeyondLimit) != std::future_status::ready)
    log_warning("leaving the swarm took too long [join.leave-slow]");
}

void Node::loop() {
  if (copy_ != nullptr) yield_to_the_script();
  while (!mailbox_.closed()) {
    const TimePoint deadline = broken_ ? kNever
                                       : std::min({driver_->next_deadline(), callers_.next_deadline(),
                                                   optimizer_->next_deadline(), helping_.next_round});
    std::optional<LoopEvent> event = mailbox_.take(deadline);
    if (event) handle(std::move(*event));
    if (!broken_ && clock_.now() >= driver_->next_deadline()) driver_->feed(protocol::Tick{});
    if (!broken_ && clock_.now() >= optimizer_->next_deadline()) optimizer_->tick();
    if (!broken_ && clock_.now() >= helping_.next_round) {
      helping_.next_round = kNever;
      begin_round({});  // it counts no steps, and offers itself until the others come
    }
    tell_what_is_waited_for();
    count_what_is_sent();
    if (!callers_.round.awaited() && !options_.helps) watch_the_budget();  // joiners are given models between rounds
  }
  callers_.fail(cancelled("the node was stopped [join.stopped]"));
}

void Node::tell_what_is_waited_for() {
  const TimePoint now = clock_.now();
  const std::optional<Duration> waited = callers_.stood_still(now);
  if (!waited) return;
  log_info(driver_->site().waiting_for(now) + "; training stands still here for " + protocol::in_seconds(*waited) +
           " now");
}

void Node::handle(LoopEvent event) {
  if (auto* call = std::get_if<LoopCall>(&event)) return (*call)();
  if (broken_) return handle_in_vain(event);
  if (auto* arrived = std::get_if<MessageArrived>(&event)) {
    return driver_->on_message(arrived->link, std::move(arrived->message));
  }
  if (auto* sent = std::get_if<MessageSent>(&event)) {
    if (sent->token >= OptimizerTransfer::kFirstToken) return optimizer_->sent(sent->token);
    return driver_->on_sent(sent->link, sent->token);
  }
  if (auto* connected = std::get_if<LinkConnected>(&event)) return driver_->on_connected(connected->link);
  if (const auto* proved = std::get_if<LinkProved>(&event)) return driver_->on_proved(proved->link, proved->names);
  if (const auto* accepted = std::get_if<LinkAccepted>(&event))
    return driver_->on_accepted(accepted->link, accepted->peer);
  if (auto* closed = std::get_if<LinkClosed>(&event)) {
    optimizer_->link_closed(closed->link);
    return driver_->on_closed(closed->link, std::move(closed->why));
  }
}

// The process may live on after its session has failed, and so does its port.
void Node::handle_in_vain(const LoopEvent& event) {
  if (const auto* accepted = std::get_if<LinkAccepted>(&event)) return transport_->close(accepted->link);
  if (const auto* connected = std::get_if<LinkConnected>(&event)) return transport_->close(connected->link);
  if (const auto* closed = std::get_if<LinkClosed>(&event)) optimizer_->link_closed(closed->link);
  const auto* sent = std::get_if<MessageSent>(&event);
  if (sent != nullptr && sent->token >= OptimizerTransfer::kFirstToken) optimizer_->sent(sent->token);
}

// ---- the optimizer's state -----------------------------------------------------------------------------

void Node::serve_optimizer(std::string why_none) {
  if (!options_.serves_optimizer || !options_.config.join_optimizer) return;
  mailbox_.post([this, why_none = std::move(why_none)]() mutable { optimizer_->serve(std::move(why_none)); });
}

void Node::give_optimizer(Result<OptimizerCopy> copy) {
  optimizer_->being_given();  // it is not made twice
  mailbox_.post([this, copy = std::move(copy)]() mutable { optimizer_->given(std::move(copy)); });
}

Result<OptimizerOffer> Node::ask_optimizer() {
  return ask(callers_.offer, "the request for the optimizer's state", options_.config.round_timeout, [this] {
    optimizer_->seeks();
    driver_->feed(protocol::SeekOptimizer{});
  });
}

Result<BufferPtr> Node::take_optimizer() {
  return ask(callers_.optimizer, "the transfer of the optimizer's state", options_.config.round_timeout, [this] {
    optimizer_->begin_taking();
    driver_->feed(protocol::TakeOptimizer{});
  });
}

void Node::end_optimizer(std::string cold) {
  mailbox_.post([this, cold = std::move(cold)]() {
    if (broken_) return;
    act(optimizer_->ended(cold));
    driver_->feed(protocol::EndOptimizer{});
  });
}

}  // namespace collab
