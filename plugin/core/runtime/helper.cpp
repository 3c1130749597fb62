// A helper asks which model is trained, joins with that, and takes part in rounds until it is asked to leave.
#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collab/session.h"
#include "core/arena/arena.h"
#include "core/base/knobs.h"
#include "core/base/log.h"
#include "core/base/memory_limit.h"
#include "core/base/random.h"
#include "core/protocol/coordinator/model_reference.h"
#include "core/runtime/ask_coordinator.h"
#include "core/runtime/leader.h"
#include "core/runtime/node.h"
#include "core/runtime/storage/record_store.h"
#include "core/runtime/tensors/host_vector.h"
#include "core/wire/limits.h"

namespace collab {
namespace {

constexpr Duration kAskLimit = std::chrono::seconds(5);
constexpr Duration kBetweenQuestions = std::chrono::seconds(1);
constexpr Duration kExchangeLimit = std::chrono::seconds(60);  // for the exchange in flight when it is asked to leave

// Why this process cannot hold so many parameters, with the anchor and the next one. Empty: it can.
[[nodiscard]] std::string too_large(std::uint64_t elements) {
  const auto bytes = 3.0 * sizeof(float) * static_cast<double>(elements);
  const auto here = static_cast<double>(memory_limit());
  if (bytes <= here) return {};
  const auto in_gb = [](double size) { return std::to_string(static_cast<std::uint64_t>(size / 1e9)) + " GB"; };
  return "a helper for its model of " + std::to_string(elements) + " parameters needs at least " + in_gb(bytes) +
         " of memory, but may use only " + in_gb(here) + " here; run it on a larger machine [join.helper-memory]";
}

Status adopt_setting(const wire::Setting& setting, Config& config, std::uint64_t& outer_elements) {
  const std::string what = setting.key + "=" + setting.value;
  if (setting.key == kOuterElements) {
    const char* end = setting.value.data() + setting.value.size();
    const auto read = std::from_chars(setting.value.data(), end, outer_elements);
    if (read.ec == std::errc() && read.ptr == end) return {};
    return invalid_argument("the swarm's " + what + " is not a number of elements [join.helper-elements]");
  }
  const KnobRow* row = row_of(setting.key);
  if (row == nullptr || row->knob.scope != KnobScope::kSites || !row->form.parse(setting.value, config)) {
    return invalid_argument(
        "the swarm has set " + what +
        ", which this helper does not know: run the same version of collab everywhere [join.helper-setting]");
  }
  return {};
}

// A helper has no model of its own. Rounds depend on names and lengths only.
std::vector<TensorInfo> model_of(const wire::StatusReport& swarm) {
  std::vector<TensorInfo> model;
  for (const wire::TensorLength& tensor : swarm.tensors) {
    model.push_back({tensor.name, {}, {tensor.elements}, TensorKind::kAveraged, {}});
  }
  return model;
}

// Threads: a thread of its own asks, joins and waits. The node's loop tells it what happens. The caller waits or
// leaves.
class Helper final : public HelperServer {
 public:
  explicit Helper(HelperOptions options) : options_(std::move(options)), thread_([this] { run(); }) {}
  ~Helper() override { leave(); }

