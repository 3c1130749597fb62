#include "tests/sim/sim_hub.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/protocol/formatting.h"
#include "core/runtime/data/payload_buffer.h"
#include "core/wire/encoding.h"

namespace collab::sim {

using namespace protocol;

namespace {

constexpr Duration kRound{800'000};  // about
constexpr Duration kDial{2'500'000};
// Once there are no more faults: ranks find a hub that leads, it learns which ranks are gone, and the slowest comes.
constexpr int kGracesToSettle = 6;
constexpr int kGracesToAnswer = 12;

BufferPtr buffer_of(const std::string& text) {
  static const std::shared_ptr<BufferPool> pool = make_buffer_pool();
  BufferPtr buffer = pool->take(text.size());
  std::memcpy(buffer->bytes().data(), text.data(), text.size());
  return buffer;
}

std::vector<std::string> names_of(std::uint32_t sites) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < sites; ++i) names.push_back("site" + std::to_string(i));
  return names;
}

// A text for people that says which it is.
bool ends_in_code(const std::string& text) {
  const std::size_t at = text.rfind(" [hub.");
  return at != std::string::npos && text.find(']', at) == text.size() - 1;
}

}  // namespace

// ---- the world -------------------------------------------------------------------------------------

SimWorld::SimWorld(Options options, Network& network, Checkers& checkers, Log log)
    : options_(std::move(options)),
      network_(network),
      checkers_(checkers),
      log_(std::move(log)),
      prng_(options_.seed ^ 0x0B5E'55ED'0000'0000),
      number_(prng_.next()),
      sites_(names_of(options_.sites)),
      judge_(script_, sites_, options_.hubs.size() == 1, [this](const std::string& what) { fail(what); }) {
  draw_groups();
  const bool large = options_.sites > 10;
  steps_ = large ? 3 : 4 + prng_.below(8) + options_.rounds / 2;
  pause_ = Duration(static_cast<Duration::rep>(options_.rounds * kRound.count() / steps_));
  if (prng_.chance(0.4)) every_ = 1 + prng_.below(3);
}

void SimWorld::draw_groups() {
  std::vector<RankId> all;
  for (std::uint32_t i = 0; i < options_.sites; ++i) all.emplace_back(i);
  script_.groups.push_back(all);
  std::vector<RankId> some;
  for (const RankId rank : all) {
    if (prng_.chance(0.6)) some.push_back(rank);
  }
  if (some.size() > 1) script_.groups.push_back(some);
}

HubConfig SimWorld::hub_config() {
  return {.swarm = "sim", .link_grace = options_.grace, .join_timeout = options_.join_timeout, .hub = prng_.next() | 1};
}

HubClientConfig SimWorld::client_config(std::uint32_t rank) {
  HubClientConfig config;
  config.self.swarm = "sim";
  config.self.world = number_;
  config.self.rank = RankId(rank);
  config.self.sites = sites_;
  for (std::uint32_t i = 0; i < options_.sites; ++i) config.self.site_of.push_back(i);
  config.self.candidates = 1;
  config.self.acceptor = AcceptorId{prng_.next() | 1};
  config.hubs = options_.hubs;
  config.link_grace = options_.grace;
  config.join_timeout = options_.join_timeout;
  return config;
}

// Calls in training always have a time-out: a site may wait for others first, and never come to its next call.
HubRequest SimWorld::request(std::size_t group, std::uint32_t rank, std::uint64_t step) {
  HubRequest request = script_.request(group, step);
  if (in_training() && step % 2 == 0) request.operation = std::string(kStandsStill) + request.operation;
  if (!in_training() && step % 3 != 0) request.timeout = {};
  request.payload = whole(buffer_of(HubScript::part_of(group, rank, step)));
  return request;
}

Duration SimWorld::draw_pause() {
  return Duration(static_cast<Duration::rep>(2 * prng_.uniform() * static_cast<double>(pause_.count())));
}

void SimWorld::answered(const HubExchanged& exchanged) {
  if (exchanged.status.ok()) return;
  ++report_.errors;
  if (!ends_in_code(exchanged.status.message())) fail("an error without a code: " + exchanged.status.message());
}

// If more than half of the sites and a hub are there, they go on together.
void SimWorld::ended(const SimRank& rank, const Status& why) {
  ++report_.ended;
  if (!ends_in_code(why.message())) fail("an end without a code: " + why.message());
  log_(rank.process(), "its collectives end: " + why.message());
  const bool none_leads = why.code() == StatusCode::kUnavailable;
  const auto others = std::ranges::count_if(ranks_, [](const SimRank* each) { return each->takes_part(); });
  const bool most = 2 * (static_cast<std::size_t>(others) + 1) > options_.sites;
  if (none_leads && most && network_.now() > calm_ + kGracesToSettle * options_.grace) {
    fail(rank.process() + " ends, and most are there: " + why.message());
  }
}

void SimWorld::look(TimePoint calm) {
  calm_ = std::max(calm_, calm);
  for (const SimRank* rank : ranks_) {
    for (const SimRank::Wait& wait : rank->waits()) {
      if (options_.liars && wait.timeout == Duration{}) continue;  // one of them may never do its part
      const TimePoint until = std::max(calm_, wait.since) + wait.timeout + kGracesToAnswer * options_.grace;
      if (network_.now() < until) continue;
      return fail(rank->process() + " waits for step " + std::to_string(wait.step) + " of group " +
                  std::to_string(wait.group) + " since " + in_seconds(wait.since.time_since_epoch()));
    }
  }
}

bool SimWorld::finished() const {
  return options_.liars || std::ranges::all_of(ranks_, [](const SimRank* rank) { return rank->finished(); });
}

SimWorld::Report SimWorld::report() const {
  Report report = report_;
  report.answers = judge_.answers();
  report.parted = judge_.parted() ? 1 : 0;
  return report;
}

// ---- a hub -----------------------------------------------------------------------------------------

SimHub::SimHub(SimWorld& world, std::string process, Transport& transport, const Clock& clock)
    : world_(world), process_(std::move(process)), transport_(transport), clock_(clock), hub_(world.hub_config()) {}

void SimHub::step(const HubEvent& event) {
  for (const HubAction& action : hub_.step(clock_.now(), event)) {
    if (const auto* send = std::get_if<HubSend>(&action)) {
      transport_.send(send->link, message_of(*send), 0);
    } else if (const auto* hangup = std::get_if<CloseLink>(&action)) {
      transport_.close(hangup->link);
    } else {
      const Note& note = std::get<Note>(action);
      world_.log(process_, note.event + ": " + note.text);
    }
  }
}

// ---- a rank ----------------------------------------------------------------------------------------

SimRank::SimRank(SimWorld& world, std::uint32_t rank, std::string process, SimTransport& transport, const Clock& clock)
    : world_(world),
      rank_(rank),
      process_(std::move(process)),
      transport_(transport),
      clock_(clock),
      client_(world.client_config(rank)) {
  world_.began(*this);
}

void SimRank::start() {
  feed(HubBegin{});
  const auto& groups = world_.script().groups;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (std::ranges::find(groups[group], RankId(rank_)) == groups[group].end()) continue;
    calls_[group] = {};
    feed(OpenGroup{HubScript::id_of(group), groups[group], {}, 0});
    if (!world_.in_training()) ask_later(group);
  }
}

