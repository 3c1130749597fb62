// Which share of the vector each site owns in the attempts of a round, by the rates that the sites have measured.
//
//   equal, until somebody has measured --worth it--> by the rates, on trial --a round took longer--> those before, for
//   a while                                             +--a round did not--> kept
//
// Within a round shares stay as they are, but for those of sites that are lost. From round to round they move only
// where the exchange gets shorter by more than a tenth (water_filling.h tells how long it takes).
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "collab/clock.h"
#include "core/protocol/allocation/water_filling.h"
#include "core/protocol/exchange/slice_table.h"

namespace collab::protocol {

// How many times as large as a contribution a mean is; `codec` as in COLLAB_CODEC. 1 where it names no codecs.
[[nodiscard]] double mean_ratio_of(std::string_view codec);

class BandwidthPartition {
 public:
  // Of the sites of an attempt, in the order of `lines`; a rate of 0 is not known.
  struct Division {
    std::vector<Share> shares;
    std::optional<double> takes;  // they were moved: of the time that the exchange would have taken, this part
  };
  [[nodiscard]] Division divide(RunId run, RoundId round, std::vector<Line> lines, double mean_ratio);
  // The same for all that may own.
  [[nodiscard]] std::vector<Share> divide_equally(RunId run, RoundId round, const std::vector<Line>& lines);

  // A round is committed, and its exchange took so long; `comparable`: in one attempt, of these sites. Gives how long
  // it took with the shares before, where those are taken back.
  [[nodiscard]] std::optional<Duration> committed(RoundId round, Duration took, bool comparable);

  // In all 1; 0: it owns nothing.
  [[nodiscard]] double share_of(SiteId site) const;
  [[nodiscard]] std::size_t sites() const { return of_.size(); }

 private:
  friend struct Inside;
  [[nodiscard]] std::vector<Share> kept(const std::vector<Line>& lines) const;
  [[nodiscard]] Division choose(RunId run, RoundId round, std::vector<Line> lines, std::vector<Share> kept,
                                double mean_ratio);
  void take(RunId run, RoundId round, const std::vector<Share>& shares);

  RunId run_;  // of the attempt formed last
  RoundId round_;
  std::map<SiteId, double> of_;
  Duration took_{0};  // by the exchange of the last round with these or the ones before; 0: not comparable
  std::map<SiteId, double> before_;  // on trial: what they are compared with
  RoundId stay_until_;               // they were taken back: not moved in a round up to this one
};

}  // namespace collab::protocol
