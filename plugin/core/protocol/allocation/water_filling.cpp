#include "core/protocol/allocation/water_filling.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace collab::protocol {
namespace {

struct Population {
  double contributors = 0;
  double receivers = 0;
};

Population count(std::span<const Line> lines) {
  const auto contributors =
      std::count_if(lines.begin(), lines.end(), [](const Line& line) { return line.contributes; });
  return {static_cast<double>(contributors), static_cast<double>(lines.size())};
}

// A volume or a time as a linear function of the share: its value at share 0, and the increase to share 1.
struct Straight {
  double at_none = 0;
  double slope = 0;
  [[nodiscard]] double at(double share) const { return at_none + slope * share; }
  [[nodiscard]] Straight over(double rate) const { return {at_none / rate, slope / rate}; }
};

Straight sent(const Line& line, const Population& who, double ratio) {
  const double own = line.contributes ? 1 : 0;
  return {own, (who.receivers - 1) * ratio - own};
}

Straight received(const Line& line, const Population& who, double ratio) {
  const double own = line.contributes ? 1 : 0;
  return {ratio, who.contributors - own - ratio};
}

// The times of one site's two directions, and the shares for which both stay within a time.
class Basin {
 public:
  Basin(const Line& line, const Population& who, double ratio)
      : times_{sent(line, who, ratio).over(line.up), received(line, who, ratio).over(line.down)},
        most_(line.may_own ? 1 : 0) {
    floor_ = std::min(worst(0), worst(most_));
    if (const double at = crossing(); at > 0 && at < most_) floor_ = std::min(floor_, worst(at));
  }

  struct Range {
    double least = 0;
    double most = 0;
  };
  // For a time below the least possible one here: the shares that take the least time.
  [[nodiscard]] Range within(double time) const {
    time = std::max(time, floor_);
    Range range{0, most_};
    for (const Straight& line : times_) {
      if (line.slope > 0) range.most = std::min(range.most, (time - line.at_none) / line.slope);
      if (line.slope < 0) range.least = std::max(range.least, (time - line.at_none) / line.slope);
    }
    range.least = std::clamp(range.least, 0.0, most_);
    range.most = std::clamp(range.most, range.least, most_);
    return range;
  }

  // The times at which `within` bends.
  [[nodiscard]] std::array<double, 6> bends() const {
    const auto& [up, down] = times_;
    return {floor_, up.at(0), down.at(0), up.at(most_), down.at(most_), worst(std::clamp(crossing(), 0.0, most_))};
  }

 private:
  [[nodiscard]] double worst(double share) const { return std::max(times_[0].at(share), times_[1].at(share)); }
  [[nodiscard]] double crossing() const {
    const double slopes = times_[0].slope - times_[1].slope;
    return slopes == 0 ? 0 : (times_[1].at_none - times_[0].at_none) / slopes;
  }

  std::array<Straight, 2> times_;
  double most_;
  double floor_;
};

struct Level {
  double time = 0;
  double least = 0;  // the least sum of shares that is possible within that time
  double most = 0;
};

Level level_at(double time, std::span<const Basin> basins) {
  Level level{time};
  for (const Basin& basin : basins) {
    const Basin::Range range = basin.within(time);
    level.least += range.least;
    level.most += range.most;
  }
  return level;
}

bool holds_all(const Level& level) { return level.least <= 1 && level.most >= 1; }

// The first time at which the shares can add up to 1. Between two bends the sums are linear.
double fill_level(std::span<const Basin> basins) {
  std::vector<double> bends{0};
  for (const Basin& basin : basins) {
    for (const double bend : basin.bends()) bends.push_back(bend);
  }
  std::sort(bends.begin(), bends.end());
  const auto first =
      std::partition_point(bends.begin(), bends.end(), [&](double time) { return !holds_all(level_at(time, basins)); });
  if (first == bends.end()) return bends.back();  // by rounding
  if (first == bends.begin()) return *first;
  const Level below = level_at(*(first - 1), basins);
  const Level above = level_at(*first, basins);
  const auto reaches = [&](double from, double to) { return (1 - from) / (to - from); };
  const double way = below.most < 1 ? reaches(below.most, above.most) : reaches(below.least, above.least);
  return below.time + std::clamp(way, 0.0, 1.0) * (above.time - below.time);
}

}  // namespace

std::vector<Share> fill_lines(std::span<const Line> lines, double mean_ratio) {
  if (std::none_of(lines.begin(), lines.end(), [](const Line& line) { return line.may_own; })) return {};
  const Population who = count(lines);
  std::vector<Basin> basins;
  for (const Line& line : lines) basins.emplace_back(line, who, mean_ratio);
  const Level level = level_at(fill_level(basins), basins);
  const double room = level.most - level.least;
  const double way = room > 0 ? std::clamp((1 - level.least) / room, 0.0, 1.0) : 0;
  std::vector<Share> shares;
  double total = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Basin::Range range = basins[i].within(level.time);
    shares.push_back({lines[i].site, range.least + way * (range.most - range.least)});
    total += shares.back().share;
  }
  for (Share& share : shares) share.share /= total;
  return shares;
}

std::vector<Volume> volumes(std::span<const Line> lines, std::span<const Share> shares, double mean_ratio) {
  const Population who = count(lines);
  double total = 0;
  for (const Share& share : shares) total += share.share;
  std::vector<Volume> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double share = shares[i].share / total;
    found.push_back({sent(lines[i], who, mean_ratio).at(share), received(lines[i], who, mean_ratio).at(share)});
  }
  return found;
}

double exchange_time(std::span<const Line> lines, std::span<const Share> shares, double mean_ratio) {
  const std::vector<Volume> of = volumes(lines, shares, mean_ratio);
  double longest = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    longest = std::max({longest, of[i].up / lines[i].up, of[i].down / lines[i].down});
  }
  return longest;
}

}  // namespace collab::protocol