void SimRank::ask_later(std::size_t group) {
  Network& network = world_.network();
  network.at(network.now() + world_.draw_pause(), [this, group] {
    if (dead_ || left_) return;
    leave_when_done();
    ask(group);
  });
}

void SimRank::ask(std::size_t group) {
  Calls& calls = calls_.at(group);
  if (left_ || calls.out || calls.asked == world_.steps()) return;
  const HubRequest request = world_.request(group, rank_, ++calls.asked);
  calls.wait = {calls.asked, group, world_.network().now(), request.timeout};
  feed(request);
}

bool SimRank::call(std::uint64_t training_step, std::function<void()> then) {
  const Calls& all = calls_[0];
  if (!world_.calls_at(training_step) || left_ || all.out || all.asked == world_.steps()) return false;
  then_ = std::move(then);
  ask(0);
  return true;
}

void SimRank::site_over(bool failed) {
  site_over_ = true;
  if (!failed && !world_.in_training()) return leave_when_done();
  if (!std::exchange(left_, true)) feed(HubLeave{"its site is done"});
}

void SimRank::leave_when_done() {
  const bool done = std::ranges::all_of(
      calls_, [this](const auto& entry) { return entry.second.out || entry.second.answered == world_.steps(); });
  if (site_over_ && done && !std::exchange(left_, true)) feed(HubLeave{"its calls are done"});
}

