// What the node does when the Site machine asks.
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/runtime/node.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// After a round that did not come about a helper offers itself again.
constexpr Duration kBetweenOffers = std::chrono::seconds(1);

}  // namespace

void Node::stepped(const protocol::SiteEvent& event, const std::vector<protocol::SiteAction>& actions) {
  if (const auto* unfit = std::get_if<protocol::ContributionUnfit>(&event)) round_.contribution_unfit(unfit->reason);
  for (const protocol::SiteAction& action : actions) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
}

std::optional<protocol::SiteEvent> Node::optimizer_part(LinkId link, const wire::Chunk& chunk, BufferPtr payload) {
  return optimizer_->arrived(link, chunk, std::move(payload));
}

void Node::act(const protocol::StartExchange& action) {
  round_.exchange_begins(clock_.now());
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
  round_.applied(action.base, *applied);
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
  if (!callers_.join.awaited() && (!options_.helps || helping_.joined))
    return;  // a join after the coordinator was lost
  if (options_.kept_ended) saver_.mark(false);
  const std::optional<SealedAnchor> anchor = arena_.sealed();
  COLLAB_CHECK(anchor.has_value(), "a site joined without an anchor");
  if (const Status status = change_parameters(parameters_, ParameterChange::kToAnchor, arena_.anchor(), {});
      !status.ok()) {
    return act(protocol::Failed{status});
  }
  if (callers_.join.give(*anchor)) return;
  helping_ = {true, clock_.now()};
  options_.helps(Status());
}

void Node::act(const protocol::Rebase& action) {
  change_state();
  driver_->act(action);
  if (broken_) return;
  round_.rebased(action.base);
}

Status Node::settle_parameters() {
  if (copy_ == nullptr) return publish_moved();
  const auto [change, range] = copy_->end_round(arena_.anchor());
  round_.changes(change, range);
  return {};
}

// What the site's ranks cannot do themselves to the parameters of the trigger they are given.
Status Node::publish_moved() {
  if (round_.can_be_repeated(parameters_.size())) return {};
  round_.changes(ParameterChange::kTakeOther);
  change_slot();
  return driver_->data().publish_parameters();
}

void Node::act(const protocol::RoundSkipped& action) {
  driver_->data().forget_contributions();
  if (const Status status = settle_parameters(); !status.ok()) return act(protocol::Failed{status});
  exchanging_ = false;
  if (options_.helps) helping_.next_round = clock_.now() + kBetweenOffers;
  round_.skipped(action.reason, arena_.sealed(), period_, clock_.now());
  count_what_is_sent();  // attempts that come to nothing take bytes too
  watch_the_budget();
  answer_round();
}

// Whoever waits for the round is told how it ended.
void Node::answer_round() {
  if (callers_.round.give(round_.report())) return;
  if (options_.helps && egress_.over()) options_.helps(cancelled(kBudgetOver));
}

void Node::count_what_is_sent() {
  bytes_sent_ = driver_->data().traffic().bytes_sent;
  bytes_received_ = driver_->data().traffic().bytes_received;
  egress_.sent(bytes_sent_ + optimizer_->bytes_sent());
}

void Node::act(const protocol::RoundDone& action) {
  const bool merges = copy_ != nullptr && copy_->merges();
  // Merged parameters differ between sites. Who waits for a round, and has nothing that it does not count, takes the
  // anchor whatever its weight was.
  if (copy_ != nullptr && !merges && action.samples == round_.samples()) {
    copy_->before_write();
    const ElementRange fragment = fragments_.range_of(copy_->size(), action.round);
    const Status taken = change_parameters(*copy_, ParameterChange::kToAnchor, arena_.anchor(), {}, fragment);
    if (!taken.ok()) return act(protocol::Failed{taken});
  }
  if (const Status status = settle_parameters(); !status.ok()) return act(protocol::Failed{status});
  const TimePoint now = clock_.now();
  round_.done(action, driver_->data().round_traffic(), now);
  period_ = action.period;
  exchanging_ = false;
  if (options_.helps) helping_.next_round = now;
  count_what_is_sent();
  egress_.round_ended(round_.report().bytes_sent);
  if (!merges) tell_of_round();  // else when it is merged
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
  callers_.offer.give(OptimizerOffer{action.from, action.state.description, action.state.bytes});
}

void Node::act(const protocol::NoOptimizer& action) { callers_.offer.give(action.why); }

void Node::act(const protocol::TakeOptimizerPart& action) { optimizer_->take_part(action); }

void Node::act(const protocol::OptimizerComplete&) {
  Result<BufferPtr> whole = optimizer_->complete();
  if (!whole.ok()) return driver_->feed(protocol::OptimizerUnfit{whole.status().message()});
  callers_.optimizer.give(std::move(whole));
}

void Node::act(const protocol::OptimizerLost& action) {
  log_warning("the optimizer's state is lost on its way: " + action.reason + " [optimizer.lost]");
  callers_.optimizer.give(unavailable(action.reason));
}

// Optimizer state is as large as two models: a site whose cap is half spent leaves it to another, or to a cold start.
void Node::act(const protocol::ServeOptimizer& action) {
  optimizer_->asked(action, egress_.half_spent() ? "half of what it may send is spent (COLLAB_EGRESS_BUDGET_GB)" : "");
}

void Node::act(const protocol::Left&) {
  if (records_) records_->remove();  // nobody counts on it any more
  if (saver_.enabled()) saver_.mark(true);
  callers_.departure.give();
}

void Node::act(const protocol::Failed& action) {
  if (broken_) return;
  broken_ = action.why;
  driver_->stop();
  driver_->data().cancel();
  if (options_.helps) options_.helps(action.why);
  callers_.fail(action.why);
}

void Node::act(const protocol::Note& action) { notes_.record(clock_.now(), action); }

void Node::tell_of_round() {
  const RoundReport& report = round_.report();
  JsonFields fields = fields_of(report);
  fields.emplace_back("codec", json_quote(name_of(options_.config.codec)));
  fields.emplace_back("transport", json_quote(transport_->name()));
  if (fragments_.count > 1) fields.emplace_back("fragment", std::to_string(fragments_.in_turn(report.round)));
  if (options_.config.overlap) fields.emplace_back("overlap_seconds", json_number(report.overlap_seconds));
  if (options_.config.outer_optimizer == OuterId::kNesterov && report.outer_lr > 0) {
    fields.emplace_back("outer_lr", json_number(report.outer_lr));
  }
  if (report.clipped_norm > 0) fields.emplace_back("clipped_norm", json_number(report.clipped_norm));
  if (report.period > 0) fields.emplace_back("period", std::to_string(report.period));
  for (auto& field : egress_.fields()) fields.push_back(std::move(field));
  events_.write(options_.site, "round", fields);
  log_info(text_of(report));
  if (const std::string spent = egress_.text(); !spent.empty()) log_info(spent);
}

void Node::watch_the_budget() {
  if (const auto note = egress_.news()) act(*note);
}

}  // namespace collab
