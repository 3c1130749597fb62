#include "transport/tcp/link/redial.h"

#include <algorithm>
#include <utility>

namespace collab::tcp {
namespace {

constexpr Duration kFirstBackOff = std::chrono::milliseconds(100);
constexpr Duration kFlapBackOff = std::chrono::milliseconds(200);
constexpr Duration kLongestBackOff = std::chrono::seconds(2);
constexpr Duration kSteady = std::chrono::seconds(1);

}  // namespace

void Redial::found(Endpoints endpoints) { endpoints_ = std::move(endpoints); }

void Redial::found_anew(Endpoints current) {
  const Endpoint turn = to();
  endpoints_ = std::move(current);
  const auto at = std::ranges::find(endpoints_, turn);
  next_ = at == endpoints_.end() ? 0 : static_cast<std::size_t>(at - endpoints_.begin());
}

bool Redial::try_another() { return ++next_ < endpoints_.size(); }

void Redial::take_turns() { next_ = (next_ + 1) % endpoints_.size(); }

TimePoint Redial::opening_limit(TimePoint now) const {
  const auto left = static_cast<Duration::rep>(endpoints_.size() - next_);
  return left == 1 ? kNever : now + (open_by_ - now) / left;
}

bool Redial::port_refused() { return std::cmp_greater_equal(++refused_ports_, 2 * endpoints_.size()); }

void Redial::lived(std::size_t index, Duration time) {
  Duration& back_off = entry(index).back_off;
  back_off = time >= kSteady ? Duration(0) : std::min(back_off, kFlapBackOff);
}

bool Redial::plan(std::size_t index, TimePoint now, double jitter) {
  Entry& planned = entry(index);
  planned.at = now + std::chrono::duration_cast<Duration>(planned.back_off * jitter);
  const bool at_once = planned.back_off == Duration(0);
  planned.back_off = std::clamp<Duration>(2 * planned.back_off, kFirstBackOff, kLongestBackOff);
  return at_once;
}

Redial::Entry& Redial::entry(std::size_t index) {
  if (entries_.size() <= index) entries_.resize(index + 1);
  return entries_[index];
}

}  // namespace collab::tcp
