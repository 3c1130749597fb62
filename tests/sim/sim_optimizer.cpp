#include "tests/sim/sim_optimizer.h"

#include <algorithm>
#include <utility>

#include "core/base/digest.h"

namespace collab::sim {
namespace {

constexpr std::uint64_t kMoments = 2 * sizeof(float);  // of an element, as Adam keeps them
constexpr double kLies = 0.1;
constexpr double kIsLate = 0.1;
constexpr double kHasNone = 0.1;
constexpr double kDoesNotFit = 0.1;  // the joiner's optimizer
constexpr Duration kReadingTakes{20'000};

}  // namespace

SimOptimizer::SimOptimizer(const Options& options, Transport& transport, const Clock& clock, Checkers& checkers,
                           Feed feed, Later later)
    : options_(options),
      clock_(clock),
      checkers_(checkers),
      feed_(std::move(feed)),
      later_(std::move(later)),
      prng_(options.seed ^ 0x0971'317E'0000'0000),
      transfer_(transport, clock, options.limit,
                options.on ? "it has not made a step yet" : "it does not serve optimizer state") {}

std::vector<std::byte> SimOptimizer::content_of(const std::string& description, std::uint64_t bytes) {
  Prng draw(hash64(std::as_bytes(std::span(description))));
  std::vector<std::byte> content(bytes);
  for (std::byte& byte : content) byte = static_cast<std::byte>(draw.next());
  return content;
}

// ---- serving ---------------------------------------------------------------------------------------

void SimOptimizer::asked(const protocol::ServeOptimizer& action, const std::string& why_none) {
  transfer_.asked(action, why_none);
}

void SimOptimizer::stepped() {
  if (!options_.on) return;
  if (steps_++ == 0) transfer_.serve({});
  stands();
}

void SimOptimizer::stands() {
  if (transfer_.wanted()) serve();
}

// One that lies sends other bytes than those whose digest it told. One that is late makes its copy when no site waits
// for it any more.
void SimOptimizer::serve() {
  transfer_.being_given();
  if (prng_.chance(kHasNone)) return transfer_.given(unavailable("its optimizer keeps no state"));
  const std::string description = options_.process + " after step " + std::to_string(steps_);
  auto bytes = std::make_shared<std::vector<std::byte>>(content_of(description, kMoments * options_.elements));
  const bool lies = prng_.chance(kLies);
  const std::uint64_t at = prng_.below(bytes->size());
  const auto give = [this, description, bytes, lies, at] {
    transfer_.given(OptimizerCopy{description, *bytes, bytes});
    if (lies) (*bytes)[at] ^= std::byte{0x40};
  };
  if (!prng_.chance(kIsLate)) return give();
  later_(options_.limit + Duration(prng_.below(20'000'000)), give);
}

// ---- fetching --------------------------------------------------------------------------------------

void SimOptimizer::fetch(std::function<void()> ready) {
  ready_ = std::move(ready);
  transfer_.begin_search();
  feed_(protocol::FindOptimizerSource{});
}

void SimOptimizer::act(const protocol::OptimizerOffered& action) {
  transfer_.offered(action);
  offered_ = action;
  later_(kReadingTakes, [this] {
    if (prng_.chance(kDoesNotFit)) return end(offered_.from + ": it is of another optimizer");
    transfer_.begin_taking();
    feed_(protocol::TakeOptimizer{});
  });
}

void SimOptimizer::act(const protocol::OptimizerComplete&) {
  const Result<BufferPtr> whole = transfer_.complete();
  if (!whole.ok()) {
    ++report_.wrong;
    return feed_(protocol::OptimizerUnfit{whole.status().message()});
  }
  const std::span<const std::byte> bytes = (*whole)->view();
  if (!std::ranges::equal(bytes, content_of(offered_.state.description, bytes.size()))) {
    checkers_.fail(options_.process + " was given another optimizer's state than " + offered_.from + " had offered");
  }
  ++report_.taken;
  end({});
}

// Another member may have one.
void SimOptimizer::act(const protocol::OptimizerLost&) { feed_(protocol::FindOptimizerSource{}); }

void SimOptimizer::end(const std::string& cold) {
  if (!cold.empty()) ++report_.cold;
  static_cast<void>(transfer_.ended(cold));
  feed_(protocol::EndOptimizer{});
  if (const auto ready = std::exchange(ready_, nullptr)) ready();
}

}  // namespace collab::sim
