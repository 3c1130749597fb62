#include "transport/tcp/engine/upkeep.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr Duration kEaseEvery = std::chrono::seconds(2);
constexpr Duration kTrimEvery = std::chrono::seconds(10);
constexpr std::uint64_t kManyConnections = 200;
constexpr std::size_t kMuch = std::size_t{64} << 20;

}  // namespace

Upkeep::Upkeep(EngineParts& all, std::function<void()> tick)
    : all_(all), tick_(std::move(tick)), ticker_(all.context.io) {}

void Upkeep::keep_ticking() {
  if (ticking_ || all_.context.stopped || (all_.links.empty() && all_.strangers.empty())) return;
  ticking_ = true;
  const TimePoint now = all_.now();
  if (last_tick_ + all_.context.soft_limit < now) last_tick_ = now;
  const Duration heartbeat = all_.context.options.heartbeat;
  ticker_.expires_after(
      std::clamp<Duration>(heartbeat / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(50)));
  ticker_.async_wait([this](const boost::system::error_code& error) {
    ticking_ = false;
    if (!error && !all_.context.stopped) tick_();
  });
}

bool Upkeep::begin_tick(TimePoint now) { return now - std::exchange(last_tick_, now) > all_.context.soft_limit / 2; }

void Upkeep::ease(TimePoint now) {
  if (all_.links.empty()) all_.context.pool->trim();
  if (now < ease_at_) return;
  ease_at_ = now + kEaseEvery;
  const TcpContext& context = all_.context;
  context.pool->ease();
  const std::size_t held = context.unfinished->held + context.unhandled->held + context.control->held;
  const std::uint64_t came = context.counters.opened + context.counters.refused;
  was_much_ = was_much_ || held > kMuch || came > came_before_ + kManyConnections;
  came_before_ = came;
  if (held < kMuch / 4 && now >= trim_at_ && std::exchange(was_much_, false)) {
    trim_at_ = now + kTrimEvery;
    ::malloc_trim(0);  // what was small lies in pieces all over the heap
  }
}

}  // namespace collab::tcp
