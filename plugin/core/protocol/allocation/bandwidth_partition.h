// Which share of the vector each site owns in the attempts of a round, by the rates that the sites have measured.
//
// Shares are equal until a site has measured its rate. Within a round they do not change, except for lost sites.
// Between rounds they change only if that makes the exchange shorter by more than a tenth (water_filling.h computes its
// length).
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "core/protocol/allocation/water_filling.h"
#include "core/protocol/exchange/slice_table.h"

namespace collab::protocol {

// The size of an encoded mean divided by that of a contribution; `codec` as in COLLAB_CODEC. 1 if it names no codecs.
[[nodiscard]] double mean_ratio_of(std::string_view codec);

class BandwidthPartition {
 public:
  // The shares of an attempt's sites, in the order of `lines`; a rate of 0 means not known.
  struct Division {
    std::vector<Share> shares;
    std::optional<double> takes;  // if shares changed: the exchange's new time, as a fraction of the old one
  };
  [[nodiscard]] Division divide(RunId run, RoundId round, std::vector<Line> lines, double mean_ratio);
  // Equal shares for all sites that may own.
  [[nodiscard]] std::vector<Share> divide_equally(RunId run, RoundId round, const std::vector<Line>& lines);

  // The shares of all sites add up to 1; 0: the site owns nothing.
  [[nodiscard]] double share_of(SiteId site) const;

 private:
  friend struct Inside;
  [[nodiscard]] std::vector<Share> kept(const std::vector<Line>& lines) const;
  [[nodiscard]] Division choose(std::vector<Line> lines, std::vector<Share> kept, double mean_ratio) const;
  void take(RunId run, RoundId round, const std::vector<Share>& shares);

  RunId run_;  // of the last attempt
  RoundId round_;
  std::map<SiteId, double> of_;
};

}  // namespace collab::protocol
