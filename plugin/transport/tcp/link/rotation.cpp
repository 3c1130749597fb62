#include "transport/tcp/link/rotation.h"

#include <algorithm>

#include "transport/tcp/connection/tcp_kernel.h"
#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

constexpr std::size_t kShifts = 3;
constexpr Duration kShift = std::chrono::milliseconds(5500);
constexpr std::uint16_t kMostWithBbr = 12;  // a third of them at work

bool needs_rest(const std::string& congestion) { return congestion == "bbr" && !off(Mechanism::kRotation); }

}  // namespace

void Rotation::attached(const Connection& connection, const std::string& congestion) {
  const std::size_t index = connection.slot.index();
  if (rests_.size() <= index) rests_.resize(index + 1);
  rests_[index] = needs_rest(congestion) && !connection.peer().address().is_loopback();
}

std::uint16_t Rotation::most(const std::string& congestion) {
  return needs_rest(congestion) ? kMostWithBbr : kMaxDataConnections;
}

void Rotation::tick(TimePoint now, const LinkConnections& connections) {
  const bool none_rests = std::ranges::find(rests_, true) == rests_.end();
  if (none_rests || now - since_ <= kShift || !next_is_at_rest(connections)) return;
  ++shift_;
  since_ = now;
}

// If a ping or its answer is in flight when a shift begins, BBR does not notice the rest.
bool Rotation::next_is_at_rest(const LinkConnections& connections) const {
  bool relieves = false, moves = false;
  for (std::size_t i = 1; i < connections.size(); ++i) {
    if (!connections.attached(i)) continue;
    relieves = relieves || i % kShifts == shift_ % kShifts;
    if (i % kShifts != (shift_ + 1) % kShifts) continue;
    const std::optional<KernelFigures> figures = kernel_figures(connections.at(i)->handle());
    moves = moves || (figures && figures->in_flight);
  }
  return !relieves || !moves;  // with nobody on shift, all work and none rests
}

std::vector<Connection*> Rotation::at_work(const LinkConnections& connections, std::size_t most) const {
  std::vector<Connection*> all, on_shift;
  for (std::size_t i = 1; i < connections.size() && i <= most; ++i) {
    if (!connections.attached(i) || connections.at(i)->slot.held()) continue;
    all.push_back(connections.at(i).get());
    if (i < rests_.size() && rests_[i] && i % kShifts == shift_ % kShifts) on_shift.push_back(all.back());
  }
  return on_shift.empty() ? all : on_shift;
}

}  // namespace collab::tcp
