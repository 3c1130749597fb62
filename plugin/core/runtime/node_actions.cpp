// What the node does when the Site machine asks.
#include <utility>

#include "core/base/log.h"
#include "core/runtime/node.h"

namespace collab {

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
  change_slot();
  driver_->act(action);
}

void Node::act(const protocol::CancelExchange& action) {
  round_.exchange_ends();
  driver_->act(action);
}

void Node::change_slot() {
  round_.slot_changes();
  storage_.slot_changes();
}

void Node::change_state() {
  round_.slot_changes();
  storage_.state_changes(driver_->data().residual());
}

void Node::act(const protocol::ApplyCommit& action) {
  change_state();
  const std::optional<DataPlane::Applied> applied = driver_->act(action);
  if (!applied) return;
  round_.applied(action.base, *applied);
}

void Node::act(const protocol::Persist& action) {
  if (!storage_.write(action.record, action.number)) driver_->feed(protocol::Persisted{action.number, {}});
}

void Node::act(const protocol::KeepAnchor& action) {
  change_state();
  storage_.takes({action.run, action.round, action.digest});
  driver_->act(action);
}

void Node::act(const protocol::ReceiveAnchor& action) {
  change_state();
  storage_.takes({action.run, action.round, action.digest});
  driver_->act(action);
}

void Node::act(const protocol::JoinDone& action) {
  round_.joined(action.period);
  if (!callers_.join.awaited() && !helper_state_.is_joining()) return;  // a join after the coordinator was lost
  storage_.joined();
  const Result<SealedAnchor> anchor = parameters_.take_anchor();
  if (!anchor.ok()) return act(protocol::Failed{anchor.status()});
  if (!callers_.join.give(*anchor)) helper_state_.joined(clock_.now());
}

void Node::act(const protocol::Rebase& action) {
  change_state();
  driver_->act(action);
  if (broken()) return;
  round_.rebased(action.base);
}

Status Node::settle_parameters() {
  const std::optional<TrainingCopy::End> end = parameters_.end_round();
  if (!end) return publish_moved();
  round_.changes(end->change, end->range);
  return {};
}

// If the site's ranks cannot repeat the change on the parameters of the trigger, they get the changed parameters.
Status Node::publish_moved() {
  if (round_.can_be_repeated(parameters_.size())) return {};
  round_.changes(ParameterChange::kTakeOther);
  change_slot();
  return driver_->data().publish_parameters();
}

void Node::act(const protocol::RoundSkipped& action) {
  driver_->data().forget_contributions();
  if (const Status status = settle_parameters(); !status.ok()) return act(protocol::Failed{status});
  const TimePoint now = clock_.now();
  helper_state_.round_skipped(now);
  round_.skipped(action.reason, parameters_.arena().sealed(), now);
  count_what_is_sent();  // failed attempts send bytes too
  check_egress_budget();
  answer_round();
}

// Completes the call that waits for the round.
void Node::answer_round() {
  if (callers_.round.give(round_.report())) return;
  if (egress_.over()) helper_state_.ended(cancelled(kBudgetOver));
}

void Node::count_what_is_sent() {
  const Traffic traffic = driver_->data().traffic();
  egress_.count(traffic.bytes_sent, traffic.bytes_received, optimizer_->bytes_sent());
}

void Node::act(const protocol::RoundDone& action) {
  const bool merges = parameters_.merges();
  Status status = parameters_.round_done(action, round_.samples());
  if (status.ok()) status = settle_parameters();
  if (!status.ok()) return act(protocol::Failed{status});
  const TimePoint now = clock_.now();
  round_.done(action, driver_->data().round_traffic(), now);
  helper_state_.round_over(now);
  count_what_is_sent();
  egress_.round_ended(round_.report().traffic.bytes_sent);
  if (!merges) news_.round(round_.report(), egress_);  // else it is reported when it is merged
  check_egress_budget();
  if (storage_.is_due(action.round)) {
    storage_.save(driver_->site().record(), driver_->data().residual(), egress_.so_far());
  }
  answer_round();
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
  log_warning("the optimizer's state was lost on the way: " + action.reason + " [optimizer.lost]");
  callers_.optimizer.give(unavailable(action.reason));
}

// Optimizer state is as large as two models: with half its budget spent a site leaves it to another or a cold start.
void Node::act(const protocol::ServeOptimizer& action) {
  optimizer_->asked(action, egress_.half_spent() ? "half of its egress budget is spent (COLLAB_EGRESS_BUDGET_GB)" : "");
}

void Node::act(const protocol::Left&) {
  storage_.left();
  callers_.departure.give();
}

void Node::act(const protocol::Failed& action) {
  if (broken()) return;
  callers_.refuse(action.why);
  driver_->stop();
  driver_->data().cancel();
  helper_state_.ended(action.why);
  callers_.fail(action.why);
}

void Node::act(const protocol::Note& action) { news_.record(clock_.now(), action); }

void Node::check_egress_budget() {
  if (const auto note = egress_.news()) act(*note);
}

}  // namespace collab
