// Which share of the vector each site owns in the attempts of a round, by the rates that the sites have measured.
//
// Shares are equal until a site has measured its rate. Within a round they stay as they are, except those of lost
// sites. From round to round they move only if the exchange gets shorter by more than a tenth (water_filling.h computes
// its length).
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

// How many times as large as a contribution a mean is; `codec` as in COLLAB_CODEC. 1 where it names no codecs.
[[nodiscard]] double mean_ratio_of(std::string_view codec);

class BandwidthPartition {
 public:
  // The shares of an attempt's sites, in the order of `lines`; a rate of 0 is not known.
  struct Division {
    std::vector<Share> shares;
    std::optional<double> takes;  // if shares were moved: the part of the time that the exchange would have taken
  };
  [[nodiscard]] Division divide(RunId run, RoundId round, std::vector<Line> lines, double mean_ratio);
  // The same for all that may own.
  [[nodiscard]] std::vector<Share> divide_equally(RunId run, RoundId round, const std::vector<Line>& lines);

  // In all 1; 0: it owns nothing.
  [[nodiscard]] double share_of(SiteId site) const;

 private:
  friend struct Inside;
  [[nodiscard]] std::vector<Share> kept(const std::vector<Line>& lines) const;
  [[nodiscard]] Division choose(std::vector<Line> lines, std::vector<Share> kept, double mean_ratio) const;
  void take(RunId run, RoundId round, const std::vector<Share>& shares);

  RunId run_;  // of the attempt formed last
  RoundId round_;
  std::map<SiteId, double> of_;
};

}  // namespace collab::protocol
