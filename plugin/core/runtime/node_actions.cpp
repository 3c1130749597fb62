// What the node does when the Site machine asks.
#include <chrono>
#include <cstdio>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/runtime/node.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// After a round that did not come about a helper offers itself again.
constexpr Duration kBetweenOffers = std::chrono::seconds(1);

[[nodiscard]] double seconds_between(TimePoint from, TimePoint to) {
  return to <= from ? 0.0 : std::chrono::duration<double>(to - from).count();
}

[[nodiscard]] double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

void Node::stepped(const protocol::SiteEvent& event, const std::vector<protocol::SiteAction>& actions) {
  if (const auto* unfit = std::get_if<protocol::ContributionUnfit>(&event)) unfit_because_ = unfit->reason;
  for (const protocol::SiteAction& action : actions) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
}

std::optional<protocol::SiteEvent> Node::optimizer_part(LinkId link, const wire::Chunk& chunk, BufferPtr payload) {
  return optimizer_->arrived(link, chunk, std::move(payload));
}

void Node::act(const protocol::StartExchange& action) {
  if (started_at_ == kNever) started_at_ = clock_.now();
  exchanging_ = true;
  change_slot();
  driver_->act(action);
}

void Node::act(const protocol::CancelExchange& action) {
  exchanging_ = false;
  driver_->act(action);
}

void Node::change_state() {
  change_slot();
  saver_.let_go(arena_.outer());
  saver_.let_go(driver_->data().residual().values());
}

void Node::act(const protocol::ApplyCommit& action) {
  change_state();
  const std::optional<DataPlane::Applied> applied = driver_->act(action);
  if (!applied) return;
  const bool again = report_.change != ParameterChange::kUnchanged;  // after a commit that was owed
  moved_ = moved_ || again || action.base == protocol::Base::kSnapshot;
  if (action.base == protocol::Base::kUnfit) report_.unfit = unfit_because_;
  if (applied->change != ParameterChange::kUnchanged) change_by(applied->change, applied->range);
  report_.state = applied->state;
  report_.outer_lr = applied->outer_lr;
  report_.clipped_norm = applied->clipped_norm;
}

void Node::act(const protocol::Persist& action) {
  if (records_) return records_->write(wire::encode_record(action.record), action.number);
  driver_->feed(protocol::Persisted{action.number, {}});
}

void Node::act(const protocol::KeepAnchor& action) {
  change_state();
  saver_.takes({action.run, action.round, action.digest});
  driver_->act(action);
}

void Node::act(const protocol::ReceiveAnchor& action) {
  change_state();
  saver_.takes({action.run, action.round, action.digest});
  driver_->act(action);
}

void Node::act(const protocol::JoinDone& action) {
  period_ = action.period;
  if (!joining_ && (!options_.helps || helping_)) return;  // a join after the coordinator was lost
  if (options_.kept_ended) saver_.mark(false);
  const std::optional<SealedAnchor> anchor = arena_.sealed();
  COLLAB_CHECK(anchor.has_value(), "a site joined without an anchor");
  if (const Status status = change_parameters(parameters_, ParameterChange::kToAnchor, arena_.anchor(), {});
      !status.ok()) {
    return act(protocol::Failed{status});
  }
  if (joining_) return std::exchange(joining_, std::nullopt)->set_value(*anchor);
  helping_ = true;
  helps_next_ = clock_.now();
  options_.helps(Status());
}

void Node::act(const protocol::Rebase& action) {
  change_state();
  driver_->act(action);
  if (broken_) return;
  moved_ = true;
  if (action.base == protocol::Base::kUnfit) report_.unfit = unfit_because_;
  change_by(action.base == protocol::Base::kUnfit ? ParameterChange::kToAnchor : ParameterChange::kTakeOther);
}

void Node::change_by(ParameterChange change, ElementRange range) {
  report_.change = change;
  report_.range = range;
}

Status Node::settle_parameters() {
  if (copy_ == nullptr) return publish_moved();
  const auto [change, range] = copy_->end_round(arena_.anchor());
  change_by(change, range);
  return {};
}

// The other ranks hold the parameters as they were at the trigger. What became of them by one outer step they can
// repeat; more than that they are given.
Status Node::publish_moved() {
  const ElementRange all{0, parameters_.size()};
  const bool to_anchor = report_.change == ParameterChange::kToAnchor && common(report_.range, all) == all;
  if (!moved_ || to_anchor) return {};
  change_by(ParameterChange::kTakeOther);
  change_slot();
  return driver_->data().publish_parameters();
}

void Node::act(const protocol::RoundSkipped& action) {
  driver_->data().forget_contributions();
  if (const Status status = settle_parameters(); !status.ok()) return act(protocol::Failed{status});
  if (const std::optional<SealedAnchor> sealed = arena_.sealed()) {
    report_.round = sealed->round;
    report_.state = sealed->digest;
  }
  exchanging_ = false;
  if (options_.helps) helps_next_ = clock_.now() + kBetweenOffers;
  report_.skipped = action.reason;
  report_.period = period_;
  report_.stall_seconds = seconds_between(triggered_at_, clock_.now());
  count_what_is_sent();  // attempts that come to nothing take bytes too
  watch_the_budget();
  answer_round();
}

