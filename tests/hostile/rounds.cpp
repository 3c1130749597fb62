// Attacks by a site that takes part: a member that holds the anchor and is ready, and then does not do its part.
#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/wire/limits.h"
#include "tests/hostile/attack.h"

namespace collab::hostile {
namespace {

constexpr Duration kListen = std::chrono::milliseconds(20);
constexpr Duration kAnswered = std::chrono::milliseconds(200);
constexpr Duration kLonger = std::chrono::seconds(3);  // under one name, at most
// In an attack of so long now and then under one name: longer than anything waits for it.
constexpr Duration kLongAttack = std::chrono::seconds(100), kLongest = std::chrono::seconds(70);

// Says what a member says, and means none of it.
class Partaker {
 public:
  explicit Partaker(Context& context) : context_(context), member_(context) {}
  Partaker(const Partaker&) = delete;
  Partaker& operator=(const Partaker&) = delete;
  virtual ~Partaker() = default;

  void run() {
    for (std::uint64_t number = 0; !context_.done(); ++number) {
      if (!come(context_.swarm.model.empty() || number % 4 == 3)) {
        wait_ms(20);
        continue;
      }
      const bool longest = context_.length() >= kLongAttack && context_.prng.chance(0.1);
      const TimePoint until = context_.now() + (longest ? kLongest : Duration(context_.prng.below(kLonger.count())));
      bool stays = true;
      while (stays && member_.beat() && !context_.done() && context_.now() < until) {
        const std::optional<wire::Message> told = context_.peer->next(member_.link(), kListen);
        if (told) stays = answer(*told);
      }
      if (stays && context_.prng.chance(0.5)) member_.leave();
      context_.peer->close(member_.link());
    }
  }

 protected:
  bool come(bool helper) {
    wire::Join join = proper_join(context_.swarm, context_.draw_name(),
                                  context_.prng.chance(0.5) ? context_.address : std::string(), helper, context_.prng);
    acceptor_ = join.report.record.acceptor;
    moved_ = 0;
    ready_ = {};
    return member_.join(join);
  }

  // False: it has ended the membership.
  bool answer(const wire::Message& told) {
    if (const auto* install = std::get_if<wire::InstallAnchor>(&told)) {
      send(wire::AnchorInstalled{install->run, install->round, install->digest, acceptor_});
      ready_.state = install->digest;
      say_ready(install->round);
    } else if (const auto* skipped = std::get_if<wire::RoundSkipped>(&told)) {
      say_ready(RoundId(skipped->round.value - std::min<std::uint64_t>(1, skipped->round.value)));
    } else if (const auto* commit = std::get_if<wire::Commit>(&told)) {
      say_ready(commit->round);  // with the state before: it is given the anchor once more
    } else if (const auto* start = std::get_if<wire::StartAttempt>(&told)) {
      context_.counts.arrives();
      return take_part(*start);
    }
    return true;
  }

  void say_ready(RoundId anchor) {
    Prng& prng = context_.prng;
    const double weights[] = {1, 1e6, wire::kMaxWeight, 5e-324, 0, 0.1};
    ready_.round = RoundId(anchor.value + 1);
    ready_.weight = weights[prng.below(std::size(weights))];
    ready_.samples = prng.next();
    ready_.steps = prng.next();
    ready_.since = AttemptId(prng.chance(0.5) ? static_cast<std::uint32_t>(prng.next()) : 0);
    ready_.measured.up_kbit = static_cast<std::uint32_t>(prng.below(wire::kMaxRateKbit + std::uint64_t{1}));
    ready_.measured.down_kbit = static_cast<std::uint32_t>(prng.below(wire::kMaxRateKbit + std::uint64_t{1}));
    ready_.measured.step_us = prng.below(wire::kMaxMeasuredUs + 1);
    ready_.measured.round_us = prng.below(wire::kMaxMeasuredUs + 1);
    ready_.period = static_cast<std::uint32_t>(prng.below(wire::kMaxPeriod + std::uint64_t{1}));
    ready_.sampled_delta.assign(prng.below(wire::kMaxSampledDelta + 1), static_cast<std::uint32_t>(prng.next()));
    send(ready_);
  }

  [[nodiscard]] Context& context() { return context_; }
  [[nodiscard]] Member& member() { return member_; }

