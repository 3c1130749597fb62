// How fast a link sends, and over how many connections.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "transport/tcp/tcp_engine.h"
#include "transport/tcp/tcp_kernel.h"

namespace collab::tcp {
namespace {

constexpr double kWorthSetting = 0.005;   // of the pace
constexpr double kSlow = 2e6;             // bytes a second: a large segment takes its time
constexpr double kUnsentSeconds = 0.008;  // that a socket holds, at the pace
// BBR (version 1) sends next to nothing for 200 ms and a round trip when it has seen no shorter round trip for 10 s, to
// see one. After a longer pause it takes that of the first packets instead. So connections work in three shifts: 5.5 s
// of work, then 11 s of rest. What was on its way when the rest began may show a shorter round trip than any before,
// and the 10 s count from there.
constexpr Duration kShift = std::chrono::milliseconds(5500);
constexpr Duration kArrives = std::chrono::milliseconds(500);

// A ping, or the answer to one, that is on its way when the work begins hides from BBR that there was a rest.
bool next_is_at_rest(const TcpLink& link) {
  bool relieves = false, moves = false;
  for (std::size_t i = 1; i < link.slots.size(); ++i) {
    if (!link.slots[i].attached()) continue;
    relieves = relieves || i % kShifts == link.shift % kShifts;
    if (i % kShifts != (link.shift + 1) % kShifts) continue;
    const std::optional<KernelFigures> figures = kernel_figures(link.slots[i].connection->handle());
    moves = moves || (figures && figures->in_flight);
  }
  return !relieves || !moves;  // where nobody is on shift all work, and none rests
}

}  // namespace

void TcpEngine::tune(TcpLink& link, TimePoint time) {
  const bool now = link.outbox(Lane::kData).backlogged();
  const bool backlogged = std::exchange(link.was_backlogged, now) && now;
  link.backlog.note(time, link.waits());
  link.silent = false;
  if (link.alone()) {
    link.pace.pause();
    link.silence.forget();
    return;
  }
  keep_pace(link, time, backlogged);
  if (options_.connections == 0) search(link, time, backlogged);
}

// Each of the connections that work: what one has been given stays long on its way.
bool TcpEngine::slow(const TcpLink& link, std::size_t carriers) const {
  if (carriers > kFewCarriers) return true;
  const auto is_slow = [&](double rate) { return rate > 0 && rate < kSlow * static_cast<double>(carriers); };
  return is_slow(link.pace.rate()) || is_slow(up_.rate()) || is_slow(link.allowed.rate());
}

void TcpEngine::watch_exchange(TimePoint time) {
  const auto waits = [](const auto& entry) { return entry.second->waits(); };
  backlog_.note(time, std::any_of(links_.begin(), links_.end(), waits));
  compare_links();
  if (!backlog_.over(time)) return;
  for (const auto& [id, link] : links_) link->pace.exchange_ended(link->backlog.take_share(backlog_));
  backlog_ = {};
}

// Of all links at one time.
void TcpEngine::compare_links() {
  const auto to_go = [](TcpLink& link) { return static_cast<double>(link.outbox(Lane::kData).bytes_to_go()); };
  Remaining remaining;
  for (const auto& [id, link] : links_) {
    if (link->waits()) remaining.add(to_go(*link), link->pace.line());
  }
  for (const auto& [id, link] : links_) {
    link->behind = link->waits() ? remaining.behind(to_go(*link), link->pace.line()) : 0;
  }
}

void TcpEngine::keep_pace(TcpLink& link, TimePoint time, bool backlogged) {
  // Where nothing arrives any more, the next shift would only put more on its way that is lost.
  const bool arrives = time - link.data_arrived < kArrives + 4 * link.round_trip;
  if (backlogged && arrives && time - link.shift_since > kShift && next_is_at_rest(link)) {
    ++link.shift;
    link.shift_since = time;
  }
  const std::vector<Connection*> carriers = link.carriers(in_use(link));
  if (carriers.empty()) {
    link.pace.pause();
    link.silence.forget();
    return;
  }
  if (carriers.front()->peer().address().is_loopback()) return;
  LinkPace::Sight sight;
  if (backlogged) {
    const std::optional<LinkPace::Sight> seen = look(link, carriers);
    if (!seen) return;
    sight = *seen;
    sight.behind = link.behind;
    ask_reachability(link, time);
    const Duration round_trip = std::max(link.round_trip, sight.round_trip);
    link.silent = link.silence.observe(time, sight.delivered, sight.round_trip != Duration(0), round_trip);
  } else {
    link.silence.forget();
    link.way_out.reset();  // clocks drift apart: old news are wrong
  }
  const double rate = link.pace.observe(time, sight);
  const double share = rate / static_cast<double>(carriers.size());
  std::size_t unsent = carriers.size() > kFewCarriers ? kSmallSegmentBytes : kUnsentBytes;
  if (rate > 0) {
    unsent =
        std::clamp(std::bit_ceil(static_cast<std::size_t>(share * kUnsentSeconds)), kSmallSegmentBytes, kUnsentBytes);
  }
  for (Connection* const carrier : carriers) {
    if (std::exchange(carrier->unsent, unsent) != unsent) hold_unsent(carrier->handle(), unsent);
    if (std::abs(share - carrier->pace) <= kWorthSetting * share) continue;
    carrier->pace = share;
    set_pace(carrier->handle(), share);
  }
}

std::optional<LinkPace::Sight> TcpEngine::look(TcpLink& link, const std::vector<Connection*>& carriers) {
  for (std::size_t i = 1; i < link.slots.size(); ++i) {
    if (!link.slots[i].attached()) continue;
    Connection* const carrier = link.slots[i].connection.get();
    const std::optional<KernelFigures> figures = kernel_figures(carrier->handle());
    if (!figures) return std::nullopt;
    const KernelFigures last = std::exchange(carrier->figures, figures).value_or(*figures);
    link.delivered += std::uint64_t{figures->delivered - last.delivered} * figures->packet_bytes;
    link.resent += std::uint64_t{figures->resent - last.resent} * figures->packet_bytes;
  }
  LinkPace::Sight sight;
  sight.backlogged = true;
  sight.delivered = link.delivered;
  sight.resent = link.resent;
  sight.way_out = std::exchange(link.way_out, std::nullopt);
  for (const Connection* const carrier : carriers) {
    if (!carrier->figures || !carrier->figures->in_flight || carrier->figures->round_trip == Duration(0)) continue;
    const Duration took = carrier->figures->round_trip;
    if (sight.round_trip == Duration(0) || took < sight.round_trip) sight.round_trip = took;
  }
  return sight;
}

// How long the way out takes is seen by pings on the control connection, which no data of ours holds up.
void TcpEngine::ask_reachability(TcpLink& link, TimePoint time) {
  Connection* const control = link.slots[0].attached() ? link.slots[0].connection.get() : nullptr;
  if (control == nullptr || control->held || control->overfull()) return;
  control->send(encode_ping(stamp_of(time)));
  control->flush();
}

// How many data connections move the most.
void TcpEngine::search(TcpLink& link, TimePoint time, bool backlogged) {
  const std::uint64_t arrived = link.outbox(Lane::kData).bytes_arrived();
  const std::uint16_t before = link.search.wanted();
  const bool capped = up_.capped() || link.allowed.capped();
  const std::uint16_t after = link.search.observe(time, arrived, backlogged, link.round_trip, link.attached_data(),
                                                  capped || link.pace.sees_queue());
  if (after == before) return;
  log_debug("tcp: link to " + link.peer + ": " + std::to_string(after) + " data connections instead of " +
            std::to_string(before));
  if (link.dialled) {
    remembered_[link.peer] = after;
    dial_missing(link);
    return;
  }
  link.wish = after;
  if (Connection* const control = link.control(); control != nullptr) {
    control->send(encode_want(after));
    control->flush();
  }
}

}  // namespace collab::tcp
