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

constexpr Duration kDialTimeout = std::chrono::seconds(10);
// After a round that did not come about a helper offers itself again.
constexpr Duration kBetweenOffers = std::chrono::seconds(1);

[[nodiscard]] double seconds_between(TimePoint from, TimePoint to) {
  return to <= from ? 0.0 : std::chrono::duration<double>(to - from).count();
}

[[nodiscard]] double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

void Node::act(const protocol::Send& action) {
  transport_->send(action.link, {.lane = Lane::kControl, .head = wire::encode(action.message), .payload = nullptr}, 0);
}

void Node::act(const protocol::Hangup& action) {
  log_debug("closing a link: " + action.why);
  transport_->close(action.link);
}

void Node::act(const protocol::DialCoordinator& action) {
  const std::string& address = options_.coordinators[action.candidate];
  dials_[transport_->connect(address, kDialTimeout)] = CoordinatorDial{};
}

void Node::act(const protocol::DialPeer& action) {
  dials_[transport_->connect(action.address, kDialTimeout)] = action.site;
}

void Node::act(const protocol::StartExchange& action) {
  if (formed_at_ == kNever) formed_at_ = clock_.now();
  exchanging_ = true;
  queue(data_plane_->start(action));
}

void Node::act(const protocol::CancelExchange& action) {
  log_debug("the exchange was cancelled: " + action.why);
  exchanging_ = false;
  data_plane_->cancel();
}

void Node::act(const protocol::ApplyCommit& action) {
  saver_.wait();
  Result<DataPlane::Applied> applied = data_plane_->apply(action);
  if (!applied.ok()) return act(protocol::Failed{applied.status()});
  moved_ = moved_ || action.base == protocol::Base::kSnapshot;
  if (action.base == protocol::Base::kUnfit) report_.unfit = unfit_because_;
  report_.change = applied->change == ParameterChange::kUnchanged ? report_.change : applied->change;
  report_.state = applied->state;
  pending_.push_back(protocol::Applied{action.commit.round, applied->state});
}

void Node::act(const protocol::KeepAnchor& action) {
  saver_.wait();
  Result<SealedAnchor> kept = data_plane_->keep_anchor(action.run, action.round, action.digest);
  if (!kept.ok()) return act(protocol::Failed{kept.status()});
  pending_.push_back(protocol::AnchorInPlace{kept->run, kept->round, kept->digest});
}

void Node::act(const protocol::ReceiveAnchor& action) {
  saver_.wait();
  data_plane_->receive_anchor(action);
}

void Node::act(const protocol::AddAnchorSource& action) { queue(data_plane_->add_source(action)); }

void Node::act(const protocol::DropAnchorSource& action) { queue(data_plane_->drop_source(action.site)); }

void Node::act(const protocol::StopReceiving&) { data_plane_->stop_receiving(); }

void Node::act(const protocol::SendAnchor& action) {
  if (const Status status = data_plane_->send_anchor(action); !status.ok()) {
    log_warning(status.message());
    transport_->close(action.to);
  }
}

void Node::act(const protocol::JoinDone& action) {
  if (!joining_ && (!options_.helps || helping_)) return;  // a join after the coordinator was lost
  const std::optional<SealedAnchor> anchor = arena_.sealed();
  COLLAB_CHECK(anchor.has_value(), "a site joined without an anchor");
  if (const Status status = change_parameters(parameters_, ParameterChange::kToAnchor, arena_.anchor(), {});
      !status.ok()) {
    return act(protocol::Failed{status});
  }
  intervals_ = agreed_intervals_ = action.intervals;
  if (joining_) return std::exchange(joining_, std::nullopt)->set_value(*anchor);
  helping_ = true;
  helps_next_ = clock_.now();
  options_.helps(Status());
}

void Node::act(const protocol::Rebase& action) {
  saver_.wait();
  if (const Status status = data_plane_->rebase(action.base); !status.ok()) return act(protocol::Failed{status});
  moved_ = true;
  if (action.base == protocol::Base::kUnfit) report_.unfit = unfit_because_;
  report_.change = action.base == protocol::Base::kUnfit ? ParameterChange::kTookAnchor : ParameterChange::kTakeOther;
}

void Node::act(const protocol::KeepFork&) { data_plane_->keep_fork(); }