  virtual bool take_part(const wire::StartAttempt& start) {
    Prng& prng = context_.prng;
    switch (prng.below(10)) {
      case 0: return true;  // nothing, for as long as it stays
      case 1: return done(start, start.slices.size());
      case 2: return done(start, prng.below(wire::kMaxSlices + 1));
      case 3: return send(wire::Decline{start.round, start.attempt, "it does not like it"});
      case 4: return accuse(start);
      case 5: return say_that_it_moves();
      case 6:  // with other samples than the attempt counts on
        for (int times = 0; times < 8; ++times) say_ready(RoundId(start.round.value - 1));
        return true;
      case 7: send(wire::Leave{"for the next model", context_.swarm.generation + 1}); return false;
      case 8: return done(start, start.slices.size()) && accuse(start);
      default: return false;  // and comes again, under another name
    }
  }

  bool done(const wire::StartAttempt& start, std::size_t slices) {
    std::vector<Digest> digests(slices);
    for (Digest& digest : digests) digest = {context_.prng.next(), context_.prng.next()};
    return send(wire::Done{start.term, start.round, start.attempt, std::move(digests)});
  }

  // A site that takes part, itself, or one that does not exist.
  bool accuse(const wire::StartAttempt& start) {
    const std::vector<wire::Participant>& in = start.participants;
    SiteId peer = in[context_.prng.below(in.size())].site;
    if (context_.prng.chance(0.2)) peer = member_.site();
    if (context_.prng.chance(0.2)) peer = SiteId(static_cast<std::uint32_t>(context_.prng.next()));
    return send(wire::PeerUnreachable{start.round, start.attempt, peer, "it looked at me"});
  }

  // So that the exchange does not seem to stand still.
  bool say_that_it_moves() {
    const TimePoint until = context_.now() + kLonger;
    while (context_.now() < until && !context_.done()) {
      if (!move()) return false;
      wait_ms(100);
    }
    return true;
  }

  bool move() {
    moved_ += 1 + context_.prng.below(1'000'000);
    return send(wire::Heartbeat{moved_, false, moved_, {.moved = moved_, .means = false, .lacks = {}}});
  }

 private:
  bool send(const wire::Message& message) { return context_.peer->send(member_.link(), message); }

  Context& context_;
  Member member_;
  AcceptorId acceptor_{};
  wire::Ready ready_{};
  std::uint64_t moved_ = 0;
};

// Does nothing in an exchange, and says when it is told to that it moves. It stays, and comes back where it is let go.
class Mover : public Partaker {
 public:
  using Partaker::Partaker;

  void turn(bool moves) {
    const bool stays = in_ && member().beat() && !(moves && !move());
    if (!stays) in_ = come(context().swarm.model.empty());
    if (!in_) return;
    while (const std::optional<wire::Message> told = context().peer->next(member().link(), Duration{}))
      in_ = answer(*told) && in_;
  }
  void end() { member().leave(); }

 private:
  bool take_part(const wire::StartAttempt&) override { return true; }
  bool in_ = false;
};

// Joins and stays. Of so many links one, drawn at random, makes room for the next.
class Crowd {
 public:
  Crowd(Context& context, std::size_t most) : context_(context), most_(most) {}

  void come(const wire::Join& join) {
    const std::optional<LinkId> link = context_.peer->dial(context_.target);
    if (!link) return wait_ms(1);
    context_.peer->send(*link, join);
    links_.push_back(*link);
    if (links_.size() <= most_) return;
    std::swap(links_[context_.prng.below(links_.size())], links_.back());
    if (context_.peer->next(links_.back(), kAnswered)) context_.counts.arrives();
    context_.peer->close(links_.back());
    links_.pop_back();
  }
  // If there never were so many, one that is answered shows that they have come.
  void end() {
    for (const LinkId link : links_) {
      if (!context_.peer->next(link, kAnswered)) continue;
      return context_.counts.arrives();
    }
  }

