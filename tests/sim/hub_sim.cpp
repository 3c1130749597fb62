// The collective hub of a world's ranks from seeds: sites that die, hubs that die and come back empty, links that are
// cut, go silent one way or cannot be dialed, and what must hold whatever happens.
//
//   collab_hub_sim [--count N] [--seed FIRST]     prints the seed of the first run that breaks a rule
//
// After every message: the rules of hub_judge.h; and a rank that has ended is given nothing. At the end, all living
// ranks have an answer to everything they asked for. Threads: one.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/sim/hub_judge.h"
#include "tests/unit/protocol/hub_world.h"

namespace collab::protocol {
namespace {

using sim::HubJudge;
using sim::HubScript;
using testing::HubTestWorld;
using testing::kGrace;

constexpr Duration kFaultsEnd = std::chrono::seconds(25);
constexpr Duration kEnd = std::chrono::seconds(220);

class Run {
 public:
  explicit Run(std::uint64_t seed)
      : prng_(seed),
        sites_(draw_sites()),
        hubs_(1 + prng_.below(3)),
        world_(seed * 7 + 1, sites_, hubs_),
        judge_(script_, sites_, false, [this](const std::string& what) { broke(what); }) {
    world_.on_told = [this](std::uint32_t rank, const wire::Message& message) {
      watch(rank, message);
      judge_.told(rank, message);
    };
    world_.on_done = [this](std::uint32_t rank, const auto& actions) { done(rank, actions); };
    draw_groups();
    calm_ = prng_.chance(0.2);
    const std::uint64_t faults = prng_.below(9);
    for (std::uint64_t i = 0; i < faults; ++i) {
      faults_.emplace_back(TimePoint(Duration(prng_.below(static_cast<std::uint64_t>(kFaultsEnd.count())))));
    }
    std::ranges::sort(faults_);
  }

  [[nodiscard]] std::string why() {
    bool healed = false;
    while (world_.now() < TimePoint(kEnd) && wrong_.empty()) {
      if (!healed && world_.now() >= TimePoint(kFaultsEnd)) {
        healed = true;
        heal();
      }
      if (healed && finished()) break;
      while (!faults_.empty() && world_.now() >= faults_.front()) {
        faults_.erase(faults_.begin());
        strike();
      }
      end_faults();
      ask();
      world_.step();
      if (std::exchange(crashed_, false)) crash_hub();
    }
    if (wrong_.empty() && !finished()) describe_unfinished();
    return wrong_;
  }
  [[nodiscard]] const HubJudge& judge() const { return judge_; }

 private:
  struct Ask {
    std::uint64_t asked = 0;
    std::uint64_t answered = 0;
    TimePoint ready{};
    bool closed = false;
  };

  [[nodiscard]] std::vector<std::string> draw_sites() {
    std::vector<std::string> sites;
    const std::uint64_t count = 2 + prng_.below(4);
    for (std::uint64_t i = 0; i < count; ++i) {
      for (std::uint64_t ranks = 1 + prng_.below(2); ranks > 0; --ranks)
        sites.emplace_back(1, static_cast<char>('a' + i));
    }
    return sites;
  }

  void draw_groups() {
    std::vector<RankId> all;
    for (std::uint32_t i = 0; i < world_.size(); ++i) all.emplace_back(i);
    script_.groups.push_back(all);
    for (std::uint64_t more = prng_.below(3); more > 0; --more) {
      std::vector<RankId> some;
      for (const RankId rank : all) {
        if (prng_.chance(0.6)) some.push_back(rank);
      }
      if (some.size() > 1) script_.groups.push_back(some);
    }
    // Some ranks come to their groups later.
    for (std::size_t g = 0; g < script_.groups.size(); ++g) {
      for (const RankId rank : script_.groups[g]) {
        asks_[{g, rank.value}].ready = TimePoint(Duration(prng_.chance(0.2) ? prng_.below(9'000'000) : 0));
        opened_[{g, rank.value}] = false;
      }
    }
    steps_ = 3 + prng_.below(8);
    pace_ = prng_.below(3) * 1'500'000;
  }

  // The same at all ranks; a rank errs now and then.
  [[nodiscard]] HubRequest request(std::size_t group, std::uint32_t rank, std::uint64_t step) {
    HubRequest r = script_.request(group, step);
    if (prng_.chance(0.005)) r.operation = "another call";
    r.payload = world_.bytes(HubScript::part_of(group, rank, step));
    return r;
  }

  [[nodiscard]] bool is_over(std::uint32_t rank) {
    return world_.rank(rank).dead || !world_.rank(rank).broken.ok() || left_.contains(rank);
  }

