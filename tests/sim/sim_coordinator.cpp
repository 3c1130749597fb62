#include "tests/sim/sim_coordinator.h"

#include <utility>

#include "core/wire/encoding.h"
#include "tests/sim/explorer/inside.h"

namespace collab::sim {

using namespace protocol;

constexpr Duration kProbeTakes{5'000'000};
constexpr LinkId kOperator{UINT64_MAX};  // the answer's reader does not matter

namespace {

// To the planted mistake: no site that is sound says that.
bool is_of_no_use(const wire::Message& message) {
  return std::holds_alternative<wire::StatusQuery>(message) || std::holds_alternative<wire::Roster>(message) ||
         std::holds_alternative<wire::RoundSkipped>(message) || std::holds_alternative<wire::Enter>(message) ||
         std::holds_alternative<wire::AnchorMoved>(message) || std::holds_alternative<wire::FetchAnchor>(message);
}

}  // namespace

SimCoordinator::SimCoordinator(CoordinatorConfig config, std::string process, const std::string& address,
                               Mutation mutation, Network& network, Checkers& checkers, SimSite::Log log,
                               SimWorld* world)
    : config_(std::move(config)),
      process_(std::move(process)),
      mutation_(mutation),
      network_(network),
      checkers_(checkers),
      log_(std::move(log)),
      transport_(network),
      clock_(network, transport_.node()),
      coordinator_(config_) {
  static_cast<void>(transport_.start(this));
  if (world != nullptr) hub_.emplace(*world, process_, transport_, clock_);
  network_.on_timer(node(), [this] {
    step(Tick{});
    if (hub_ && !dead_ && clock_.now() >= hub_->next_deadline()) step_hub(Tick{});
  });
  const auto bound = transport_.listen(address);
  COLLAB_CHECK(bound.ok(), "two coordinators live at one address");
}

std::size_t SimCoordinator::knows() const { return Inside::bytes_of(coordinator_) + kept_; }

void SimCoordinator::on_message(LinkId link, TransportMessage arrived) {
  const Result<wire::Message> message = wire::decode(arrived.head);
  if (!message.ok()) return checkers_.fail("the coordinator got what it cannot read: " + message.status().to_string());
  if (hub_ && hub_->is_for(link, *message)) return step_hub(HubReceived{link, *message, std::move(arrived.payload)});
  step(Received{link, *message});
  if (mutation_ == Mutation::kKeepWords && is_of_no_use(*message)) kept_ += arrived.head.size();
  const auto* done = std::get_if<wire::Done>(&*message);
  if (done != nullptr && mutation_ == Mutation::kForgeDone) forge(*done);
}

void SimCoordinator::on_closed(LinkId link, Status why) {
  if (hub_ && hub_->knows(link)) return step_hub(Closed{link, std::move(why)});
  step(Closed{link, std::move(why)});
}

void SimCoordinator::step_hub(const HubEvent& event) {
  if (dead_) return;
  hub_->step(event);
  follow_calls();
  network_.wake(node(), hub_->next_deadline());
}

// Like the runtime's server.
void SimCoordinator::follow_calls() {
  if (!hub_ || dead_) return;
  CallsUnderWay calls;
  if (coordinator_.waits_for_sites()) {
    calls = hub_->calls_under_way([this](std::uint64_t world) { return coordinator_.sites_of(world); });
  }
  if (calls == calls_) return;
  calls_ = calls;
  step(std::move(calls));
}

void SimCoordinator::forget(std::vector<std::string> sites) {
  step(Received{kOperator, wire::Forget{std::move(sites)}});
}

// The planted mistake: the first site that is done speaks for all.
void SimCoordinator::forge(const wire::Done& done) {
  if (!forged_.insert({done.round, done.attempt}).second) return;
  const auto links = links_;
  for (const auto& [site, link] : links) step(Received{link, done});
}

// False: it died with this copy on its way.
bool SimCoordinator::send(LinkId link, const wire::Message& message) {
  const auto* commit = std::get_if<wire::Commit>(&message);
  if (commit != nullptr) checkers_.committed(*commit);
  if (const auto* start = std::get_if<wire::StartAttempt>(&message)) checkers_.formed(*start);
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) links_[welcome->site] = link;
  transport_.send(link, {.lane = Lane::kControl, .head = wire::encode(message), .payload = nullptr}, 0);
  if (commit == nullptr || !both_die_) return true;
  for (const auto& [site, of_site] : links_) {
    if (of_site != link) continue;
    std::exchange(both_die_, nullptr)(site);
    return false;
  }
  return true;
}

std::vector<CoordinatorAction> SimCoordinator::told_to_others(const CoordinatorEvent& event,
                                                              std::vector<CoordinatorAction> actions) {
  const auto* received = std::get_if<Received>(&event);
  const auto* join = received != nullptr ? std::get_if<wire::Join>(&received->message) : nullptr;
  if (join != nullptr && join->site == distrusted_) distrusted_links_.insert(received->link);
  for (CoordinatorAction& action : actions) {
    auto* send = std::get_if<Send>(&action);
    if (send == nullptr || distrusted_links_.count(send->link) == 0) continue;
    if (auto* install = std::get_if<wire::InstallAnchor>(&send->message)) install->voters.clear();
  }
  return actions;
}

void SimCoordinator::step(const CoordinatorEvent& event) {
  if (dead_) return;
  const std::vector<CoordinatorAction> actions = coordinator_.step(clock_.now(), event);
  checkers_.invariants.coordinator_step(process_, event,
                                        distrusted_.empty() ? actions : told_to_others(event, actions));
  for (const CoordinatorAction& action : actions) {
    if (dead_) return;  // with the commit's first copy on its way
    each_sent(action, [this](LinkId link, const wire::Message& message) { return send(link, message); });
    if (const auto* hangup = std::get_if<CloseLink>(&action)) {
      transport_.close(hangup->link);
    } else if (const auto* probe = std::get_if<ProbeAddress>(&action); probe != nullptr) {
      if (network_.knows(probe->address)) continue;
      network_.at(network_.now() + kProbeTakes, [this, link = probe->link] { step(Undialable{link, "no answer"}); });
    } else if (const auto* note = std::get_if<Note>(&action)) {
      log_(process_, note->event + ": " + note->text);
      if (note->event == kWait && reader_) reader_(note->text);
    }
  }
  network_.wake(node(), coordinator_.next_deadline());
  if (hub_) network_.wake(node(), hub_->next_deadline());
  follow_calls();
}

}  // namespace collab::sim