 private:
  Context& context_;
  const std::size_t most_;
  std::vector<LinkId> links_;
};

std::uint32_t draw_generation(Context& context) {
  return static_cast<std::uint32_t>(1 + context.prng.below(wire::kMaxGeneration));
}

// A join of nearly the largest frame there may be: names, shapes, settings and memberships that no site has.
wire::Join largest_join(Context& context) {
  wire::Join join = proper_join(context.swarm, context.draw_name(), "", false, context.prng);
  const std::string text(wire::kMaxNameBytes, 'x');
  join.settings.assign(wire::kMaxSettings, {text, text});
  constexpr std::size_t kEntryBytes = 2 + wire::kMaxNameBytes + 2 + 7 + 4 + wire::kMaxDims * 8 + 1 + 16;
  const std::vector<std::uint64_t> shape(wire::kMaxDims, 1);
  const bool of_records = context.prng.chance(0.5);
  const std::size_t room = wire::kMaxBodyBytes - (std::size_t{4} << 20) * (of_records ? 1 : 0) - (std::size_t{1} << 18);
  join.model.assign(std::min(room / kEntryBytes, wire::kMaxModelEntries),
                    {.name = text, .dtype = "float32", .shape = shape, .kind = TensorKind::kAveraged, .digest = {}});
  if (!of_records) return join;
  wire::Record& record = join.report.record;
  record.anchor = {context.swarm.run, context.swarm.round, {}};
  for (std::uint32_t i = 0; i < wire::kMaxSites; ++i)
    record.voters.push_back({SiteId(i), text, AcceptorId(i + 1), false});
  wire::Past past{context.swarm.run, context.swarm.round, AttemptId(1), {}, {}};
  past.contributors.assign(wire::kMaxSites, text);
  record.recent.assign(2, past);
  return join;
}

}  // namespace

void attack_take_part(Context& context) {
  learn_model(*context.peer, context.swarm, context.prng);
  if (context.swarm.model.empty()) context.counts.answered("the model was not learnt: helpers alone");
  Partaker(context).run();
}

// Each says so in turn. So there is always one that was heard, and two that were heard within the grace.
void attack_two_that_move(Context& context) {
  learn_model(*context.peer, context.swarm, context.prng);
  if (context.swarm.model.empty()) context.counts.answered("the model was not learnt: helpers alone");
  std::deque<Mover> movers;
  for (int i = 0; i < 2; ++i) movers.emplace_back(context);
  for (std::size_t turn = 0; !context.done(); ++turn) {
    for (std::size_t i = 0; i < movers.size(); ++i) movers[i].turn(turn % movers.size() == i);
    wait_ms(20);
  }
  for (Mover& mover : movers) mover.end();
}

// Some of this generation, which the coordinator compares, some of others, which wait.
void attack_large_joins(Context& context) {
  constexpr std::size_t kDrawn = 8;
  std::vector<wire::Join> joins;
  for (std::size_t i = 0; i < kDrawn; ++i) joins.push_back(largest_join(context));
  Crowd crowd(context, 64);
  while (!context.done()) {
    wire::Join& join = joins[context.prng.below(kDrawn)];
    join.site = context.draw_name();
    join.generation = context.prng.chance(0.5) ? context.swarm.generation : draw_generation(context);
    crowd.come(join);
  }
  crowd.end();
}

void attack_generations(Context& context) {
  Crowd crowd(context, 256);
  while (!context.done()) {
    wire::Join join = proper_join(context.swarm, context.draw_name(), "", false, context.prng);
    join.model = {{.name = "w", .dtype = "float32", .shape = {1}, .kind = TensorKind::kAveraged, .digest = {}}};
    join.generation = draw_generation(context);
    crowd.come(join);
  }
  crowd.end();
}

void attack_unanswered(Context& context) {
  learn_model(*context.peer, context.swarm, context.prng);
  const Unanswered nobody;
  Crowd crowd(context, 16);
  while (!context.done()) {
    const bool helper = context.swarm.model.empty() || context.prng.chance(0.5);
    crowd.come(proper_join(context.swarm, context.draw_name(), nobody.address(), helper, context.prng));
  }
}

void attack_many_names(Context& context) {
  constexpr std::size_t kMost = 700;  // this process too may have so many files
  constexpr Duration kBeat = std::chrono::seconds(1);
  std::vector<LinkId> held;
  TimePoint beat_at = context.now();
  while (!context.done()) {
    const std::optional<LinkId> link = held.size() < kMost ? context.peer->dial(context.target) : std::nullopt;
    if (!link) {
      wait_ms(10);
    } else if (context.prng.chance(0.5)) {
      context.peer->send(*link, proper_join(context.swarm, context.draw_name(), "", true, context.prng));
      held.push_back(*link);
    } else {
      wire::Enter enter;
      enter.swarm = context.swarm.name;
      enter.world = context.prng.next();
      enter.sites = {"mallory"};
      enter.site_of = {0, 0};
      enter.acceptor = AcceptorId(1 + context.prng.below(1U << 30U));
      context.peer->send(*link, enter);
      held.push_back(*link);
    }
    if (context.now() < beat_at) continue;
    beat_at = context.now() + kBeat;
    std::erase_if(held, [&](LinkId each) { return !context.peer->is_open(each); });
    for (const LinkId each : held) {
      if (context.peer->next(each, {})) context.counts.arrives();
      context.peer->send(each, wire::Heartbeat{1, false});
    }
  }
  for (const LinkId each : held) context.peer->close(each);
}

}  // namespace collab::hostile
