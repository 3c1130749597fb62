#include "tests/sim/lie_judge.h"

#include <algorithm>

namespace collab::sim {
namespace {

// Nothing of an attempt has moved for a grace, as heartbeats tell: it is given up.
constexpr Duration kAttemptFails = kGrace + seconds(2);
// Beside that: links are made anew, sites train on, and a straggler is waited for.
constexpr Duration kNextBegins = seconds(13);
// Then the two own no slices for some rounds, and have nothing to exchange (reachability.h).
constexpr int kFailuresOfAPair = 2;

// Of all that a process knows: a part that is the same for all, and one for each site.
constexpr std::size_t kKnows = 8 * 1024;
constexpr std::size_t kKnowsOfASite = 4 * 1024;
// Control messages: a few hundred questions for its status come at once, and it answers each.
constexpr std::size_t kUnderWay = 512 * 1024;

}  // namespace

void LieJudge::look(const std::vector<const SimSite*>& unfinished) {
  // Calls of a world wait for each other and for rounds until they time out.
  if (population_.setting().one_liar && population_.world() == nullptr) expect_rounds(unfinished);
  expect_little_memory();
}

// Of those who train, or will again. Where they are not, no round can be agreed on without a liar: it then waits for
// the liar as long as for any that is slow (COLLAB_ROUND_TIMEOUT). Before the first round all begin from what one of
// them holds by its own word (docs/security-model.md). A site that has trained to its end is not waited for.
bool LieJudge::are_most_honest(const std::vector<const SimSite*>& unfinished) const {
  std::size_t honest = 0;
  std::size_t all = unfinished.size();
  for (const SimSite* site : unfinished) {
    const bool trains = site->report().joined && site->report().round.value > 0;
    honest += trains && !population_.has_lied(site->options().name) ? 1 : 0;
  }
  for (const std::string& name : population_.names()) {
    const SimSite* site = population_.live(name);
    all += site == nullptr || site->report().failed ? 1 : 0;  // is started again
  }
  return 2 * honest > all;
}

// The liar keeps its parts from one after the other.
Duration LieJudge::round_takes() const {
  const Setting& setting = population_.setting();
  const int others = static_cast<int>(population_.names().size()) - 1 + (setting.helped ? 1 : 0);
  return (kFailuresOfAPair * others + 1) * kAttemptFails + kNextBegins;
}

void LieJudge::expect_rounds(const std::vector<const SimSite*>& unfinished) {
  if (!are_most_honest(unfinished)) {
    attempts_ = rounds_ = {};
    return;
  }
  const std::size_t commits = checkers_.commits();
  expect(attempts_, checkers_.attempts() + commits, kAttemptFails + kNextBegins, "an attempt");
  expect(rounds_, commits, round_takes(), "rounds");
}

void LieJudge::expect(Mark& mark, std::size_t count, Duration most, const std::string& what) {
  const TimePoint now = network_.now();
  if (mark.since == TimePoint{} || mark.count != count) {
    mark = {count, now};
  } else if (const Duration waited = now - mark.since; waited > most) {
    checkers_.fail("a lie holds " + what + " up: none for " + std::to_string(waited.count() / 1'000'000) + " s; " +
                   population_.status());
  }
}

void LieJudge::expect_little_memory() {
  for (const SimCoordinator* candidate : population_.candidates()) {
    if (candidate->dead()) continue;
    expect_little(candidate->process(), candidate->knows(), network_.under_way(candidate->node()));
  }
  for (const std::string& name : population_.names()) {
    const SimSite* site = population_.live(name);
    if (site == nullptr || population_.lies(name)) continue;
    expect_little(site->options().process, site->knows(), network_.under_way(site->node()));
  }
}

void LieJudge::expect_little(const std::string& process, std::size_t knows, std::size_t under_way) {
  const std::size_t sites = population_.names().size() + (population_.setting().helped ? 1 : 0);
  const std::size_t most = kKnows + sites * kKnowsOfASite;
  if (knows > most) {
    checkers_.fail(process + " grows beside a lie: it knows " + std::to_string(knows) + " bytes, of " +
                   std::to_string(sites) + " sites " + std::to_string(most) + " are enough");
  }
  if (under_way > kUnderWay) {
    checkers_.fail(process + " has " + std::to_string(under_way) +
                   " bytes of control messages on their way beside a lie");
  }
}

}  // namespace collab::sim