  Status wait(Duration limit) override {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return ended_.has_value(); })) return *ended_;
    return timed_out("the helper is at work");
  }

  void leave() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    Status status;
    while (status.ok() && !leaving()) {
      const std::optional<wire::StatusReport> swarm = find_swarm();
      if (swarm) status = help(*swarm);
    }
    const std::lock_guard lock(mutex_);
    ended_ = status;
    changed_.notify_all();
  }

  [[nodiscard]] bool leaving() {
    const std::lock_guard lock(mutex_);
    return leaving_;
  }

  // All that an empty list of tensors tells.
  [[nodiscard]] static std::string untold() {
    return "the swarm there names no tensors: no site that trains has joined it yet, or the names take more than " +
           std::to_string(wire::kMaxTensorsBytes) + " bytes, which is too much for a helper";
  }

  // Empty if the helper is to leave.
  std::optional<wire::StatusReport> find_swarm() {
    protocol::WaitProgress waiting;
    for (std::size_t asked = 0; !leaving(); ++asked) {
      const std::string& address = options_.coordinators[asked % options_.coordinators.size()];
      Result<std::unique_ptr<Transport>> transport = options_.make_transport();
      Result<wire::StatusReport> answer =
          transport.ok() ? ask_coordinator(std::move(*transport), address, kAskLimit) : transport.status();
      const std::string large = answer.ok() ? too_large(answer->elements) : std::string();
      const bool blind = answer.ok() && protocol::needs_tensors(answer->settings) && answer->tensors.empty();
      if (answer.ok() && answer->elements > 0 && large.empty() && !blind) return std::move(*answer);
      const std::string why = !answer.ok()     ? answer.status().message()
                              : !large.empty() ? large
                              : blind          ? untold()
                                               : "no site has joined it yet";
      const TimePoint now = clock_.now();
      const bool first = !waiting.running();
      if (first) waiting.start(now);
      const auto tell = large.empty() ? log_info : log_warning;
      if (first || waiting.due(now)) tell("waiting for a swarm at " + address + ": " + why);
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kBetweenQuestions, [this] { return leaving_; });
    }
    return std::nullopt;
  }

  // One membership, from joining to its end. Not ok: it is useless to join again.
  Status help(const wire::StatusReport& swarm) {
    Config config = options_.config;
    std::uint64_t outer_elements = UINT64_MAX;
    for (const wire::Setting& setting : swarm.settings) {
      COLLAB_RETURN_IF_ERROR(adopt_setting(setting, config, outer_elements));
    }
    Result<std::unique_ptr<ArenaWriter>> arena = create_arena({.key = {config.run, options_.site, {}},
                                                               .elements = swarm.elements,
                                                               .outer_state = has_outer_state(config.outer_optimizer),
                                                               .shared = false,
                                                               .job = {},
                                                               .places = {}});
    if (!arena.ok()) return arena.status();
    Result<std::unique_ptr<Transport>> transport = options_.make_transport();
    if (!transport.ok()) return transport.status();
    HostVector parameters{std::vector<float>(swarm.elements)};  // a copy of the anchor, which only rounds move
    joined_ = false;
    over_.reset();
    Result<std::unique_ptr<Node>> node = Node::start({.config = config,
                                                      .site = options_.site,
                                                      .coordinators = options_.coordinators,
                                                      .model = model_of(swarm),
                                                      .fingerprint = {},
                                                      .outer_elements = outer_elements,
                                                      .helps = [this](const Status& status) { told(status); }},
                                                     std::move(*transport), **arena, parameters);
    if (!node.ok()) return node.status();
    if ((*node)->address().empty()) {
      return invalid_argument(
          "a helper has to be dialled by the sites: set COLLAB_ADVERTISE to a host they reach [knob.helper-address]");
    }
    (*node)->help(describe(swarm, config, (*node)->address()));
    return stay(**node);
  }

  [[nodiscard]] wire::Join describe(const wire::StatusReport& swarm, const Config& config,
                                    const std::string& address) const {
    wire::Join join;
    join.swarm = config.run;
    join.site = options_.site;
    join.index = config.site_index.value_or(wire::kNoIndex);
    join.address = address;
    join.helper = true;
    join.elements = swarm.elements;
    join.settings = swarm.settings;
    join.process = random_bits();
    join.report.record.acceptor = fresh_acceptor();  // the acceptor lasts no longer than this membership
    return join;
  }

  Status stay(Node& node) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return leaving_ || over_; });
    if (!over_) {  // waits, since an exchange in which it owns slices would begin again
      const TimePoint until = clock_.now() + kExchangeLimit;
      while (!over_ && node.exchanging() && clock_.now() < until)
        changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
    const std::optional<Status> over = over_;
    const bool joined = joined_;
    lock.unlock();
    if (!over) {
      node.depart("it was asked to end");
      return {};
    }
    if (node.budget_over()) node.depart(over->message());
    if (!joined || node.budget_over()) return *over;
    log_info("this swarm is over: " + over->message());
    return {};
  }

  void told(const Status& status) {
    if (status.ok()) log_info("the anchor is in place; this helper owns slices from the next round on");
    {
      const std::lock_guard lock(mutex_);
      if (status.ok()) {
        joined_ = true;
      } else {
        over_ = status;
      }
    }
    changed_.notify_all();
  }

  const HelperOptions options_;
  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;         // guarded by mutex_, as are the next three
  bool joined_ = false;          // true once it has joined the swarm last found
  std::optional<Status> over_;   // the end of the membership
  std::optional<Status> ended_;  // the end of the helper
  std::thread thread_;           // last, as it uses all the others
};

}  // namespace

Result<std::unique_ptr<HelperServer>> serve_helper(HelperOptions options) {
  if (options.coordinators.empty()) {
    return invalid_argument("no coordinator to join: set COLLAB_COORDINATOR=HOST:PORT [join.helper-no-coordinator]");
  }
  const Result<LogLevel> level = log_level_from_name(options.config.log_level);
  if (!level.ok()) return level.status();
  suggest_log(*level, options.site);
  return std::unique_ptr<HelperServer>(std::make_unique<Helper>(std::move(options)));
}

}  // namespace collab
