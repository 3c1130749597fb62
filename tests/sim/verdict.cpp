#include "tests/sim/verdict.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/protocol/agreement/anchor_order.h"

namespace collab::sim {
namespace {

// Within this time after the last fault, and after the last of them left, the sites that can are together. Sites ask
// all candidates in turn where the others are. Then they may wait a grace for lost records, or for a process that gave
// up and begins again. Of two young swarms that were founded apart, the better one may change once in that time: then
// they ask all of them again.
constexpr Duration kGraces = 4 * kGrace;
constexpr Duration kDials = seconds(3);       // a candidate that is dead and silent
constexpr Duration kElects = seconds(15);     // where nothing but a claim is in the way, and a round
constexpr Duration kRoundTakes = 6 * kGrace;  // at most, over the thinnest lines

std::string in_seconds(Duration time) { return std::to_string(time.count() / 1'000'000) + " s"; }

}  // namespace

// The candidates of each site, and one address that never had any.
Duration Verdict::settles() const { return kGraces + static_cast<int>(population_.candidates().size() + 1) * kDials; }

// Each step of a period may wait for a call of the world until that times out.
Duration Verdict::round_takes() const {
  const SimWorld* world = population_.world();
  return world != nullptr && world->in_training() ? 3 * kRoundTakes : kRoundTakes;
}

// ---- once a second ---------------------------------------------------------------------------------

void Verdict::look() {
  restart_failed();
  expect_rounds_beside_a_claim();
  if (population_.setting().liars) lies_.look(unfinished());
  if (!faults_) return;
  const TimePoint now = network_.now();
  const bool begun = has_begun();
  const std::uint32_t generation = lowest_generation();
  if (begun != begun_ || generation != generation_ || population_.calm_from() > calm_) {
    const bool anew = begun != begun_ || generation != generation_;  // until then those of a later one had to wait
    calm_ = anew ? std::max(now, population_.calm_from()) : population_.calm_from();
    begun_ = begun;
    generation_ = generation;
    looked_.reset();
  }
  if (const TimePoint came = last_start(); came > calm_) {  // others may have waited for it
    calm_ = came;
    looked_.reset();
  }
  if (const std::size_t over = processes_over(); over != over_) {  // sites that stay have to find together without it
    over_ = over;
    calm_ = now;
    looked_.reset();
  }
  if (more_can_go_on()) {
    calm_ = now;
    looked_.reset();
  }
  // If there is no swarm yet, the sites that were to begin it are waited for, even if they are gone for good.
  if (now < calm_ + settles() + (begun ? Duration{} : kJoinTimeout)) return;
  if (looked_ && now < *looked_ + round_takes()) return;
  expect_one_swarm();
  if (looked_) expect_rounds();
  looked_ = now;
  seen_ = rounds_done();
}

// Long after the last fault. True once the missing sites that a site waited for are forgotten, or once the other swarm
// has caught up with a site that had agreed on far more.
bool Verdict::more_can_go_on() {
  if (population_.setting().forget_after == Duration::max() && !are_apart()) {
    able_.reset();
    return false;
  }
  const std::size_t able = unfinished().size();
  return std::exchange(able_, able).value_or(able) < able;
}

// Not all training sites have joined one run.
bool Verdict::are_apart() const {
  std::set<RunId> runs;
  for (const std::string& name : population_.names()) {
    const SimSite* site = population_.live(name);
    if (site != nullptr && !site->report().over) runs.insert(site->report().joined ? site->report().run : RunId{});
  }
  return runs.size() > 1;
}

// Each process goes once, and one that failed is followed by another only for some time. So this cannot put off the
// verdict for ever.
std::size_t Verdict::processes_over() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(population_.processes(), [](const auto& site) { return site->report().over; }));
}

std::uint64_t Verdict::rounds_done() const {
  std::uint64_t rounds = 0;
  for (const auto& site : population_.processes()) rounds += site->report().rounds_done;
  return rounds;
}

// Any site whose model is trained now, except the claimant.
bool Verdict::knows_of_a_round() const {
  return std::ranges::any_of(unfinished(), [](const SimSite* site) { return site->record().anchor.round.value != 0; });
}

