#include "transport/tcp/engine/upkeep.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr Duration kEaseEvery = std::chrono::seconds(2);

}  // namespace

Upkeep::Upkeep(EngineParts& all, std::function<void()> tick)
    : all_(all), tick_(std::move(tick)), ticker_(all.context.io) {}

void Upkeep::keep_ticking() {
  const bool idle = all_.links.empty() && all_.pending.empty() && !trims_.owes();
  if (ticking_ || all_.context.stopped || idle) return;
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

void Upkeep::trim_idle(TimePoint now) {
  const TcpContext& context = all_.context;
  if (all_.links.empty()) context.pool->trim();
  const std::size_t held =
      context.unfinished->held + context.unhandled->held + context.control->held + all_.links.data_cost();
  // Freed small blocks leave the heap fragmented: give unused pages back to the system.
  if (trims_.is_due(now, held, context.counters.opened + context.counters.refused)) ::malloc_trim(0);
  if (now < trim_at_) return;
  trim_at_ = now + kEaseEvery;
  context.pool->trim_idle();
}

}  // namespace collab::tcp