void SimRank::kill() {
  dead_ = true;
  world_.lost_one();
}

bool SimRank::finished() const {
  if (!takes_part()) return true;
  return std::ranges::all_of(calls_, [this](const auto& entry) {
    const Calls& calls = entry.second;
    return calls.out || calls.answered == (world_.in_training() ? calls.asked : world_.steps());
  });
}

std::vector<SimRank::Wait> SimRank::waits() const {
  std::vector<Wait> waits;
  for (const auto& [group, calls] : calls_) {
    if (!dead_ && calls.wait.since != kNever) waits.push_back(calls.wait);
  }
  return waits;
}

// ---- its machine

void SimRank::feed(const HubClientEvent& event) {
  if (dead_) return;
  const std::vector<HubClientAction> actions = client_.step(clock_.now(), event);
  ends_ = std::ranges::any_of(actions, [](const auto& each) { return std::holds_alternative<HubBroken>(each); });
  for (const HubClientAction& action : actions) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
  world_.network().wake(transport_.node(), client_.next_deadline());
}

void SimRank::tick() {
  if (clock_.now() >= client_.next_deadline()) return feed(Tick{});
  if (!dead_) world_.network().wake(transport_.node(), client_.next_deadline());
}

void SimRank::act(const DialHub& action) {
  dialing_ = transport_.connect("c" + std::to_string(action.candidate) + ":1", kDial);
  links_.insert(dialing_);
}

void SimRank::act(const HubSend& action) { transport_.send(action.link, message_of(action), 0); }

void SimRank::act(const HubExchanged& action) {
  const std::size_t group = HubScript::group_of(action.id);
  Calls& calls = calls_.at(group);
  if (calls.answered + 1 != HubScript::step_of(action.id)) {
    return world_.fail(process_ + " is answered twice, or out of turn");
  }
  calls.answered = calls.asked;
  calls.wait.since = kNever;
  world_.answered(action);
  const StatusCode code = action.status.code();
  calls.out = !action.status.ok() && (ends_ || left_ || code == StatusCode::kTimeout || code == StatusCode::kCancelled);
  if (!calls.out) world_.judge().given(rank_, action);
  if (!world_.in_training()) return ask_later(group);
  if (const auto then = std::exchange(then_, nullptr)) world_.network().at(world_.network().now(), then);
}

void SimRank::act(const HubBroken& action) {
  broken_ = action.why;
  for (auto& [group, calls] : calls_) calls.out = true;
  world_.ended(*this, action.why);
}

// ---- its link

void SimRank::on_connected(LinkId link) {
  if (dialing_ == link) dialing_ = {};
  feed(HubConnected{link});
}

void SimRank::on_message(LinkId link, const TransportMessage& message) {
  Result<wire::Message> decoded = wire::decode(message.head);
  if (!decoded.ok()) return world_.fail(process_ + " got what it cannot read: " + decoded.status().to_string());
  world_.judge().told(rank_, *decoded);
  feed(HubReceived{link, std::move(*decoded), message.payload});
}

void SimRank::on_closed(LinkId link, const Status& why) {
  links_.erase(link);
  if (dialing_ != link) return feed(Closed{link, why});
  dialing_ = {};
  feed(HubDialFailed{why});
}

}  // namespace collab::sim