void Node::act(const protocol::TakeSnapshot&) {
  if (const Status status = data_plane_->take_snapshot(); !status.ok()) act(protocol::Failed{status});
}

// The other ranks hold the parameters as they were at the trigger. What became of them by one outer step they can
// repeat; more than that they are given.
Status Node::publish_moved() {
  const bool repeatable =
      report_.change == ParameterChange::kToAnchor || report_.change == ParameterChange::kTookAnchor;
  if (!moved_ || repeatable) return {};
  report_.change = ParameterChange::kTakeOther;
  return data_plane_->publish_parameters();
}

void Node::act(const protocol::RoundSkipped& action) {
  data_plane_->forget_contributions();
  if (const Status status = publish_moved(); !status.ok()) return act(protocol::Failed{status});
  if (const std::optional<SealedAnchor> sealed = arena_.sealed()) {
    report_.round = sealed->round;
    report_.state = sealed->digest;
  }
  exchanging_ = false;
  if (options_.helps) helps_next_ = clock_.now() + kBetweenOffers;
  report_.skipped = action.reason;
  report_.stall_seconds = seconds_between(triggered_at_, clock_.now());
  // Joiners are given models between rounds, and attempts that come to nothing take bytes too.
  count_what_is_sent();
  budget_over_ = egress_.over();
  if (budget_over_) tell_of_the_budget();
  if (rounding_) return std::exchange(rounding_, std::nullopt)->set_value(report_);
  if (options_.helps && budget_over_) options_.helps(cancelled(kBudgetOver));
}

void Node::count_what_is_sent() {
  bytes_sent_ = data_plane_->traffic().bytes_sent;
  bytes_received_ = data_plane_->traffic().bytes_received;
  egress_.sent(bytes_sent_ + optimizer_->bytes_sent());
  egress_spent_ = egress_.so_far().spent;
}

void Node::act(const protocol::RoundDone& action) {
  if (const Status status = publish_moved(); !status.ok()) return act(protocol::Failed{status});
  const TimePoint now = clock_.now();
  const RoundTraffic& traffic = data_plane_->round_traffic();
  report_.round = action.round;
  report_.attempts = action.attempts;
  report_.members = action.members;
  report_.contributors = action.contributors;
  report_.samples = action.samples;
  report_.seconds = formed_at_ == kNever ? 0 : seconds_between(formed_at_, now);
  report_.stall_seconds = seconds_between(triggered_at_, now);
  report_.exchange_seconds =
      traffic.first_payload == kNever ? 0 : seconds_between(traffic.first_payload, traffic.last_payload);
  report_.bytes_sent = traffic.bytes_sent;
  report_.bytes_received = traffic.bytes_received;
  exchanging_ = false;
  if (options_.helps) helps_next_ = now;
  count_what_is_sent();
  egress_.round_ended(report_.bytes_sent, std::exchange(passed_intervals_, 0));
  budget_over_ = egress_.over();
  const bool other_pace = agreed_intervals_ != action.intervals;
  intervals_ = agreed_intervals_ = action.intervals;
  tell(report_);
  if (other_pace && !egress_.on()) {
    log_info(intervals_ == 1 ? std::string("rounds come every COLLAB_SYNC_EVERY again")
                             : "the next round comes after " + std::to_string(intervals_) +
                                   " x COLLAB_SYNC_EVERY: another site's budget is to last (COLLAB_EGRESS_GB)");
  }
  const std::optional<SealedAnchor> sealed = arena_.sealed();
  if (saver_.enabled() && sealed && action.round.value % options_.config.save_every == 0) {
    const Residual& residual = data_plane_->residual();
    std::vector<ResidualRecord> record;
    if (residual.on()) record.push_back({{}, residual.units()});
    saver_.save({.swarm = options_.config.run,
                 .site = options_.site,
                 .run = sealed->run,
                 .round = sealed->round,
                 .digest = sealed->digest,
                 .fingerprint = options_.fingerprint,
                 .elements = arena_.anchor().size(),
                 .outer_state = !arena_.outer().empty(),
                 .term = site_.term(),
                 .voters = site_.voters(),
                 .branch = site_.branch(),
                 .residual = std::move(record),
                 .model = options_.model,
                 .egress = egress_.so_far()},
                arena_.anchor(), arena_.outer(), residual.values());
  }
  if (rounding_) return std::exchange(rounding_, std::nullopt)->set_value(report_);
  if (options_.helps && budget_over_) options_.helps(cancelled(kBudgetOver));
}

