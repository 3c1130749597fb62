// What a coordinator of many sites costs: the time of a step and its memory, over joins, whole rounds, losses and
// returns, and an election among them all, with no network.
#include <malloc.h>

#include <ctime>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/protocol/coordinator/coordinator.h"
#include "tests/bench/bench.h"

namespace collab {
namespace {

using namespace protocol;

constexpr std::uint32_t kSites = 1'000;
constexpr double kMicrosecondsAStep = 50;
constexpr double kMebibytes = 64;

// Of this thread, so that other work on the machine does not count.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Answers for all the sites; counts the time inside the machine only.
class Driver {
 public:
  Driver() : coordinator_(config()) {}

  void join_all() {
    for (std::uint32_t i = 0; i < kSites; ++i) join(i);
  }
  void round() {
    for (std::uint32_t i = 0; i < kSites; ++i) {
      hear(i, wire::Ready{RoundId{round_ + 1}, 100, 100, 10, kState});
    }
    now_ += Duration{1'000'000};
    step(Tick{});
    for (std::uint32_t i = 0; i < kSites; ++i) hear(i, wire::Heartbeat{1, false});
  }
  // The leader is gone: all come to the next candidate, with what they have written down.
  void elect() {
    coordinator_ = Coordinator(config());
    for (std::uint32_t i = 0; i < kSites; ++i) {
      ++generation_[i];
      join(i);
    }
  }
  void lose_and_return(std::uint32_t site) {
    step(Closed{link_of(site), unavailable("reset")});
    ++generation_[site];
    join(site);
  }

  [[nodiscard]] std::uint64_t rounds() const { return round_; }
  [[nodiscard]] double microseconds_a_step() const { return 1e6 * seconds_ / static_cast<double>(steps_); }
  [[nodiscard]] std::size_t steps() const { return steps_; }
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  static constexpr Digest kState{1, 1};
  static CoordinatorConfig config() {
    CoordinatorConfig config;
    config.fresh_run = RunId{1};
    config.min_sites = kSites;
    return config;
  }
  LinkId link_of(std::uint32_t site) { return LinkId{1 + site + kSites * generation_[site]}; }
  void join(std::uint32_t i) {
    wire::Join join;
    join.swarm = "default";
    join.site = "site" + std::to_string(i);
    join.index = i;
    join.address = "10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256) + ":29500";
    join.elements = 1'000'000;
    join.offer = {RunId{run_}, RoundId{round_}, kState};
    join.report.record = record_of(i);
    hear(i, std::move(join));
  }
  // What it would have written down: of its first join it knows nothing.
  wire::Record record_of(std::uint32_t i) {
    wire::Record record;
    record.acceptor = AcceptorId{1000 + i};
    record.promised = term_;
    record.anchor = {RunId{run_}, RoundId{round_}, kState};
    record.voters = voters_;
    return record;
  }
  void hear(std::uint32_t site, wire::Message message) { step(Received{link_of(site), std::move(message)}); }
  void step(const CoordinatorEvent& event) {
    std::vector<CoordinatorAction> actions;
    const double start = processor_seconds();
    actions = coordinator_.step(now_, event);
    seconds_ += processor_seconds() - start;
    ++steps_;
    for (const CoordinatorAction& action : actions) {
      each_sent(action, [this](LinkId link, const wire::Message& message) {
        answer(link, message);
        return true;
      });
    }
  }
  // Every site does at once what it is told.
  void answer(LinkId link, const wire::Message& message) {
    const auto site = static_cast<std::uint32_t>((link.value - 1) % kSites);
    if (const auto* prepare = std::get_if<wire::Prepare>(&message)) {
      const wire::Offer anchor{RunId{run_}, RoundId{round_}, kState};
      hear(site, wire::Promise{prepare->term, anchor, {record_of(site)}});
    } else if (const auto* accept = std::get_if<wire::Accept>(&message)) {
      hear(site, wire::Accepted{accept->term});
    } else if (const auto* install = std::get_if<wire::InstallAnchor>(&message)) {
      run_ = install->run.value;
      term_ = install->term;
      if (voters_.size() != install->voters.size()) voters_ = install->voters;
      hear(site, wire::AnchorInstalled{install->run, install->round, install->digest, AcceptorId{1000 + site}});
    } else if (const auto* start = std::get_if<wire::StartAttempt>(&message)) {
      hear(site,
           wire::Done{start->term, start->round, start->attempt, std::vector<Digest>(start->slices.size(), kState)});
    } else if (const auto* commit = std::get_if<wire::Commit>(&message)) {
      round_ = commit->round.value;
      hear(site, wire::AnchorInstalled{commit->run, commit->round, kState, AcceptorId{1000 + site}});
    }
  }

  Coordinator coordinator_;
  TimePoint now_{};
  std::map<std::uint32_t, std::uint32_t> generation_;
  std::uint64_t run_ = 0;
  std::uint64_t round_ = 0;
  TermId term_{};
  std::vector<wire::Voter> voters_;
  double seconds_ = 0;
  std::size_t steps_ = 0;
};

double mebibytes_in_use() { return static_cast<double>(mallinfo2().uordblks) / 1024 / 1024; }

int run(int argc, char** argv) {
  bench::Report report("A coordinator of 1,000 sites");
  const double before = mebibytes_in_use();
  Driver driver;
  driver.join_all();
  const double joining = driver.microseconds_a_step();
  for (int i = 0; i < 20; ++i) driver.round();
  for (std::uint32_t site = 0; site < kSites; site += 10) driver.lose_and_return(site);
  for (int i = 0; i < 5; ++i) driver.round();
  report.add_figure("joins", joining, "us a step", 0);
  const double memory = mebibytes_in_use() - before;
  const double led = driver.seconds();
  const std::size_t steps = driver.steps();
  driver.elect();
  report.add_figure("election", 1e6 * (driver.seconds() - led) / static_cast<double>(driver.steps() - steps),
                    "us a step", 0);
  report.add_figure("election, whole", driver.seconds() - led, "s", 0);
  report.add_figure("in all", driver.microseconds_a_step(), "us a step", kMicrosecondsAStep);
  report.add_figure("memory", memory, "MiB", kMebibytes);
  report.add_figure("rounds", static_cast<double>(driver.rounds()), "", 0);
  report.add_figure("steps", static_cast<double>(driver.steps()), "", 0);
  return bench::finish(report, argc, argv);
}

}  // namespace
}  // namespace collab

int main(int argc, char** argv) { return collab::run(argc, argv); }
