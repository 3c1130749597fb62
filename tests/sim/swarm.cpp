#include "tests/sim/swarm.h"

#include <array>
#include <cstdio>

#include "core/base/digest.h"
#include "core/base/log.h"
#include "tests/sim/verdict.h"

namespace collab::sim {
namespace {

// All sites have trained to the end this long after the faults have stopped: twice the limits below, and the rounds.
constexpr Duration kBound = seconds(420);
// A run of the largest swarm takes a tenth of this many events. More are a circle in which nothing waits.
constexpr std::uint64_t kMostEvents = 30'000'000;
// The time of a round without faults, about. And the most if disks are slow.
constexpr Duration kRound = seconds(0.8);
constexpr Duration kSlowRound = seconds(15);

std::string_view name_of(Mutation mutation) {
  switch (mutation) {
    case Mutation::kNone: return "none";
    case Mutation::kForgeDone: return "forge-done";
    case Mutation::kCountTwice: return "count-twice";
    case Mutation::kFlipBit: return "flip-bit";
    case Mutation::kLoseSteps: return "lose-steps";
    case Mutation::kCarryStale: return "carry-stale";
    case Mutation::kKeepWords: return "keep-words";
  }
  return "unknown";
}

NetworkOptions draw_network(Prng& prng) {
  NetworkOptions network;
  network.delay_min = seconds(0.001 + 0.05 * prng.uniform());
  network.delay_mean = seconds(0.001 + 0.05 * prng.uniform());
  network.bytes_per_second = 1e5 + 4e6 * prng.uniform();
  return network;
}

// Exact and average in half of the runs: what goes wrong there is seen to the last bit.
DataPlane::Settings draw_data(std::uint64_t seed, std::uint64_t elements) {
  Prng draw(seed ^ 0xDA7A'0000'0000'0000);
  DataPlane::Settings data = SimData::small();
  data.tile_elements = 128U << draw.below(4);
  data.chunk_elements = 1'024U << draw.below(2);
  if (draw.chance(0.5)) {
    data.codec.up = data.codec.down = static_cast<CodecId>(1 + draw.below(8));
    if (draw.chance(0.3)) data.codec.down = static_cast<CodecId>(draw.below(9));
    data.error_feedback = draw.chance(0.9);
    data.feedback_decay = Prng(seed ^ 0xDECA'0000'0000'0000).chance(0.3) ? 0.95F : 1.0F;
    const bool fixed = codec_for(data.codec.up).fixed_size() && codec_for(data.codec.down).fixed_size();
    if (!fixed) data.chunk_elements = 4'096;  // whole groups of top-k
    if (Prng kept(seed ^ 0xF160'0000'0000'0000); kept.chance(0.3)) {
      data.kept = {{elements / 7, elements / 5}, {elements / 2, elements - elements / 4}};
    }
  }
  if (draw.chance(0.5)) {
    data.outer.id = draw.chance(0.7) ? OuterId::kNesterov : OuterId::kAverage;
    data.outer.lr = 0.7F;
    if (draw.chance(0.4)) {
      data.outer_elements = elements - elements / 8;
      data.kept.push_back({data.outer_elements, elements});  // as kept_tensors() has it
    }
  }
  Prng outer(seed ^ 0x0C71'B000'0000'0000);
  if (data.outer.id == OuterId::kNesterov && outer.chance(0.4)) {
    data.outer.lr = 0;  // by the contributors
    data.outer.period = kReferencePeriod << outer.below(4);
  }
  if (outer.chance(0.25)) data.outer.clip = static_cast<float>(0.1 + outer.uniform());
  if (Prng radial(seed ^ 0x4DA0'0000'0000'0000); data.outer.id == OuterId::kAverage && radial.chance(0.3)) {
    data.outer.id = OuterId::kRda;
    const std::uint64_t trained = std::min(elements, data.outer_elements);
    for (std::uint64_t at = radial.below(300); at < trained;) {  // an embedding first, and others between
      const std::uint64_t end = std::min(trained, at + 1 + radial.below(radial.chance(0.3) ? 3'000 : 300));
      data.radial.push_back({at, end});
      at = end + (radial.chance(0.2) ? radial.below(300) : 0);
    }
  }
  data.least_window_bytes = (1 + draw.below(6)) * data.chunk_elements * sizeof(float);
  return data;
}

Setting draw_setting(const SwarmOptions& options, Prng& prng) {
  Setting setting;
  const std::uint64_t seed = setting.seed = options.seed;
  Prng size(seed ^ 0x512E'0000'0000'0000);
  setting.sites = options.sites;
  if (setting.sites == 0) setting.sites = size.chance(0.01) ? 50 : 1 + static_cast<std::uint32_t>(prng.below(6));
  setting.candidates = options.candidates;
  if (setting.candidates == 0) setting.candidates = 1 + static_cast<std::uint32_t>(prng.below(3));
  setting.rounds = options.rounds;
  if (setting.rounds == 0) setting.rounds = 3 + static_cast<std::uint32_t>(prng.below(8));
  const bool long_run = size.chance(0.05) && setting.sites < 10 && options.rounds == 0;
  if (long_run) setting.rounds *= 6;
  setting.liars = std::ranges::find(options.faults, Fault::kLie) != options.faults.end();
  setting.one_liar = options.faults == std::vector{Fault::kLie} && seed % 2 == 0;
  setting.claims = options.faults == std::vector{Fault::kClaim};
  setting.generations = seed % 7 == 3 ? 2 + seed % 2 : 1;
  setting.elements = 1'000 + 1'000 * (seed % 7);
  setting.data = draw_data(seed, setting.elements);
  setting.save_every = 1 + seed % 3;
  setting.helped = seed % 5 == 2;
  setting.nat = seed % 6 == 4;
  setting.drift = seed % 4 == 3;
  setting.leader_times = seed % 8 == 6;
  setting.mutation = options.mutation;
  Prng overlap(seed ^ 0x0BE1'AB00'0000'0000);
  const bool drawn = overlap.chance(0.35) && setting.mutation == Mutation::kNone;
  if (options.overlap.value_or(drawn)) {
    setting.overlap = Merge{MergeRule::kRebase, 0.5 * static_cast<double>(overlap.below(3))};
    setting.data.keeps_mean = true;
    // What is kept of the difference is found from the step: SimData::keep_difference().
    setting.data.outer.clip = 0;
    if (setting.data.outer.id == OuterId::kRda) setting.data.outer.id = OuterId::kAverage;
  }
  Prng extras(seed ^ 0xE874'A500'0000'0000);
  setting.optimizers = extras.chance(0.35) && !options.plain;
  setting.budgets = extras.chance(0.2) && !options.plain;
  Prng hubs(seed ^ 0x4B5B'0000'0000'0000);
  const bool may_have_hubs = setting.sites > 1 && setting.mutation == Mutation::kNone;
  setting.hubs = options.hubs.value_or(hubs.chance(0.2) && !options.plain) && may_have_hubs;
  Prng hosts(seed ^ 0x4057'5000'0000'0000);
  if (!options.plain && setting.mutation == Mutation::kNone) {
    setting.slow_disks = hosts.chance(0.2);
    setting.other_orders = hosts.chance(0.3);
    setting.late_candidates = hosts.chance(0.5);
    setting.leavers = hosts.chance(0.5);
    const bool forgets = std::ranges::find(options.faults, Fault::kForget) != options.faults.end();
    if (hosts.chance(0.2) && forgets) setting.forget_after = seconds(15 + 60 * hosts.uniform());
  }
  Prng parts(seed ^ 0xF4A6'0000'0000'0000);
  const bool divided = parts.chance(0.3) && !options.plain && setting.mutation == Mutation::kNone;
  const std::uint32_t most = std::min(5U, setting.rounds);
  const std::uint32_t count = divided && most > 2 ? 2 + static_cast<std::uint32_t>(parts.below(most - 2)) : 1;
  setting.fragments = protocol::fragments_for(options.fragments != 0 ? options.fragments : count, setting.elements);
  Prng begins(seed + 1);
  if (begins.chance(0.3)) setting.named = "site" + std::to_string(begins.below(setting.sites));
  setting.named_by_sites = begins.chance(0.7);
  return setting;
}

class Swarm {
 public:
  explicit Swarm(const SwarmOptions& options)
      : options_(options),
        prng_(options.seed),
        network_{draw_network(prng_), prng_.next()},
        population_(
            draw_setting(options, prng_), network_, checkers_,
            [this](const std::string& who, const std::string& what) { log(who, what); }, prng_),
        faults_(options.draw_faults ? draw_faults(prng_) : options.faults, population_, network_, prng_),
        faulty_(faults_.any()),
        verdict_(population_, network_, checkers_, faulty_) {}

  SwarmResult run() {
    const Setting& setting = population_.setting();
    if (!setting.named_by_sites) checkers_.invariants.names_first(setting.named);
    // Two that cannot be dialled need a third between them, so nothing happens to that one.
    population_.begin(setting.nat && !faulty_ ? 2 : 1);
    faults_.plan(setting.rounds * setting.generations * kRound);
    look();
    std::uint64_t events = 0;
    // Ranks may be at another hub than their leader's: then each round and a call wait for each other to a time-out.
    const bool slow = setting.slow_disks || (world() != nullptr && world()->in_training());
    const Duration bound = setting.generations * (kBound + (slow ? setting.rounds * kSlowRound : Duration{}));
    while (!finished_ && network_.now() < population_.calm_from() + bound && checkers_.failures().empty()) {
      if (!network_.run_one()) break;
      if (++events > kMostEvents)
        checkers_.fail(std::to_string(events) + " events, and no end: " + population_.status());
    }
    verdict_.judge();
    if (world() != nullptr && checkers_.failures().empty() && !world()->finished()) {
      world()->fail("somebody is not done with its calls");
    }
    const std::size_t expected = std::size_t{setting.rounds} * setting.generations;
    // A site that looks long for an optimizer's state is a straggler, and its last steps count in a later round. So is
    // a site in a call that others come to later.
    const bool more = (setting.optimizers || setting.hubs) && checkers_.commits() > expected;
    if (!faulty_ && checkers_.failures().empty() && checkers_.commits() != expected && !more) {
      checkers_.fail(std::to_string(checkers_.commits()) + " commits for " + std::to_string(expected) + " rounds");
    }
    return result();
  }

 private:
  [[nodiscard]] SimWorld* world() const { return population_.world(); }

  void look() {
    verdict_.look();
    finished_ = verdict_.finished();
    if (world() != nullptr) {
      world()->look(population_.calm_from());
      finished_ = finished_ && world()->finished();
    }
    network_.at(network_.now() + seconds(1), [this] { look(); });
  }

  void log(const std::string& who, const std::string& what) {
    std::array<char, 32> time{};
    std::snprintf(time.data(), time.size(), "%10.6f ",
                  static_cast<double>(network_.now().time_since_epoch().count()) / 1e6);
    const std::string line = time.data() + who + " " + what;
    trace_.add(hash128(std::as_bytes(std::span(line))));
    if (options_.verbose) std::printf("%s\n", line.c_str());
  }

  SwarmResult result() {
    SwarmResult result;
    result.failures = checkers_.failures();
    result.commits = checkers_.commits();
    result.failed_processes = verdict_.given_up();
    result.faults = faults_.inflicted();
    result.forget_commands = faults_.forget_commands();
    for (const auto& site : population_.processes()) {
      const SimSiteReport& report = site->report();
      result.skipped += report.skipped;
      result.rebased += report.rebased;
      result.carried += report.carried;
      result.samples += report.trained;
      result.unknown += report.unknown;
      result.spent += report.spent ? 1 : 0;
      result.optimizers.taken += site->optimizer().taken;
      result.optimizers.cold += site->optimizer().cold;
      result.optimizers.wrong += site->optimizer().wrong;
    }
    if (world() != nullptr) result.world = world()->report();
    result.sites = population_.setting().sites;
    result.rounds = population_.setting().rounds * population_.setting().generations;
    result.virtual_seconds = static_cast<double>(network_.now().time_since_epoch().count()) / 1e6;
    result.trace = to_hex(trace_.finish());
    return result;
  }

  SwarmOptions options_;
  Prng prng_;
  Network network_;
  Checkers checkers_;
  DigestChain trace_;
  Population population_;
  Faults faults_;
  bool faulty_;
  Verdict verdict_;
  bool finished_ = false;
};

}  // namespace

SwarmResult run_swarm(const SwarmOptions& options) {
  set_log_level(LogLevel::kOff);
  return Swarm(options).run();
}

std::string replay_command(const SwarmOptions& options) {
  std::string command = "collab_sim --seed " + std::to_string(options.seed);
  if (options.sites != 0) command += " --sites " + std::to_string(options.sites);
  if (options.candidates != 0) command += " --candidates " + std::to_string(options.candidates);
  if (options.rounds != 0) command += " --rounds " + std::to_string(options.rounds);
  std::string faults;
  for (const Fault fault : options.faults) faults += (faults.empty() ? "" : ",") + std::string(name_of(fault));
  command += " --faults " + (options.draw_faults ? "drawn" : faults.empty() ? "none" : faults);
  if (options.mutation != Mutation::kNone) command += " --mutation " + std::string(name_of(options.mutation));
  if (options.overlap) command += *options.overlap ? " --overlap 1" : " --overlap 0";
  if (options.fragments != 0) command += " --fragments " + std::to_string(options.fragments);
  if (options.hubs) command += *options.hubs ? " --hubs 1" : " --hubs 0";
  return command + " --verbose";
}

}  // namespace collab::sim
