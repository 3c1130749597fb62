// Whether the ranks of a site train one model, by the digests of their parameters: its rank 0 leads.
//
// Threads: the session's caller.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/runtime/site_channel.h"

namespace collab {

class SameModelCheck {
 public:
  explicit SameModelCheck(std::string site) : site_(std::move(site)) {}

  [[nodiscard]] Status check(const std::vector<RankReport>& reports) const {
    const std::string what = difference(reports);
    if (what.empty()) return {};
    return invalid_argument(what + ": the ranks of a site must train one model; " + kTrainOneModel +
                            " [join.ranks-differ]");
  }

  // For ranks that began with the same parameters: DDP gives them the same gradients, but does not compare the results.
  void warn(const std::vector<RankReport>& reports) {
    if (warned_) return;
    const std::string what = difference(reports);
    if (what.empty()) return;
    warned_ = true;
    log_warning(
        what +
        ", and began the training with the same. Only rank 0's are averaged, and the others take the result (with "
        "COLLAB_OVERLAP they stay as far apart as they are). Differences of rounding (stochastic rounding with a seed "
        "for each rank, GPUs of several models) do no harm. Otherwise each rank trains a model of its own: " +
        kTrainOneModel + ". This is logged once [round.ranks-differ]");
  }

 private:
  // The first rank that holds other parameters than the leader, in words; "" if all hold the same.
  [[nodiscard]] std::string difference(const std::vector<RankReport>& reports) const {
    for (std::size_t rank = 1; rank < reports.size(); ++rank) {
      if (reports[rank].digest == reports[0].digest) continue;
      return "rank " + std::to_string(rank) + " of site " + site_ +
             " holds other parameters than its rank 0 (digests " + to_hex(reports[rank].digest) + " and " +
             to_hex(reports[0].digest) + ")";
    }
    return {};
  }

  static constexpr const char* kTrainOneModel =
      "wrap every trained module in DistributedDataParallel and step the same optimizer on every rank";

  std::string site_;
  bool warned_ = false;
};

}  // namespace collab
