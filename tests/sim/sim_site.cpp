#include "tests/sim/sim_site.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/base/digest.h"
#include "core/base/message_code.h"
#include "core/runtime/storage/anchor_record.h"
#include "core/runtime/storage/beginning.h"
#include "core/wire/encoding.h"
#include "tests/sim/explorer/inside.h"

namespace collab::sim {

using namespace protocol;

constexpr Duration kSaveTakes{40'000};
constexpr Duration kSlowDiskTakes{15'000'000};
constexpr Duration kOptimizerLimit{10'000'000};  // the grace

namespace {

// What earlier processes have left.
Beginning found_in(const Store* store, std::uint64_t seed) {
  Remains remains;
  if (store == nullptr) return begin_with(remains, AcceptorId{seed | 1});
  if (const wire::Record* record = store->record.read()) remains.record = *record;
  if (const StoredAnchor* arena = store->arena.read()) remains.arena = arena->sealed;
  if (const StoredAnchor* state = store->state.read()) {
    const SealedAnchor& sealed = state->sealed;
    wire::Record beside;
    take_membership(beside, sealed);
    remains.state = {{sealed.run, sealed.round, sealed.digest}, std::move(beside), store->ended};
  }
  return begin_with(remains, AcceptorId{seed | 1});
}

// The residual of an older round is closer to what is missing than none.
std::optional<StoredResidual> residual_in(const Store* store) {
  const StoredAnchor* state = store != nullptr ? store->state.read() : nullptr;
  return state != nullptr ? state->residual : std::nullopt;
}

protocol::Egress egress_in(const Store* store) {
  const StoredAnchor* state = store != nullptr ? store->state.read() : nullptr;
  return state != nullptr ? state->egress : protocol::Egress{};
}

std::optional<MergeSettings> overlap_of(const SimSiteOptions& options) {
  if (!options.overlap || options.helper) return std::nullopt;
  return MergeSettings{.merge = *options.overlap, .trained = options.data.outer_elements};
}

}  // namespace

SimSite::SimSite(SimSiteOptions options, Network& network, Checkers& checkers, Log log)
    : options_(std::move(options)),
      network_(network),
      checkers_(checkers),
      log_(std::move(log)),
      prng_(options_.seed),
      transport_(network),
      clock_(network, transport_.node()),
      data_({options_.process, options_.elements, options_.fragments, options_.data, options_.mutation, prng_.next(),
             overlap_of(options_)},
            checkers),
      driver_(options_.config, options_.data,
              {&transport_,
               &clock_,
               &data_.arena(),
               &data_.parameters(),
               [this](const Note& note) { act(note); },
               {},
               data_.copy()},
              residual_in(options_.store), *this),
      optimizer_(
          {options_.process, options_.elements, options_.optimizer, kOptimizerLimit, options_.seed}, transport_, clock_,
          checkers, [this](SiteEvent event) { driver_.feed(std::move(event)); },
          [this](Duration after, std::function<void()> what) { later(after, std::move(what)); }),
      egress_(options_.egress_budget, egress_in(options_.store)) {
  static_cast<void>(transport_.start(this));
  if (options_.world != nullptr) {
    rank_.emplace(*options_.world, options_.rank, options_.process, transport_, clock_);
  }
  network_.on_timer(node(), [this] {
    if (rank_) rank_->tick();
    if (!dead_ && !report_.failed) optimizer_.tick();
    driver_.feed(Tick{});
  });
  if (!options_.address.empty() && !options_.behind_nat) {
    const auto bound = transport_.listen(options_.address);
    COLLAB_CHECK(bound.ok(), "a simulated process has an address of its own");
  }
  Beginning beginning = found_in(options_.store, options_.seed);
  known_ = std::move(beginning.record);
  if (!beginning.anchor) return;
  StoredAnchor found = *(beginning.from_state ? options_.store->state : options_.store->arena).read();
  found.sealed = *std::move(beginning.anchor);
  data_.restore(found);
}

std::size_t SimSite::knows() const { return Inside::bytes_of(driver_.site()); }

void SimSite::leave_arena() {
  if (options_.store == nullptr || options_.helper) return;  // a helper's memory is its own
  options_.store->arena.lose();
  std::optional<StoredAnchor> anchor = data_.stored(driver_.data().residual());
  if (anchor) options_.store->arena.write(std::move(*anchor));
}

// Behind the training's back.
void SimSite::save() {
  Store* store = options_.store;
  if (store == nullptr || options_.helper) return;
  if (report_.round.value % options_.save_every != 0) return;
  std::optional<StoredAnchor> stored = data_.stored(driver_.data().residual());
  if (stored) stored->egress = egress_.so_far();
  later(kSaveTakes, [store, anchor = std::move(stored)] {
    if (!anchor || store->full) return;
    store->state.write(*anchor);
    store->ended = false;
  });
}

void SimSite::start() {
  if (rank_) rank_->start();
  driver_.feed(Begin{make_join()});
}

void SimSite::kill() {
  dead_ = true;
  if (rank_) rank_->kill();
  driver_.stop();
}

wire::Join SimSite::make_join() {
  wire::Join join;
  join.swarm = "sim";
  join.site = options_.name;
  join.expected_sites = options_.expected_sites;
  join.address = options_.address;
  join.helper = options_.helper;
  join.generation = options_.generation;
  join.process = options_.seed | 1;
  if (options_.world != nullptr) join.world = options_.world->number();
  join.resumed = options_.resumed;
  join.init_from = options_.init_from;
  join.elements = options_.elements;
  join.settings = {{"codec", name_of(options_.data.codec)}};
  join.settings.push_back({"fragments", std::to_string(options_.fragments.count)});
  if (options_.leader_times) {
    join.settings.push_back({"sync_every", "auto:2"});
    join.settings.push_back({"target_overhead", "0.5"});
  }
  const std::string model = "weight" + std::to_string(options_.generation);
  if (!options_.helper) join.model = {{model, "float32", {options_.elements}, TensorKind::kAveraged, {}}};
  join.fingerprint = {options_.generation, 1};
  join.report.record = known_;
  if (const std::optional<SealedAnchor> sealed = data_.arena().sealed()) {
    held_ = {sealed->run, sealed->round};
    join.offer = {sealed->run, sealed->round, sealed->digest};
  } else {
    join.offer = {RunId{0}, RoundId{0}, data_.digest()};
  }
  return join;
}

// ---- driving the machine ---------------------------------------------------------------------------

void SimSite::stepped(const SiteEvent& event, const std::vector<SiteAction>& actions) {
  checkers_.invariants.site_step(options_.process, event, actions);
  heard(event);
  for (const SiteAction& action : actions) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
  if (!dead_) network_.wake(node(), std::min(driver_.next_deadline(), optimizer_.next_deadline()));
}

// What the checkers are to know of what came to pass.
void SimSite::heard(const SiteEvent& event) {
  if (const auto* received = std::get_if<Received>(&event)) {
    if (const auto* install = std::get_if<wire::InstallAnchor>(&received->message)) {
      told_ = {{install->term, install->run, install->round}, install->period};
      told_unknown_ = install->counted == wire::Counted::kUnknown;
    }
  } else if (std::holds_alternative<ContributionUnfit>(event)) {
    report_.undisturbed = false;
  } else if (const auto* complete = std::get_if<ExchangeComplete>(&event)) {
    report_.exchanges[complete->round].ended = network_.now();
  } else if (const auto* place = std::get_if<AnchorInPlace>(&event)) {
    const std::optional<ReceiveAnchor> wanted = std::exchange(wanted_, std::nullopt);
    if (wanted && wanted->digest != place->digest) {
      checkers_.fail(options_.process + " was given a whole anchor with another digest");
    }
    const std::pair now{place->run, place->round};
    const bool moves = std::exchange(held_, now) != now;
    if (moves) fate_unknown_ = told_unknown_;
    if (!moves && wanted) data_.excuse();  // of two, the wrong one stayed
    report_.run = place->run;
    report_.round = place->round;
  }
}

void SimSite::act(const StartExchange& action) {
  self_ = action.self;
  if (newest_.first == action.start.round) report_.carried += driver_.data().contributions_held();
  newest_ = {action.start.round, action.start.attempt};
  newest_term_ = action.start.term;
  report_.exchanges[action.start.round].began = network_.now();
  data_.before(action, driver_.data().residual());
  if (options_.mutation != Mutation::kCarryStale) return driver_.act(action);
  StartExchange stale = action;
  for (wire::Participant& p : stale.start.participants) p.since = AttemptId{1};
  driver_.act(stale);
}

void SimSite::act(const ApplyCommit& action) {
  const wire::Commit& commit = action.commit;
  // A successor that knows of no other site that was done has nothing to compare a mean with.
  const bool unseen = flipped_ == std::pair(commit.round, commit.attempt) && commit.term != newest_term_;
  const bool mutated = options_.mutation == Mutation::kFlipBit && commit.round.value == 3;
  data_.before(action);
  held_ = {report_.run, commit.round};
  told_ = {{commit.term, commit.run, commit.round}, commit.period};
  if (!flip_anchor_ && !mutated) {
    const auto applied = driver_.act(action);
    if (!applied) return;
    data_.after(action, !unseen);
    if (!unseen && data_.is_sound()) checkers_.holds(options_.process, {commit.run, commit.round, applied->state});
  } else {
    const Result<DataPlane::Applied> applied = driver_.data().apply(action);
    if (!applied.ok()) return failed(applied.status());
    data_.after(action, !unseen);
    if (flip_anchor_) {
      checkers_.invariants.excuse(options_.process, commit.round);
      log_(options_.process, "FAULT a bit of the anchor is flipped");
      report_.undisturbed = false;
      data_.excuse();
    }
    flip_anchor_ = false;
    driver_.feed(Applied{commit.round, data_.flip_anchor(prng_.next())});
  }
  if (action.base == Base::kUnfit) report_.undisturbed = false;
}

void SimSite::act(const KeepAnchor& action) {
  wanted_.reset();
  driver_.act(action);
}

void SimSite::act(const ReceiveAnchor& action) {
  wanted_ = action;
  driver_.act(action);
}

// Like the store of records: a failed write leaves nothing behind, and from then on the record is kept in memory.
void SimSite::act(const Persist& action) {
  Store* store = options_.store;
  const bool under_way = !records_.empty();
  const bool in_memory = store == nullptr || options_.helper || record_in_memory_;
  if (in_memory && !under_way) return driver_.feed(Persisted{action.number, {}});
  if (records_.size() > 1) records_.pop_back();  // of the waiting ones only the newest is written
  records_.push_back(action);
  if (!under_way) write_record();
}

void SimSite::write_record() {
  later(options_.store->slow ? kSlowDiskTakes : options_.disk.takes, [this] {
    const auto tell = [this, number = records_.front().number, how = put(records_.front().record)] {
      records_.pop_front();
      if (!records_.empty()) write_record();
      driver_.feed(Persisted{number, how});
    };
    options_.disk.tells == Duration{} ? tell() : later(options_.disk.tells, tell);
  });
}

Status SimSite::put(const wire::Record& record) {
  Store& store = *options_.store;
  if (record_in_memory_) return {};  // it had waited behind the one that failed
  if (store.full) {
    store.record.lose();
    record_in_memory_ = true;
    return unavailable("the disk is full");
  }
  store.record.write(record);
  return {};
}

void SimSite::act(const TakeSnapshot& action) {
  driver_.act(action);
  data_.take_snapshot();
}

void SimSite::act(const Rebase& action) {
  ++report_.rebased;
  moved_ = true;
  const bool contributed = action.base == Base::kParameters || action.base == Base::kSnapshot;
  if (action.base == Base::kUnfit) report_.undisturbed = false;
  const std::uint64_t counted = data_.counted();
  const std::vector<std::uint64_t> from = data_.uncounted_from();
  data_.before(action);
  driver_.act(action);
  data_.after(action);
  if (!fate_unknown_ || !contributed) return;
  report_.unknown += data_.counted() - counted;
  for (std::uint32_t fragment = 0; fragment < from.size(); ++fragment) {
    checkers_.perhaps_counted(options_.process, fragment, from[fragment], data_.uncounted_from()[fragment]);
  }
}

void SimSite::act(const JoinDone& action) {
  if (options_.store != nullptr) options_.store->mark_ended(action.run, false);
  const Status status = change_parameters(data_.parameters(), ParameterChange::kToAnchor, data_.arena().anchor(), {});
  if (!status.ok()) return failed(status);
  data_.take_back();
  report_.joined = true;
  report_.run = action.run;
  report_.round = action.round;
  follow(action.period);
  save();
  if (options_.helper) return help(Duration{});
  if (!optimizer_.on() || action.round.value == 0) return train();
  optimizer_.fetch([this] { train(); });  // before its first step
}

void SimSite::act(const RoundDone& action) {
  moved_ = false;
  report_.round = action.round;
  ++report_.rounds_done;
  egress_.round_ended(driver_.data().round_traffic().bytes_sent);
  follow(action.period);
  save();
  options_.helper ? help(Duration{}) : round_over();
}

void SimSite::act(const RoundSkipped&) {
  ++report_.skipped;
  if (options_.mutation != Mutation::kCarryStale) driver_.data().forget_contributions();
  // As a node does for the other ranks of its host: they cannot repeat how it was moved.
  if (std::exchange(moved_, false)) {
    if (const Status status = driver_.data().publish_parameters(); !status.ok()) return failed(status);
  }
  options_.helper ? help(Duration{1'000'000}) : round_over();
}

void SimSite::act(const ServeOptimizer& action) {
  optimizer_.asked(action, egress_.half_spent() ? "half of what it may send is spent" : "");
  if (!training_) optimizer_.stands();
}

// Like a node: its record is removed, and the state file tells that it has ended.
void SimSite::act(const Left&) {
  if (options_.store != nullptr) {
    options_.store->record.lose();
    options_.store->arena.lose();
    options_.store->mark_ended(report_.run, true);
  }
  report_.over = true;
  if (rank_) rank_->site_over(false);
}

void SimSite::act(const Failed& action) {
  // A site that is behind trains alone, and comes to the next generation after a while.
  report_.goes_on = action.why.code() == StatusCode::kOutdated;
  report_.over = true;
  report_.failed = !report_.goes_on;
  report_.why = action.why;
  driver_.stop();
  driver_.data().cancel();
  log_(options_.process, "FAILED " + action.why.to_string());
  if (rank_) rank_->site_over(true);
}

void SimSite::act(const Note& action) {
  log_(options_.process, action.event + ": " + action.text);
  // A site bears it; but no coordinator here lies.
  if (message_code(action.text) == "round.disagreement") checkers_.fail(options_.process + ": " + action.text);
}

// ---- training --------------------------------------------------------------------------------------

void SimSite::later(Duration after, std::function<void()> what) {
  network_.at(network_.now() + after, [this, what = std::move(what)] {
    if (!dead_ && !report_.over) what();
  });
}

// Training has gone on meanwhile, and merges what became of it at its next step.
void SimSite::round_over() {
  if (!options_.overlap) return train();
  data_.end_round();
  flight_ = Flight::kOver;
}

// Nothing more is trained while the last round of a fragment is under way: it would want a round more.
bool SimSite::trained_enough() const {
  const std::uint64_t under_way = flight_ == Flight::kUnderWay ? 1 : 0;
  return report_.round.value + under_way + options_.fragments.count > options_.last_round.value;
}

bool SimSite::at_the_end() const {
  return flight_ == Flight::kNone && report_.round >= options_.last_round && data_.all_counted();
}

// Like the runtime's node and session: what was given to joiners counts too.
bool SimSite::budget_over() {
  if (!egress_.on()) return false;
  egress_.sent(driver_.data().traffic().bytes_sent + optimizer_.bytes_sent());
  if (const unsigned mark = egress_.news()) log_(options_.process, "budget: mark " + std::to_string(mark));
  return egress_.over();
}

void SimSite::train() {
  training_ = true;
  if (flight_ == Flight::kNone && !at_the_end() && (asked_to_leave_ || budget_over())) {
    report_.returns = asked_to_leave_;
    report_.spent = !asked_to_leave_;
    if (!data_.all_counted()) report_.undisturbed = false;  // it trains on alone with those, or loses them
    return driver_.feed(Depart{asked_to_leave_ ? "asked to leave" : "what it may send is spent", 0});
  }
  if (at_the_end()) {
    report_.goes_on = options_.generation < options_.last_generation;
    return driver_.feed(Depart{"trained to the end", report_.goes_on ? options_.generation + 1 : 0});
  }
  const double extra = prng_.uniform() * 2 * static_cast<double>(options_.train_mean.count());
  later(options_.train_min + Duration(static_cast<Duration::rep>(extra)), [this] { trained(); });
}

void SimSite::trained() {
  const std::uint64_t samples = trained_enough() || prng_.chance(options_.idle) ? 0 : 1 + prng_.below(64);
  if (samples > 0) {
    ++steps_;
    data_.train(prng_);
  }
  if (std::exchange(poison_, false)) data_.poison(prng_);
  data_.add_samples(samples);
  report_.trained = data_.trained();
  training_ = false;
  optimizer_.stepped();
  const auto answered = [this] {
    if (!dead_ && !report_.over) go_on();
  };
  if (!rank_ || !rank_->call(steps_, answered)) go_on();
}

void SimSite::go_on() {
  if (options_.overlap) return train_in_flight();
  trains_on() || budget_over() ? train() : ready(report_.trained);
}

// All sites that hold an anchor under one leader train as long. Where it has said nothing (a successor does not know),
// each goes on as before.
void SimSite::follow(std::uint32_t period) {
  period_ = period;
  trained_of_period_ = 0;
  if (told_.second != 0) checkers_.follows(options_.process, told_.first, period);
}

bool SimSite::trains_on() {
  if (!options_.leader_times || trained_enough() || ++trained_of_period_ >= period_) {
    trained_of_period_ = 0;
    return false;
  }
  return true;
}

void SimSite::train_in_flight() {
  if (flight_ == Flight::kOver) {
    data_.merge();
    flight_ = Flight::kNone;
    const bool later = prng_.chance(0.5);
    if (later || at_the_end() || budget_over()) return train();
  }
  if (flight_ == Flight::kNone) {
    flight_ = Flight::kUnderWay;
    ready(report_.trained);
  }
  if (!dead_ && !report_.over) train();
}

void SimSite::help(Duration after) {
  later(after, [this] { ready(0); });
}

void SimSite::ready(std::uint64_t samples) {
  data_.trigger(options_.overlap.has_value());
  DataPlane& plane = driver_.data();
  plane.start_round_clock();
  Trigger trigger{samples, steps_, plane.sample_delta(), {plane.up_kbit(), plane.down_kbit()}};
  wire::Measured& measured = trigger.measured;
  if (options_.draws_rates && !options_.helper) {
    for (std::uint32_t* rate : {&measured.up_kbit, &measured.down_kbit}) {
      *rate = prng_.chance(0.2) ? 0 : 1U << prng_.below(24);
    }
  }
  if (options_.leader_times && !options_.helper) {
    measured.step_us = prng_.chance(0.1) ? 0 : 500'000 + prng_.below(1'000'000);
    measured.round_us = prng_.chance(0.1) ? 0 : prng_.below(2'000'000);
  }
  driver_.feed(std::move(trigger));
}

// ---- the network -----------------------------------------------------------------------------------

void SimSite::on_message(LinkId link, TransportMessage message) {
  if (is_of_rank(link)) return rank_->on_message(link, message);
  const Result<wire::Message> decoded = wire::decode(message.head);
  if (!decoded.ok()) {
    return checkers_.fail(options_.process + " got what it cannot read: " + decoded.status().to_string());
  }
  if (const auto* chunk = std::get_if<wire::Chunk>(&*decoded); chunk != nullptr && message.payload) {
    tamper(message, *chunk);
  }
  driver_.on_message(link, std::move(message));
}

// Memory of the sender, or ours, is not sound: the hash is that of other bytes than are right.
void SimSite::tamper(TransportMessage& message, wire::Chunk chunk) {
  const bool mean = chunk.kind == wire::ChunkKind::kMean && flip_mean_;
  const bool part =
      chunk.kind == wire::ChunkKind::kAnchor && ++sound_parts_ > 200 && prng_.chance(options_.damaged_parts);
  if (!mean && !part) return;
  const std::span<std::byte> bytes = message.payload->bytes();
  // The top bit of a float's mantissa, if it is one.
  const std::size_t at = 4 * prng_.below(std::max<std::size_t>(1, bytes.size() / 4)) + 2;
  bytes[std::min(at, bytes.size() - 1)] ^= std::byte{0x40};
  chunk.payload_hash = hash64(bytes);
  message.head = wire::encode(chunk);
  if (part) sound_parts_ = 0;
  if (!mean) return;
  flip_mean_ = false;
  flipped_ = {chunk.round, chunk.attempt};
  report_.undisturbed = false;
  log_(options_.process, "FAULT a bit of the mean is flipped");
}

}  // namespace collab::sim