// Whoever waits for the round is told how it ended.
void Node::answer_round() {
  if (rounding_) return std::exchange(rounding_, std::nullopt)->set_value(report_);
  if (options_.helps && budget_over_) options_.helps(cancelled(kBudgetOver));
}

void Node::count_what_is_sent() {
  bytes_sent_ = driver_->data().traffic().bytes_sent;
  bytes_received_ = driver_->data().traffic().bytes_received;
  egress_.sent(bytes_sent_ + optimizer_->bytes_sent());
  egress_spent_ = egress_.so_far().spent;
}

void Node::act(const protocol::RoundDone& action) {
  const bool merges = copy_ != nullptr && copy_->merges();
  // Merged parameters differ between sites. Who waits for a round, and has nothing that it does not count, takes the
  // anchor whatever its weight was.
  if (copy_ != nullptr && !merges && action.samples == samples_then_) {
    copy_->before_write();
    const ElementRange fragment = fragments_.range_of(copy_->size(), action.round);
    const Status taken = change_parameters(*copy_, ParameterChange::kToAnchor, arena_.anchor(), {}, fragment);
    if (!taken.ok()) return act(protocol::Failed{taken});
  }
  if (const Status status = settle_parameters(); !status.ok()) return act(protocol::Failed{status});
  const TimePoint now = clock_.now();
  const RoundTraffic& traffic = driver_->data().round_traffic();
  report_.round = action.round;
  report_.attempts = action.attempts;
  report_.members = action.members;
  report_.contributors = action.contributors;
  report_.samples = action.samples;
  report_.seconds = started_at_ == kNever ? 0 : seconds_between(started_at_, now);
  report_.stall_seconds = seconds_between(triggered_at_, now);
  report_.exchange_seconds =
      traffic.first_payload == kNever ? 0 : seconds_between(traffic.first_payload, traffic.last_payload);
  report_.bytes_sent = traffic.bytes_sent;
  report_.bytes_received = traffic.bytes_received;
  exchanging_ = false;
  if (options_.helps) helps_next_ = now;
  count_what_is_sent();
  egress_.round_ended(report_.bytes_sent);
  report_.period = period_ = action.period;
  if (!merges) tell(report_);  // else when it is merged
  watch_the_budget();
  const std::optional<SealedAnchor> sealed = arena_.sealed();
  const std::uint64_t every = std::uint64_t{options_.config.save_every} * fragments_.count;
  const bool due = action.round.value % every == 0 || saver_.overdue();
  if (saver_.enabled() && sealed && due) save_state(*sealed);
  answer_round();
}

void Node::save_state(const SealedAnchor& anchor) {
  const Residual& residual = driver_->data().residual();
  std::vector<ResidualRecord> record;
  if (residual.on()) record.push_back({{}, residual.units()});
  saver_.save({.swarm = options_.config.run,
               .site = options_.site,
               .run = anchor.run,
               .round = anchor.round,
               .digest = anchor.digest,
               .fingerprint = options_.fingerprint,
               .elements = arena_.anchor().size(),
               .outer_state = !arena_.outer().empty(),
               .record = driver_->site().record(),
               .residual = std::move(record),
               .model = options_.model,
               .egress = egress_.so_far()},
              arena_.anchor(), arena_.outer(), residual.values());
}

void Node::act(const protocol::OptimizerOffered& action) {
  optimizer_->offered(action);
  if (seeking_) {
    std::exchange(seeking_, std::nullopt)
        ->set_value(OptimizerOffer{action.from, action.state.description, action.state.bytes});
  }
}

void Node::act(const protocol::NoOptimizer& action) {
  if (seeking_) std::exchange(seeking_, std::nullopt)->set_value(action.why);
}

void Node::act(const protocol::TakeOptimizerPart& action) { optimizer_->take_part(action); }

void Node::act(const protocol::OptimizerComplete&) {
  Result<BufferPtr> whole = optimizer_->complete();
  if (!whole.ok()) {
    driver_->feed(protocol::OptimizerUnfit{whole.status().message()});
  } else if (taking_) {
    std::exchange(taking_, std::nullopt)->set_value(std::move(whole));
  }
}

void Node::act(const protocol::OptimizerLost& action) {
  log_warning("the optimizer's state is lost on its way: " + action.reason + " [optimizer.lost]");
  if (taking_) std::exchange(taking_, std::nullopt)->set_value(unavailable(action.reason));
}

// Optimizer state is as large as two models: a site whose cap is half spent leaves it to another, or to a cold start.
void Node::act(const protocol::ServeOptimizer& action) {
  optimizer_->asked(action, egress_.half_spent() ? "half of what it may send is spent (COLLAB_EGRESS_BUDGET_GB)" : "");
}

