#include "core/protocol/allocation/bandwidth_partition.h"

#include <algorithm>
#include <utility>

#include "collab/codec.h"

namespace collab::protocol {
namespace {

constexpr double kWorthMoving = 1.1;     // shares move if the exchange gets more than a tenth shorter
constexpr double kWorthSettling = 1.03;  // equal shares come back if they gain this much,
constexpr double kWorthKeeping = 1.05;   // and other shares would gain no more than this
constexpr double kMostUnseen = 4;        // how many times faster a line may be than its measured rate
constexpr double kLeastOfEqual = 20;     // a share below this part of an equal share is not worth owning

std::vector<Share> equal_shares(const std::vector<Line>& lines) {
  std::vector<Share> shares;
  for (const Line& line : lines) shares.push_back({line.site, line.may_own ? 1.0 : 0.0});
  return shares;
}

bool measured(const std::vector<Line>& lines) {
  const auto somebody = [&](double Line::*rate) {
    return std::any_of(lines.begin(), lines.end(), [rate](const Line& line) { return line.*rate > 0; });
  };
  return somebody(&Line::up) && somebody(&Line::down);
}

// A site that was not measured counts like the slowest measured site. It gets little, but enough to show its speed.
// The measured rate down is limited by what others send. So it counts as the rate up, but at most kMostUnseen times
// the measured rate down.
void assume(std::vector<Line>& lines) {
  for (double Line::*rate : {&Line::up, &Line::down}) {
    double slowest = 0;
    for (const Line& line : lines) {
      if (line.*rate > 0) slowest = slowest == 0 ? line.*rate : std::min(slowest, line.*rate);
    }
    for (Line& line : lines) {
      if (line.*rate <= 0) line.*rate = slowest;
    }
  }
  for (Line& line : lines) line.down = std::clamp(line.up, line.down, kMostUnseen * line.down);
}

std::map<SiteId, double> whole_of(const std::vector<Share>& shares) {
  double total = 0;
  for (const Share& share : shares) total += share.share;
  std::map<SiteId, double> of;
  for (const Share& share : shares) of[share.site] = share.share / total;
  return of;
}

void drop_crumbs(std::vector<Share>& shares) {
  const auto owners = std::count_if(shares.begin(), shares.end(), [](const Share& s) { return s.share > 0; });
  const double least = 1 / (kLeastOfEqual * static_cast<double>(owners));
  for (Share& share : shares) share.share = share.share < least ? 0 : share.share;
}

}  // namespace

double mean_ratio_of(std::string_view codec) {
  constexpr std::size_t kElements = std::size_t{1} << 20;  // enough that blocks do not matter
  const Result<Codecs> codecs = codecs_from_name(codec);
  if (!codecs.ok()) return 1;
  const auto bytes = [](CodecId id) { return static_cast<double>(codec_for(id).encoded_size(kElements)); };
  return bytes(codecs->down) / bytes(codecs->up);
}

double BandwidthPartition::share_of(SiteId site) const {
  const auto found = of_.find(site);
  return found == of_.end() ? 0 : found->second;
}

// The last shares, of the sites that take part and can still own slices. Empty: no such site.
std::vector<Share> BandwidthPartition::kept(const std::vector<Line>& lines) const {
  std::vector<Share> kept;
  double total = 0;
  for (const Line& line : lines) {
    kept.push_back({line.site, line.may_own ? share_of(line.site) : 0.0});
    total += kept.back().share;
  }
  if (total == 0) kept.clear();
  return kept;
}

void BandwidthPartition::take(RunId run, RoundId round, const std::vector<Share>& shares) {
  run_ = run;
  round_ = round;
  of_ = whole_of(shares);
}

std::vector<Share> BandwidthPartition::divide_equally(RunId run, RoundId round, const std::vector<Line>& lines) {
  std::vector<Share> shares = equal_shares(lines);
  take(run, round, shares);
  return shares;
}

BandwidthPartition::Division BandwidthPartition::divide(RunId run, RoundId round, std::vector<Line> lines,
                                                        double mean_ratio) {
  if (!measured(lines)) return {divide_equally(run, round, lines), {}};
  Division chosen{kept(lines), {}};
  if (run_ != run || round_ != round || chosen.shares.empty()) {
    chosen = choose(std::move(lines), std::move(chosen.shares), mean_ratio);
  }
  take(run, round, chosen.shares);
  return chosen;
}

BandwidthPartition::Division BandwidthPartition::choose(std::vector<Line> lines, std::vector<Share> kept,
                                                        double mean_ratio) const {
  assume(lines);
  const auto owning = std::count_if(kept.begin(), kept.end(), [](const Share& s) { return s.share > 0; });
  const auto owned = std::count_if(of_.begin(), of_.end(), [](const auto& s) { return s.second > 0; });
  const bool all_kept = owning > 0 && owning == owned;
  std::vector<Share> before = all_kept ? std::move(kept) : equal_shares(lines);
  std::vector<Share> filled = fill_lines(lines, mean_ratio);
  drop_crumbs(filled);
  const double before_takes = exchange_time(lines, before, mean_ratio);
  const double filled_takes = exchange_time(lines, filled, mean_ratio);
  std::vector<Share> equal = equal_shares(lines);
  const double equal_takes = exchange_time(lines, equal, mean_ratio);
  // The gain must be more than rounding, and more than rates usually vary.
  const bool equal_will_do = equal_takes * kWorthSettling < before_takes && equal_takes <= kWorthKeeping * filled_takes;
  if (!equal_will_do && filled_takes * kWorthMoving >= before_takes) return {std::move(before), {}};
  return equal_will_do ? Division{std::move(equal), equal_takes / before_takes}
                       : Division{std::move(filled), filled_takes / before_takes};
}

}  // namespace collab::protocol
