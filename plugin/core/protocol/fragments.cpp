#include "core/protocol/fragments.h"

#include <charconv>

namespace collab::protocol {

ElementRange Fragments::range(std::uint64_t elements, std::uint32_t fragment) const {
  constexpr std::uint64_t kCoarsePerFragment = 16;  // with fewer, rounding would make fragments unequal
  const std::uint64_t grain =
      elements >= count * kCoarsePerFragment * kCoarseElements ? kCoarseElements : kBlockElements;
  const std::uint64_t grains = elements / grain;
  const auto begin = [&](std::uint64_t number) { return number == count ? elements : number * grains / count * grain; };
  return {begin(fragment), begin(fragment + 1)};
}

Fragments fragments_for(std::uint32_t count, std::uint64_t elements) {
  const Fragments fragments{count};
  const bool sound = count >= 1 && count <= kMostFragments && elements >= fragments.least_elements();
  return sound ? fragments : Fragments{};
}

Fragments fragments_of(const std::vector<wire::Setting>& settings, std::uint64_t elements) {
  const auto said = value_of(settings, "fragments");
  if (!said) return {};
  std::uint32_t count = 1;
  const char* const end = said->data() + said->size();
  const auto [rest, error] = std::from_chars(said->data(), end, count);
  return error == std::errc() && rest == end ? fragments_for(count, elements) : Fragments{};
}

}  // namespace collab::protocol