void Node::act(const protocol::PaceChanged& action) { intervals_ = action.intervals; }

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
    pending_.push_back(protocol::OptimizerUnfit{whole.status().message()});
  } else if (taking_) {
    std::exchange(taking_, std::nullopt)->set_value(std::move(whole));
  }
}

void Node::act(const protocol::OptimizerLost& action) {
  log_warning("the optimiser's state is lost on its way, " + action.reason);
  if (taking_) std::exchange(taking_, std::nullopt)->set_value(unavailable(action.reason));
}

// The moments are as large as two models: whose budget is to last leaves them to another, or to a cold start.
void Node::act(const protocol::LendOptimizer& action) {
  optimizer_->asked(action,
                    egress_.intervals() > 1 || egress_.over() ? "what it may send is to last (COLLAB_EGRESS_GB)" : "");
}

void Node::act(const protocol::Left&) {
  if (departing_) std::exchange(departing_, std::nullopt)->set_value();
}

void Node::act(const protocol::Failed& action) {
  if (broken_) return;
  broken_ = action.why;
  data_plane_->cancel();
  if (options_.helps) options_.helps(action.why);
  fail_everything(action.why);
}

void Node::act(const protocol::Note& action) { record_note(events_, options_.site, action); }

void Node::tell(const RoundReport& report) {
  JsonFields fields{{"round", std::to_string(report.round.value)},
                    {"attempts", std::to_string(report.attempts)},
                    {"members", json_strings(report.members)},
                    {"contributors", json_strings(report.contributors)},
                    {"samples", std::to_string(report.samples)},
                    {"bytes_sent", std::to_string(report.bytes_sent)},
                    {"bytes_received", std::to_string(report.bytes_received)},
                    {"seconds", json_number(report.seconds)},
                    {"exchange_seconds", json_number(report.exchange_seconds)},
                    {"stall_seconds", json_number(report.stall_seconds)},
                    {"digest", json_quote(to_hex(report.state))},
                    {"codec", json_quote(name_of(options_.config.codec))},
                    {"transport", json_quote(transport_->name())}};
  if (intervals_ > 1) fields.emplace_back("intervals", std::to_string(intervals_));
  if (egress_.on()) {
    fields.emplace_back("egress_gb", json_number(gigabytes(egress_.so_far().spent)));
    fields.emplace_back("egress_budget_gb", json_number(gigabytes(egress_.budget())));
    if (egress_.known()) fields.emplace_back("rounds_left", std::to_string(egress_.rounds_left()));
  }
  events_.write(options_.site, "round", fields);
  std::string who;
  for (const std::string& name : report.contributors) who += (who.empty() ? "" : ", ") + name;
  char line[256];
  std::snprintf(line, sizeof line, "%.2f s, waited %.2f s, %.1f MB sent, %.1f MB received", report.seconds,
                std::max(0.0, report.stall_seconds - report.seconds), static_cast<double>(report.bytes_sent) / 1e6,
                static_cast<double>(report.bytes_received) / 1e6);
  log_info("round " + std::to_string(report.round.value) + ": " +
           (who.empty() ? "nobody had steps" : who + " averaged") + "; " + line);
  if (egress_.on()) tell_of_the_budget();
}

void Node::tell_of_the_budget() {
  if (!budget_over_) return log_info(budget_in_words());
  act(protocol::make_note(protocol::Note::Level::kInfo, "budget",
                          "what is left does not pay for another round: " + budget_in_words()));
}

std::string Node::budget_in_words() const {
  char line[160];
  std::snprintf(line, sizeof line, "%.6g of %.6g GB are spent (COLLAB_EGRESS_GB)", gigabytes(egress_.so_far().spent),
                gigabytes(egress_.budget()));
  std::string words = line;
  if (budget_over_) return words;
  if (egress_.known()) words += "; rounds left: " + std::to_string(egress_.rounds_left()) + ", and one for the end";
  if (intervals_ > 1) words += "; the next one comes after " + std::to_string(intervals_) + " x COLLAB_SYNC_EVERY";
  return words;
}

}  // namespace collab
