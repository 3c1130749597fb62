#include "core/runtime/node.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/log.h"
#include "core/base/open_files.h"
#include "core/runtime/addresses.h"
#include "core/runtime/node_settings.h"

namespace collab {
namespace {

// The machine bounds every wait itself. This limit catches a loop thread that hangs, which is a bug.
constexpr std::chrono::seconds kBeyondLimit{60};

// Lowers the priority of the calling thread: its work fills the time that the training leaves.
void yield_to_the_script() {
  constexpr int kLess = 5;  // below the priority of the process, in 40 steps
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
      egress_(options_.config.egress_budget_gb, options_.egress),
      parameters_(arena, parameters, copy, options_.config.fragments),
      news_(options_.config, options_.site, transport->name(), parameters_.fragments(), std::move(events)),
      storage_(storage_options(options_, parameters_.fragments()), arena,
               [this](std::uint64_t number, const Status& how) {
                 mailbox_.post([this, number, how] { persisted(number, how); });
               }),
      helper_state_(std::exchange(options_.helps, nullptr)),
      transport_(std::move(transport)) {
  allow_more_open_files();  // a link for each other site
  driver_.emplace(site_config(options_), data_settings(options_, parameters_.size(), parameters_.fragments()),
                  DataPlane::Parts{transport_.get(), &clock_, &arena, &parameters,
                                   [this](const protocol::Note& note) { act(note); }, options_.model, copy},
                  std::exchange(options_.residual, std::nullopt), static_cast<SiteDriver::Host&>(*this));
  for (const std::string& warning : value_warnings(options_.config)) log_warning(warning);
  const char* none = !options_.config.join_optimizer ? "COLLAB_JOIN_OPTIMIZER is 0 at that site"
                     : options_.serves_optimizer     ? "it has not made a step yet"
                                                     : "it does not serve optimizer state";
  optimizer_.emplace(*transport_, clock_, options_.config.link_grace, none);
}

Node::~Node() {
  mailbox_.close();
  if (thread_.joinable()) thread_.join();
  storage_.wait();  // a save may read the data plane's residual
  transport_.reset();
}

// A later process would trust the old record, which lacks this one's promises and accepts. So this one must stop.
void Node::persisted(std::uint64_t number, const Status& how) {
  if (broken()) return;
  if (how.ok() || !storage_.record_is_stale()) return driver_->feed(protocol::Persisted{number, how});
  act(protocol::Failed{unavailable(
      "this site's record can be neither written nor removed (" + how.message() +
      "), and a later process would trust the old one: this process cannot go on. Remove the record, or name another "
      "folder with COLLAB_STATE_DIR, and start again [record.stale]")});
}

// `begin` runs on the loop once `answer` waits.
template <typename T, typename Begin>
Result<T> Node::ask(Answer<Result<T>>& answer, const std::string& what, Duration limit, Begin begin) {
  std::promise<Result<T>> promise;
  std::future<Result<T>> future = promise.get_future();
  mailbox_.post([this, &answer, begin = std::move(begin), promise = std::move(promise)]() mutable {
    if (!callers_.wait(answer, std::move(promise))) return;
    callers_.stand_still(clock_.now());
    begin();
  });
  if (future.wait_for(limit + kBeyondLimit) != std::future_status::ready) {
    return internal_error(what + " did not end within its own time-outs [join.call-stuck]");
  }
  return future.get();
}

Result<SealedAnchor> Node::join(wire::Join join) {
  // Beyond all limits of the site machine. It asks for join_timeout, or twice that if it is held, and waits for an
  // anchor for join_timeout and six rounds. All that repeats after a lost coordinator; then comes the transfer.
  const auto limit = 5 * options_.config.join_timeout + 16 * options_.config.round_timeout + options_.config.link_grace;
  return ask(callers_.join, "joining the swarm", limit,
             [this, join = std::move(join)]() mutable { driver_->feed(protocol::Begin{std::move(join)}); });
}

Node::Pending Node::start_round(const protocol::Trigger& trigger, bool merges) {
  std::promise<Result<RoundReport>> promise;
  Pending pending = promise.get_future();
  mailbox_.post([this, trigger, merges, promise = std::move(promise)]() mutable {
    if (!callers_.wait(callers_.round, std::move(promise))) return;
    parameters_.begin_round(merges);
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
    if (broken() || !callers_.round.awaited()) return;
    const std::string waits = driver_->site().waiting_for(clock_.now());
    log_warning(
        "a round is due, but the one before it is still under way: the next one begins once that one is merged (" +
        (round_.exchanging() ? slow + "; now " : "") + waits + ") [round.overlap-late]");
  });
}

void Node::merged(const TrainingTimes& times) {
  mailbox_.post([this, times] {
    round_.merged(times);
    news_.round(round_.report(), egress_);
  });
}

void Node::begin_round(protocol::Trigger trigger) {
  const std::uint64_t steps = round_.begin(trigger, clock_.now());
  driver_->data().start_round_clock();
  warn_if_nothing_changed(steps);
  trigger.sampled_delta = driver_->data().sample_delta();
  trigger.measured.up_kbit = driver_->data().up_kbit();
  trigger.measured.down_kbit = driver_->data().down_kbit();
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
    if (!broken()) driver_->feed(protocol::Begin{std::move(join)});
  });
}

void Node::depart(const std::string& reason, std::uint32_t next_generation) {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  mailbox_.post([this, reason, next_generation, promise = std::move(promise)]() mutable {
    if (!callers_.wait(callers_.departure, std::move(promise))) return;
    driver_->feed(protocol::Depart{reason, next_generation});
  });
  if (future.wait_for(kBeyondLimit) != std::future_status::ready)
    log_warning("leaving the swarm took too long [join.leave-slow]");
}

void Node::loop() {
  if (parameters_.copy() != nullptr) yield_to_the_script();
  while (!mailbox_.closed()) {
    const TimePoint deadline = broken() ? kNever
                                        : std::min({driver_->next_deadline(), callers_.next_deadline(),
                                                    optimizer_->next_deadline(), helper_state_.next_deadline()});
    std::optional<LoopEvent> event = mailbox_.take(deadline);
    if (event) handle(std::move(*event));
    if (!broken() && clock_.now() >= driver_->next_deadline()) driver_->feed(protocol::Tick{});
    if (!broken() && clock_.now() >= optimizer_->next_deadline()) optimizer_->tick();
    // A helper counts no steps, and offers itself until the others come.
    if (!broken() && helper_state_.is_due(clock_.now())) begin_round({});
    report_wait();
    count_what_is_sent();
    if (!callers_.round.awaited() && !helper_state_.on())
      check_egress_budget();  // joiners are given models between rounds
  }
  callers_.fail(cancelled("the node was stopped [join.stopped]"));
}

void Node::report_wait() {
  const TimePoint now = clock_.now();
  const std::optional<Duration> waited = callers_.stood_still(now);
  if (!waited) return;
  log_info(driver_->site().waiting_for(now) + "; training at this site has been paused for " +
           protocol::in_seconds(*waited) + " so far");
}

void Node::handle(LoopEvent event) {
  if (auto* call = std::get_if<LoopCall>(&event)) return (*call)();
  if (broken()) return handle_after_failure(event);
  if (auto* arrived = std::get_if<MessageArrived>(&event)) {
    return driver_->on_message(arrived->link, std::move(arrived->message));
  }
  if (auto* sent = std::get_if<MessageSent>(&event)) {
    if (sent->token >= OptimizerTransfer::kFirstToken) return optimizer_->sent(sent->token);
    return driver_->on_sent(sent->link, sent->token);
  }
  if (auto* connected = std::get_if<LinkConnected>(&event)) return driver_->on_connected(connected->link);
  if (const auto* proved = std::get_if<LinkAuthenticated>(&event))
    return driver_->on_authenticated(proved->link, proved->names);
  if (const auto* accepted = std::get_if<LinkAccepted>(&event))
    return driver_->on_accepted(accepted->link, accepted->peer);
  if (auto* closed = std::get_if<LinkClosed>(&event)) {
    optimizer_->link_closed(closed->link);
    return driver_->on_closed(closed->link, std::move(closed->why));
  }
}

// The process may live on after its session has failed, and its port stays open.
void Node::handle_after_failure(const LoopEvent& event) {
  if (const auto* accepted = std::get_if<LinkAccepted>(&event)) return transport_->close(accepted->link);
  if (const auto* connected = std::get_if<LinkConnected>(&event)) return transport_->close(connected->link);
  if (const auto* closed = std::get_if<LinkClosed>(&event)) optimizer_->link_closed(closed->link);
  const auto* sent = std::get_if<MessageSent>(&event);
  if (sent != nullptr && sent->token >= OptimizerTransfer::kFirstToken) optimizer_->sent(sent->token);
}

// ---- the optimizer state -------------------------------------------------------------------------------

void Node::serve_optimizer(std::string why_none) {
  if (!options_.serves_optimizer || !options_.config.join_optimizer) return;
  mailbox_.post([this, why_none = std::move(why_none)]() mutable { optimizer_->serve(std::move(why_none)); });
}

void Node::give_optimizer(Result<OptimizerCopy> copy) {
  optimizer_->being_given();  // one copy is made only
  mailbox_.post([this, copy = std::move(copy)]() mutable { optimizer_->given(std::move(copy)); });
}

Result<OptimizerOffer> Node::ask_optimizer() {
  return ask(callers_.offer, "the request for the optimizer's state", options_.config.round_timeout, [this] {
    optimizer_->begin_search();
    driver_->feed(protocol::FindOptimizerSource{});
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
    if (broken()) return;
    act(optimizer_->ended(cold));
    driver_->feed(protocol::EndOptimizer{});
  });
}

}  // namespace collab