// A claim of one site holds up the others no longer than a grace and an election: each link may be made anew. If they
// know of no round yet, or only one is left, they wait for the named sites until an operator says that these will not
// come.
void Verdict::expect_rounds_beside_a_claim() {
  if (!population_.claims_alone()) return;
  const TimePoint now = network_.now();
  const std::size_t over = processes_over();
  const bool goes_on = checkers_.commits() != commits_ || over != over_then_ || unfinished().empty();
  commits_ = checkers_.commits();
  over_then_ = over;
  if (goes_on || progressed_ == TimePoint{}) {
    progressed_ = now;
    told_ = false;
  }
  const Duration most = kGrace + kElects;
  if (now - progressed_ <= most) return;
  if (!told_ && (!knows_of_a_round() || unfinished().size() < 2)) {
    told_ = true;
    progressed_ = now;
    for (SimCoordinator* candidate : population_.candidates()) candidate->forget_missing();
    return;
  }
  checkers_.fail("a claim holds rounds up: none for " + in_seconds(now - progressed_) + "; " + population_.status());
}

bool Verdict::restarts() const { return faults_ && network_.now() < population_.calm_from() + seconds(200); }

// A process that fails is started again, as its user would.
void Verdict::restart_failed() {
  for (std::size_t i = 0; i < population_.processes().size(); ++i) {
    SimSite& site = *population_.processes()[i];
    if (!site.report().failed || population_.is_dead(site) || population_.is_claimant(site)) continue;
    if (!restarts() && !site.options().helper) continue;
    ++given_up_;
    calm_ = network_.now();
    looked_.reset();
    if (site.report().why.code() == StatusCode::kInternal || site.report().why.code() == StatusCode::kCorrupt) {
      checkers_.fail(site.options().process + " failed: " + site.report().why.to_string());
    }
    population_.restart(site);
  }
}

std::vector<const SimSite*> Verdict::unfinished() const {
  std::map<std::uint32_t, std::vector<const SimSite*>> by_generation;
  for (const std::string& name : population_.names()) {
    const SimSite* site = population_.live(name);
    if (site == nullptr || site->report().over || population_.is_claimant(*site)) continue;
    if (left_alone(*site) || waits_in_vain(*site)) continue;
    by_generation[site->options().generation].push_back(site);
  }
  return by_generation.empty() ? std::vector<const SimSite*>() : by_generation.begin()->second;
}

std::uint32_t Verdict::lowest_generation() const {
  const std::vector<const SimSite*> sites = unfinished();
  return sites.empty() ? generation_ : sites.front()->options().generation;
}

// The last start of a site that trains what the unfinished sites train.
TimePoint Verdict::last_start() const {
  TimePoint last{};
  for (const std::string& name : population_.names()) {
    const SimSite* site = population_.live(name);
    if (site == nullptr || site->report().over || site->options().generation != generation_) continue;
    last = std::max(last, population_.started(*site));
  }
  return last;
}

// Just started; or it waits for others, to begin with or to come to its generation, and has not had the time to give
// them up.
bool Verdict::is_fresh(const SimSite& site) const {
  const bool gathers = site.waiting_for().starts_with("waiting for the swarm to begin");
  const bool waits = !site.report().joined && (site.options().expected_sites > 1 || gathers || is_ahead(site));
  return network_.now() < std::max(calm_, population_.started(site)) + settles() + (waits ? kJoinTimeout : Duration{});
}

// A site trains an earlier model. Such sites may be too few for rounds, but that cannot be told from a pause.
bool Verdict::is_ahead(const SimSite& site) const {
  return std::ranges::any_of(population_.names(), [&](const std::string& name) {
    const SimSite* other = population_.live(name);
    return other != nullptr && !other->report().over && other->options().generation < site.options().generation;
  });
}

void Verdict::expect_one_swarm() {
  const SimSite* first = nullptr;
  for (const SimSite* site : unfinished()) {
    if (is_fresh(*site)) continue;
    const std::string late = ", " + in_seconds(network_.now() - calm_) + " after the last fault or departure";
    if (!site->report().joined) {
      checkers_.fail("no one swarm: " + site->options().process + " has not joined" + late + ": " +
                     site->waiting_for() + "; " + population_.status());
      return;
    }
    if (first == nullptr) first = site;
    if (site->report().run == first->report().run) continue;
    checkers_.fail("no one swarm: " + first->options().process + " is in run " +
                   std::to_string(first->report().run.value) + ", " + site->options().process + " in run " +
                   std::to_string(site->report().run.value) + late + "; " + population_.status());
    return;
  }
}

void Verdict::expect_rounds() {
  std::vector<const SimSite*> waiting = unfinished();
  std::erase_if(waiting, [this](const SimSite* site) { return is_fresh(*site); });
  if (rounds_done() != seen_ || waiting.empty()) return;
  const SimSite& site = *waiting.front();
  checkers_.fail("no rounds: " + site.options().process + " is at round " + std::to_string(site.report().round.value) +
                 " for " + in_seconds(network_.now() - *looked_) + ", " + in_seconds(network_.now() - calm_) +
                 " after the last fault or departure: " + site.waiting_for() + "; " + population_.status());
}