void Node::act(const protocol::Left&) {
  if (records_) records_->remove();  // nobody counts on it any more
  if (saver_.enabled()) saver_.mark(true);
  if (departing_) std::exchange(departing_, std::nullopt)->set_value();
}

void Node::act(const protocol::Failed& action) {
  if (broken_) return;
  broken_ = action.why;
  driver_->stop();
  driver_->data().cancel();
  if (options_.helps) options_.helps(action.why);
  fail_everything(action.why);
}

void Node::act(const protocol::Note& action) { notes_.record(clock_.now(), action); }

void Node::tell(const RoundReport& report) {
  JsonFields fields{{"round", std::to_string(report.round.value)},
                    {"attempts", std::to_string(report.attempts)},
                    {"members", protocol::json_list(report.members)},
                    {"contributors", protocol::json_list(report.contributors)},
                    {"samples", std::to_string(report.samples)},
                    {"bytes_sent", std::to_string(report.bytes_sent)},
                    {"bytes_received", std::to_string(report.bytes_received)},
                    {"seconds", json_number(report.seconds)},
                    {"exchange_seconds", json_number(report.exchange_seconds)},
                    {"stall_seconds", json_number(report.stall_seconds)},
                    {"digest", json_quote(to_hex(report.state))},
                    {"codec", json_quote(name_of(options_.config.codec))},
                    {"transport", json_quote(transport_->name())}};
  if (fragments_.count > 1) fields.emplace_back("fragment", std::to_string(fragments_.in_turn(report.round)));
  if (options_.config.overlap) fields.emplace_back("overlap_seconds", json_number(report.overlap_seconds));
  if (options_.config.outer_optimizer == OuterId::kNesterov && report.outer_lr > 0) {
    fields.emplace_back("outer_lr", json_number(report.outer_lr));
  }
  if (report.clipped_norm > 0) fields.emplace_back("clipped_norm", json_number(report.clipped_norm));
  if (report.period > 0) fields.emplace_back("period", std::to_string(report.period));
  if (egress_.on()) {
    fields.emplace_back("egress_gb", json_number(gigabytes(egress_.so_far().spent)));
    fields.emplace_back("egress_budget_gb", json_number(gigabytes(egress_.total())));
    if (egress_.known()) fields.emplace_back("rounds_left", std::to_string(egress_.rounds_left()));
  }
  events_.write(options_.site, "round", fields);
  const std::string who = protocol::join_words(report.contributors);
  char line[256];
  std::snprintf(line, sizeof line, "%.1f MB sent, %.1f MB received", static_cast<double>(report.bytes_sent) / 1e6,
                static_cast<double>(report.bytes_received) / 1e6);
  log_info("round " + std::to_string(report.round.value) + ": " +
           (who.empty() ? "nobody had samples" : who + " averaged") + "; " + times_of(report) + ", " + line +
           (report.clipped_norm > 0
                ? "; the mean delta's norm, " + json_number(static_cast<float>(report.clipped_norm)) +
                      ", was cut to COLLAB_OUTER_CLIP"
                : std::string()));
  if (egress_.on()) log_info(budget_text());
}

std::string Node::times_of(const RoundReport& report) const {
  char line[128];
  if (report.overlap_seconds > 0) {
    std::snprintf(line, sizeof line, "%.2f s behind the training, which stood still for %.2f s", report.overlap_seconds,
                  report.stall_seconds);
  } else {
    std::snprintf(line, sizeof line, "%.2f s, waited %.2f s", report.seconds,
                  std::max(0.0, report.stall_seconds - report.seconds));
  }
  return line;
}

void Node::watch_the_budget() {
  budget_over_ = egress_.over();
  const unsigned mark = egress_.news();
  if (mark == 0) return;
  const std::string spent = std::to_string(mark) + " % of what this site may send is spent";
  const std::string what = budget_over_ ? "what is left is too little for another round" : spent;
  JsonFields fields{{"egress_gb", json_number(gigabytes(egress_.so_far().spent))},
                    {"egress_budget_gb", json_number(gigabytes(egress_.total()))}};
  if (egress_.known()) fields.emplace_back("rounds_left", std::to_string(egress_.rounds_left()));
  act(protocol::make_note(protocol::Note::Level::kWarning, "budget", what + ": " + budget_text() + " [round.budget]",
                          fields));
}

std::string Node::budget_text() const {
  char line[160];
  std::snprintf(line, sizeof line, "%.6g of %.6g GB are sent (COLLAB_EGRESS_BUDGET_GB)",
                gigabytes(egress_.so_far().spent), gigabytes(egress_.total()));
  return line +
         (egress_.known() && !budget_over_ ? "; rounds left: " + std::to_string(egress_.rounds_left()) : std::string());
}

}  // namespace collab
