#include "core/protocol/coordinator/tally.h"

#include <algorithm>
#include <limits>

namespace collab::protocol {

void Tally::add(const std::string& name, std::uint64_t samples) {
  if (!by_name_.contains(name) && by_name_.size() == kMaxNames) {
    by_name_.erase(std::ranges::min_element(by_name_, {}, [](const auto& entry) { return entry.second.samples; }));
  }
  Contributed& of = by_name_[name];
  of.name = name;
  of.samples += std::min(samples, std::numeric_limits<std::uint64_t>::max() - of.samples);
  ++of.rounds;
}

std::vector<Contributed> Tally::top(std::size_t count) const {
  std::vector<Contributed> all;
  for (const auto& [name, of] : by_name_) all.push_back(of);
  std::ranges::stable_sort(all, std::ranges::greater(), &Contributed::samples);
  if (all.size() > count) all.resize(count);
  return all;
}

}  // namespace collab::protocol
