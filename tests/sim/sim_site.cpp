#include "tests/sim/sim_site.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/base/digest.h"
#include "core/wire/encoding.h"

namespace collab::sim {

using namespace protocol;

std::vector<Digest> tiles_of(std::span<const float> values) {
  std::vector<Digest> tiles;
  for (; !values.empty(); values = values.subspan(std::min<std::size_t>(values.size(), kTileElements))) {
    tiles.push_back(hash128(as_bytes_of(values.first(std::min<std::size_t>(values.size(), kTileElements)))));
  }
  return tiles;
}

Digest digest_of(const std::vector<float>& values) {
  DigestChain chain;
  for (const Digest& tile : tiles_of(values)) chain.add(tile);
  return digest_of_state(chain.finish(), {});
}

SimSite::SimSite(SimSiteOptions options, Network& network, Checkers& checkers, Log log)
    : options_(std::move(options)),
      network_(network),
      checkers_(checkers),
      log_(std::move(log)),
      prng_(options_.seed),
      site_(options_.config),
      saved_(options_.saved) {
  node_ = network_.add(this, options_.behind_nat ? "" : options_.address);
  theta_.resize(options_.elements);
  for (float& value : theta_) value = static_cast<float>(prng_.uniform() - 0.5);
  if (saved_) anchor_ = theta_ = saved_->anchor;
  moves_.resize(options_.elements);
}

std::optional<Saved> SimSite::saved() const {
  std::optional<Saved> saved = saved_;
  if (saved) saved->voters = site_.voters();
  if (saved) saved->branch = site_.branch();
  if (saved) saved->term = site_.term();
  return saved;
}

void SimSite::start() { post(Begin{make_join()}); }

wire::Join SimSite::make_join() const {
  wire::Join join;
  join.swarm = "sim";
  join.site = options_.name;
  join.expected_sites = options_.expected_sites;
  join.address = options_.address;
  join.helper = options_.helper;
  join.generation = options_.generation;
  join.resumed = options_.resumed;
  join.init_from = options_.init_from;
  join.elements = options_.elements;
  join.settings = {{"codec", "fp32"}};
  const std::string model = "weight" + std::to_string(options_.generation);
  if (!options_.helper) join.model = {{model, "float32", {options_.elements}, TensorKind::kAveraged, {}}};
  if (saved_) {
    join.offer = {saved_->run, saved_->round, digest_of(saved_->anchor), saved_->branch};
    join.report.voters = saved_->voters;
    join.report.granted = saved_->term;
  } else {
    join.offer = {RunId{0}, RoundId{0}, digest_of(theta_)};
  }
  return join;
}

// ---- driving the machine ---------------------------------------------------------------------------

void SimSite::post(SiteEvent event) {
  inbox_.push_back(std::move(event));
  if (stepping_) return;
  stepping_ = true;
  while (!inbox_.empty() && !dead_) {
    const SiteEvent next = std::move(inbox_.front());
    inbox_.pop_front();
    const std::vector<SiteAction> actions = site_.step(network_.now(), next);
    checkers_.invariants.site_step(options_.process, next, actions);
    for (const SiteAction& action : actions) act(action);
  }
  stepping_ = false;
  if (!dead_) network_.wake(node_, site_.next_deadline());
}

void SimSite::later(Duration after, std::function<void()> what) {
  network_.at(network_.now() + after, [this, what = std::move(what)] {
    if (!dead_ && !report_.over) what();
  });
}

void SimSite::send(LinkId link, const wire::Message& message) {
  network_.send(node_, link, Frame{Lane::kControl, wire::encode(message), nullptr});
}

void SimSite::act(const SiteAction& action) {
  std::visit(
      [this](const auto& a) {
        using T = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<T, Send>) {
          send(a.link, a.message);
        } else if constexpr (std::is_same_v<T, Hangup>) {
          network_.close(node_, a.link);
        } else if constexpr (std::is_same_v<T, DialCoordinator>) {
          network_.dial(node_, options_.coordinators.at(a.candidate), kCoordinatorDial);
        } else if constexpr (std::is_same_v<T, DialPeer>) {
          network_.dial(node_, a.address, a.site.value);
        } else if constexpr (std::is_same_v<T, StartExchange>) {
          start_exchange(a);
        } else if constexpr (std::is_same_v<T, CancelExchange>) {
          attempt_.reset();
        } else if constexpr (std::is_same_v<T, ApplyCommit>) {
          later(Duration{5'000}, [this, a] { apply(a); });
        } else if constexpr (std::is_same_v<T, KeepAnchor>) {
          keep_anchor(a);
        } else if constexpr (std::is_same_v<T, Rebase>) {
          ++report_.rebased;
          // What was contributed before a branch began counts, as far as anybody there knows; and what was contributed
          // in a branch that is come back to.
          if ((entering_branch_ || fork_) && (a.base == Base::kParameters || a.base == Base::kSnapshot)) {
            report_.undisturbed = false;
          }
          move_onto_anchor(a.base, previous_);
        } else if constexpr (std::is_same_v<T, KeepFork>) {
          fork_ = Fork{anchor_, uncounted_from_};
          entering_branch_ = false;
          rebase_owed_ = training_;
        } else if constexpr (std::is_same_v<T, TakeSnapshot>) {
          snapshot_ = Snapshot{theta_, moves_, report_.trained};
        } else if constexpr (std::is_same_v<T, RoundSkipped>) {
          ++report_.skipped;
          if (options_.mutation != Mutation::kCarryStale) carried_.clear();
          options_.helper ? help(Duration{1'000'000}) : train();
        } else if constexpr (std::is_same_v<T, ReceiveAnchor>) {
          receive_anchor(a);
        } else if constexpr (std::is_same_v<T, AddAnchorSource>) {
          if (incoming_) incoming_->links[a.site] = a.over;
          if (incoming_) fetch(SourceAdded{a.site}, nullptr);
        } else if constexpr (std::is_same_v<T, DropAnchorSource>) {
          if (incoming_) fetch(SourceLost{a.site}, nullptr);
        } else if constexpr (std::is_same_v<T, StopReceiving>) {
          incoming_.reset();
        } else if constexpr (std::is_same_v<T, SendAnchor>) {
          send_anchor(a);
        } else if constexpr (std::is_same_v<T, JoinDone>) {
          theta_ = anchor_;
          report_.joined = true;
          report_.run = a.run;
          report_.round = a.round;
          options_.helper ? help(Duration{}) : train();
        } else if constexpr (std::is_same_v<T, RoundDone>) {
          round_done(a);
        } else if constexpr (std::is_same_v<T, Left>) {
          report_.over = true;
        } else if constexpr (std::is_same_v<T, Failed>) {
          // Who is behind trains alone, and comes to the next generation by and by.
          report_.goes_on = a.why.code() == StatusCode::kOutdated;
          report_.over = true;
          report_.failed = !report_.goes_on;
          report_.why = a.why;
          log_(options_.process, "FAILED " + a.why.to_string());
        } else if constexpr (std::is_same_v<T, Note>) {
          log_(options_.process, a.event + ": " + a.text);
        }
      },
      action);
}

void SimSite::train() {
  training_ = true;
  rebase_owed_ = false;
  const bool all_counted = report_.uncounted_from == report_.trained;
  if (report_.round >= options_.last_round && all_counted) {
    report_.goes_on = options_.generation < options_.last_generation;
    return post(Depart{"trained to the end", report_.goes_on ? options_.generation + 1 : 0});
  }
  const double extra = prng_.uniform() * 2 * static_cast<double>(options_.train_mean.count());
  later(options_.train_min + Duration(static_cast<Duration::rep>(extra)), [this] { trained(); });
}

void SimSite::trained() {
  const bool enough = report_.round >= options_.last_round;  // it only waits to be counted
  const std::uint64_t samples = enough || prng_.chance(options_.idle) ? 0 : 1 + prng_.below(64);
  if (samples > 0) {
    ++steps_;
    for (std::size_t i = 0; i < theta_.size(); ++i) {
      const auto move = static_cast<float>(0.02 * (prng_.uniform() - 0.5));
      theta_[i] += move;
      moves_[i] += static_cast<double>(move);
    }
  }
  if (std::exchange(poison_, false)) theta_[prng_.below(theta_.size())] = std::numeric_limits<float>::quiet_NaN();
  report_.trained += samples;
  training_ = false;
  sent_.clear();
  up_.begin_round();
  down_.begin_round();
  Trigger trigger{report_.trained, steps_, {}, up_.kbit_per_second(), down_.kbit_per_second()};
  if (options_.draws_rates) {
    for (std::uint32_t* rate : {&trigger.up_kbit, &trigger.down_kbit}) {
      *rate = prng_.chance(0.2) ? 0 : 1U << prng_.below(24);
    }
  }
  post(std::move(trigger));
}

void SimSite::round_done(const RoundDone& done) {
  report_.round = done.round;
  ++report_.rounds_done;
  options_.helper ? help(Duration{}) : train();
}

void SimSite::help(Duration after) {
  later(after, [this] {
    sent_.clear();
    up_.begin_round();
    down_.begin_round();
    post(Trigger{0, 0, {}, up_.kbit_per_second(), down_.kbit_per_second()});
  });
}

// ---- the network -----------------------------------------------------------------------------------

void SimSite::on_connected(LinkId link, std::uint64_t token) {
  if (token == kCoordinatorDial) return post(CoordinatorConnected{link});
  post(PeerConnected{SiteId{static_cast<std::uint32_t>(token)}, link});
}

void SimSite::on_dial_failed(std::uint64_t token, const Status& why) {
  if (token == kCoordinatorDial) return post(DialFailed{std::nullopt, why});
  post(DialFailed{SiteId{static_cast<std::uint32_t>(token)}, why});
}

void SimSite::on_frame(LinkId link, const Frame& frame) {
  const Result<wire::Message> message = wire::decode(frame.head);
  if (!message.ok())
    return checkers_.fail(options_.process + " got what it cannot read: " + message.status().to_string());
  if (const auto* chunk = std::get_if<wire::Chunk>(&*message)) return on_chunk(link, *chunk, frame.payload);
  if (const auto* adopt = std::get_if<wire::Adopt>(&*message)) {
    if (adopt->counted == wire::Counted::kUnknown) report_.undisturbed = false;
    entering_branch_ = !adopt->branch.empty() && !fork_;
  }
  if (const auto* form = std::get_if<wire::Form>(&*message)) report_.form = *form;
  post(Received{link, *message});
}

void SimSite::on_sent(LinkId, std::uint64_t token) {
  const auto sent = sent_.extract(token);
  if (!sent) return;  // before the round under way
  up_.add(network_.now(), sent.mapped().bytes);
  if (sent_.empty()) up_.set_busy(network_.now(), false);
  if (attempt_ && sent.mapped().attempt == newest_) step_exchange(sent.mapped().chunk, self_);
}

void SimSite::on_closed(LinkId link, const Status& why) { post(Closed{link, why}); }

void SimSite::on_timer() { post(Tick{}); }

}  // namespace collab::sim