// ---- sites that cannot go on -----------------------------------------------------------------------

// A majority of the sites that it needs for a round will never be here. They have ended, or too few have kept their
// memory. It trains on alone, or is told that no site comes.
bool Verdict::left_alone(const SimSite& site) const {
  const SimSiteReport& report = site.report();
  const auto& all = population_.processes();
  if (!report.joined) {  // started again: all others wait, and it would not make them a majority
    std::size_t joined = 0;
    std::size_t alone = 0;
    for (const auto& other : all) {
      if (population_.is_dead(*other) || other->report().over || !other->report().joined) continue;
      ++joined;
      alone += left_alone(*other) ? 1 : 0;
    }
    if (joined > 0 && alone == joined) return true;
  }
  // What the sites here know: the newest membership, and that of an attempt which may be committed after it.
  std::vector<Known> known;
  std::vector<Known> of_its_run;
  const RunId its_run = report.joined ? report.run : site.record().anchor.run;
  const RoundId its_round = report.joined ? report.round : site.record().anchor.round;
  for (const auto& other : all) {
    const bool ended = other->report().over && !other->report().failed;
    if (population_.is_dead(*other) || ended) continue;
    known.push_back({other->options().name, other->record()});
    if (known.back().record.anchor.run == its_run) of_its_run.push_back(known.back());
  }
  const std::uint32_t generation = site.options().generation;
  if (!may_elect(known, generation)) return true;
  // A site of a swarm that has agreed on far less does not come where others only wait.
  Electors here{generation};
  for (const auto& other : all) {
    const SimSiteReport& its = other->report();
    if (its.joined && its.run != its_run && protocol::is_far_ahead(its_round, its.round)) {
      here.aside.insert(other->options().name);
    }
  }
  if (can_go_on(of_its_run, here)) return false;
  // Then it goes over to another run that can, unless it has agreed on far more.
  std::set<RunId> runs;
  for (const Known& each : known) runs.insert(each.record.anchor.run);
  return std::ranges::none_of(runs, [&](RunId run) {
    std::vector<Known> others = known;
    std::erase_if(others, [run](const Known& each) { return each.record.anchor.run != run; });
    RoundId round;
    for (const Known& each : others) round = std::max(round, each.record.anchor.round);
    const bool stays = round.value > 0 && protocol::is_far_ahead(its_round, round);
    return run != its_run && run.value != 0 && !stays && can_go_on(others, {generation});
  });
}

// What that one knows of was agreed on later, as an election sees it.
bool Verdict::is_newer(const Known& a, const Known& b) {
  return protocol::is_newer(a.record.anchor, a.record.voters.size(), b.record.anchor, b.record.voters.size());
}

// The newest membership that any site knows can go on. Or another can, without the sites that claim more, if these are
// fewer: after a grace they are set aside.
bool Verdict::may_elect(std::vector<Known> known, std::uint32_t generation) const {
  std::erase_if(known, [](const Known& each) { return each.record.voters.empty(); });
  std::ranges::sort(known, is_newer);
  Electors electors{generation};
  for (std::size_t i = 0; i == 0 || 2 * i < known.size(); ++i) {
    if (i > 0) electors.aside.insert(known[i - 1].name);
    if (i > 0 && !is_newer(known[i - 1], known[i])) continue;
    const std::vector<Known> rest(known.begin() + static_cast<std::ptrdiff_t>(i), known.end());
    const bool by_their_records = witnesses(rest) > i && 2 * witnesses(rest) >= rest.front().record.voters.size();
    if (can_go_on(rest, electors) && (i == 0 || by_their_records)) return true;
  }
  return false;
}

// Of the newest membership that these know, the sites whose memories it names.
std::size_t Verdict::witnesses(const std::vector<Known>& known) {
  return static_cast<std::size_t>(std::ranges::count_if(known, [&](const Known& each) {
    return std::ranges::any_of(known.front().record.voters,
                               [&](const wire::Voter& voter) { return voter.acceptor == each.record.acceptor; });
  }));
}