  void ask() {
    for (auto& [key, each] : asks_) {
      const auto [group, rank] = key;
      if (is_over(rank) || world_.rank(rank).paused || each.closed || world_.now() < each.ready) continue;
      if (!std::exchange(opened_[key], true)) {
        world_.at_client(rank, OpenGroup{HubScript::id_of(group), script_.groups[group], {}, 0});
      }
      if (each.asked == steps_ || each.answered < each.asked) continue;
      const std::uint64_t step = ++each.asked;
      each.ready = world_.now() + Duration(prng_.below(pace_ + 200'000)) +
                   (prng_.chance(0.03) ? Duration(prng_.below(12'000'000)) : Duration(0));
      world_.at_client(rank, request(group, rank, step));
      if (!calm_ && prng_.chance(0.003)) {
        asks_[key].closed = true;
        world_.at_client(rank, CloseGroup{HubScript::id_of(group)});
      }
    }
  }

  [[nodiscard]] bool finished() {
    return std::ranges::all_of(asks_, [this](const auto& entry) {
      const auto& [key, each] = entry;
      return is_over(key.second) || each.closed || each.answered == steps_;
    });
  }

  void describe_unfinished() {
    for (const auto& [key, each] : asks_) {
      if (is_over(key.second) || each.closed || each.answered == steps_) continue;
      const auto& notes = world_.rank(key.second).notes;
      wrong_ = "rank " + std::to_string(key.second) + " waits for step " + std::to_string(each.asked) + " of group " +
               std::to_string(key.first) + " for ever; " + (notes.empty() ? "" : notes.back());
      return;
    }
  }

  // ---- faults
  void strike() {
    const auto rank = static_cast<std::uint32_t>(prng_.below(world_.size()));
    const std::size_t hub = prng_.below(hubs_);
    const TimePoint until = world_.now() + Duration(prng_.below(static_cast<std::uint64_t>(4 * kGrace.count())));
    HubTestWorld::Rank& each = world_.rank(rank);
    const std::uint64_t kind = calm_ ? 5 + prng_.below(3) : prng_.below(14);
    switch (kind) {
      case 0: each.mute = true; return ends_.emplace_back(until, [&each] { each.mute = false; }), void();
      case 1: each.deaf = true; return ends_.emplace_back(until, [&each] { each.deaf = false; }), void();
      case 2:
        world_.pause(rank, true);
        return ends_.emplace_back(until, [this, rank] { world_.pause(rank, false); }), void();
      case 3: return world_.kill_rank(rank);
      case 4:
        for (std::uint32_t other = 0; other < world_.size(); ++other) {
          if (sites_[other] == sites_[rank]) world_.kill_rank(other);
        }
        return;
      case 5:
      case 6: return world_.cut_link_of(rank);
      case 7:
      case 8:
      case 9:  // the only hub is a register alone: what it forgets is forgotten
        if (hubs_ == 1 || (calm_ && hub + 1 == hubs_)) return;
        world_.kill_hub(hub);
        if (prng_.chance(0.5) && !calm_) ends_.emplace_back(until, [this, hub] { world_.revive_hub(hub); });
        return;
      case 10: armed_ = 1 + prng_.below(4); return;
      case 11: return part(until);
      case 12:
        if (prng_.chance(0.7)) return;
        left_.insert(rank);
        return world_.at_client(rank, HubLeave{"the end"});
      default:
        world_.block(rank, hub);
        return ends_.emplace_back(until, [this, rank, hub] { world_.unblock(rank, hub); }), void();
    }
  }

  // The hub crashes just when a rank is told something that matters, and perhaps the rank with what it knows.
  void crash_hub() {
    for (std::size_t hub = 0; hub + 1 < hubs_; ++hub) {
      if (world_.hub(hub) != nullptr) {
        world_.kill_hub(hub);
        break;
      }
    }
    if (hubs_ > 1 && prng_.chance(0.5)) world_.kill_rank(fell_at_);
  }
  void watch(std::uint32_t rank, const wire::Message& message) {
    const bool kinds[] = {
        false, std::holds_alternative<wire::Stands>(message), std::holds_alternative<wire::StepResult>(message),
        std::holds_alternative<wire::ChosenEpoch>(message), std::holds_alternative<wire::AcceptEpoch>(message)};
    if (!kinds[armed_]) return;
    armed_ = 0;
    crashed_ = true;
    fell_at_ = rank;
  }

  // A cut: some sites reach some hubs, the others the others.
  void part(TimePoint until) {
    std::set<std::string> some;
    for (const std::string& site : sites_) {
      if (prng_.chance(0.25)) some.insert(site);
    }
    for (std::uint32_t other = 0; other < world_.size(); ++other) {
      for (std::size_t hub = 0; hub < hubs_; ++hub) {
        if ((hub % 2 == 0) == some.contains(sites_[other])) continue;
        world_.block(other, hub);
        ends_.emplace_back(until, [this, other, hub] { world_.unblock(other, hub); });
      }
    }
  }

  void end_faults() {
    for (auto entry = ends_.begin(); entry != ends_.end();) {
      if (world_.now() < entry->first) {
        ++entry;
        continue;
      }
      entry->second();
      entry = ends_.erase(entry);
    }
  }

  void heal() {
    for (auto& [when, end] : ends_) end();
    ends_.clear();
    world_.heal();
    for (std::size_t hub = 0; hub < hubs_; ++hub) {
      if (world_.hub(hub) != nullptr) return;
    }
    world_.revive_hub(prng_.below(hubs_));
  }

  // ---- what must hold
  void broke(const std::string& what) {
    if (wrong_.empty())
      wrong_ = "at " + std::to_string(world_.now().time_since_epoch().count() / 1000) + " ms: " + what;
  }

  void done(std::uint32_t rank, const std::vector<HubClientAction>& actions) {
    const bool ends =
        std::ranges::any_of(actions, [](const auto& action) { return std::holds_alternative<HubBroken>(action); });
    for (const HubClientAction& action : actions) {
      if (const auto* exchanged = std::get_if<HubExchanged>(&action)) answered(rank, *exchanged, ends);
      if (const auto* end = std::get_if<HubBroken>(&action); end != nullptr && calm_) {
        broke("rank " + std::to_string(rank) + " has ended without a reason: " + end->why.message());
      }
    }
  }

  void answered(std::uint32_t rank, const HubExchanged& exchanged, bool ends) {
    const std::uint64_t step = HubScript::step_of(exchanged.id);
    Ask& ask = asks_.at({HubScript::group_of(exchanged.id), rank});
    if (ask.answered + 1 != step) return broke("rank " + std::to_string(rank) + " is answered twice, or out of turn");
    ask.answered = step;
    const StatusCode code = exchanged.status.code();
    if (calm_ && code == StatusCode::kTimeout) {
      return broke("the hub has not ended a step: " + exchanged.status.message());
    }
    if (code == StatusCode::kTimeout || code == StatusCode::kCancelled ||
        (!exchanged.status.ok() && (ends || is_over(rank)))) {
      ask.answered = ask.asked = steps_;  // it has left this group
      return;
    }
    judge_.given(rank, exchanged);
  }

  Prng prng_;
  std::vector<std::string> sites_;
  std::size_t hubs_;
  HubTestWorld world_;
  HubScript script_;
  HubJudge judge_;
  bool calm_ = false;  // links fall and hubs die, but no rank dies: none may end
  std::map<std::pair<std::size_t, std::uint32_t>, Ask> asks_;
  std::map<std::pair<std::size_t, std::uint32_t>, bool> opened_;
  std::uint64_t steps_ = 0;
  std::uint64_t pace_ = 0;
  std::set<std::uint32_t> left_;
  std::vector<TimePoint> faults_;
  std::vector<std::pair<TimePoint, std::function<void()>>> ends_;
  std::string wrong_;
  std::uint64_t armed_ = 0;  // for a message of this kind
  bool crashed_ = false;
  std::uint32_t fell_at_ = 0;
};

int run(std::uint64_t first, std::uint64_t count) {
  std::uint64_t forked = 0;
  std::uint64_t given = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Run each(seed);
    const std::string why = each.why();
    if (!why.empty()) {
      std::printf("seed %llu: %s\nagain: collab_hub_sim --seed %llu --count 1\n", static_cast<unsigned long long>(seed),
                  why.c_str(), static_cast<unsigned long long>(seed));
      return 1;
    }
    forked += each.judge().parted() ? 1 : 0;
    given += each.judge().answers();
  }
  std::printf("%llu seeds: %llu answers, all alike; %llu worlds of two parted\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(given),
              static_cast<unsigned long long>(forked));
  return 0;
}

}  // namespace
}  // namespace collab::protocol

int main(int argc, char** argv) {
  std::uint64_t first = 1;
  std::uint64_t count = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    (name == "--seed" ? first : count) = std::strtoull(argv[i + 1], nullptr, 10);
  }
  return collab::protocol::run(first, count);
}