bool Verdict::can_go_on(const std::vector<Known>& known, Electors electors) const {
  const auto newest = std::ranges::min_element(known, is_newer);
  if (newest == known.end()) return true;
  for (const Known& each : known) {  // which sites left in good order, as a site here knows
    if (is_newer(*newest, each)) continue;
    for (const wire::Voter& voter : each.record.voters) {
      if (voter.left) electors.left.insert(voter.acceptor);
    }
  }
  const wire::Offer& anchor = newest->record.anchor;
  std::optional<wire::StartAttempt> last;
  for (const Known& each : known) {
    for (const wire::Proposal& proposal : each.record.proposals) {
      const wire::StartAttempt& start = proposal.start;
      if (start.run != anchor.run || start.round.value != anchor.round.value + 1) continue;
      if (!last || start.attempt > last->attempt) last = start;
    }
  }
  return can_agree(newest->record.voters, electors) && (!last || can_agree(last->voters, electors));
}

bool Verdict::can_agree(const std::vector<wire::Voter>& voters, const Electors& electors) const {
  std::size_t here = 0;
  for (const wire::Voter& voter : voters) {
    const SimSite* other = population_.live(voter.name);
    if (voter.name == population_.claimant() && !voter.left) continue;  // it may never say a word
    const bool ended = other != nullptr && other->report().over && !(other->report().failed && restarts());
    const bool ahead = other != nullptr && other->options().generation > electors.generation;
    const bool aside = electors.aside.count(voter.name) != 0;
    const bool absent = ended || ahead || aside || population_.is_gone(voter.name);
    here += absent && electors.left.count(voter.acceptor) == 0 ? 0 : 1;
  }
  return voters.empty() || 2 * here > voters.size();
}

bool Verdict::has_begun() const {
  return std::ranges::any_of(population_.names(), [this](const std::string& name) {
    const SimSite* site = population_.live(name);
    return site != nullptr && site->report().joined;
  });
}

bool Verdict::somebody_trains() const {
  return std::ranges::any_of(population_.names(), [this](const std::string& name) {
    const SimSite* site = population_.live(name);
    return site != nullptr && site->report().joined && !site->report().over;
  });
}

// Neither it nor any other site holds an anchor, and the site that they are to begin with has ended.
bool Verdict::waits_in_vain(const SimSite& site) const {
  const std::string& named_name = population_.setting().named;
  const SimSite* named = named_name.empty() ? nullptr : population_.live(named_name);
  const bool ended = (named != nullptr && named->report().over) || population_.is_gone(named_name);
  if (!ended || site.report().joined) return false;
  if (!site.report().over) return !somebody_trains();
  return site.report().failed && site.report().why.message().find("COLLAB_INIT_FROM") != std::string::npos;
}

// ---- the end ---------------------------------------------------------------------------------------

bool Verdict::finished() const {
  // Without faults all sites train to the end, also the last site of a generation.
  const bool calm = faults_ && network_.now() > population_.calm_from() + settles();
  for (const std::string& name : population_.names()) {
    const SimSite* site = population_.live(name);
    if (population_.is_gone(name) || name == population_.claimant()) continue;
    if (site == nullptr) return false;  // is about to start
    const SimSiteReport& report = site->report();
    if (report.goes_on || (report.failed && restarts())) return false;
    if (!report.over && !(calm && (left_alone(*site) || waits_in_vain(*site)))) return false;
  }
  return true;
}

void Verdict::judge() {
  if (!checkers_.failures().empty()) return;
  for (const auto& site : population_.processes()) {
    const bool judged = !population_.is_dead(*site) && !site->options().helper && !population_.is_claimant(*site);
    if (judged) judge(*site);
  }
}

void Verdict::judge(const SimSite& site) {
  const SimSiteReport& report = site.report();
  const std::string& process = site.options().process;
  if (report.goes_on && !report.why.ok()) return;  // it was behind
  const bool unavailable = report.failed && (report.why.code() == StatusCode::kUnavailable ||
                                             report.why.message().find("generation") != std::string::npos);
  if (left_alone(site) && (!report.over || unavailable)) return population_.log(process, "is left alone");
  if (waits_in_vain(site)) return population_.log(process, "waits in vain");
  if (!report.over) {
    checkers_.fail(process + " (" + std::to_string(report.skipped) + " skipped) is not done, " +
                   in_seconds(network_.now() - population_.calm_from()) +
                   " after the last fault: " + site.waiting_for() + "; " + population_.status());
  } else if (report.failed) {
    checkers_.fail(process + " failed: " + report.why.to_string());
  } else if (report.round.value < population_.setting().rounds && !report.spent && !report.returns) {
    checkers_.fail(process + " left after round " + std::to_string(report.round.value));
  }
  if (report.undisturbed && !population_.has_lied(site.options().name)) {
    checkers_.expect_all_counted(process, report.trained, population_.setting().fragments.count);
  }
}

}  // namespace collab::sim
