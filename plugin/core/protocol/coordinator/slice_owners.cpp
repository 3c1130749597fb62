#include "core/protocol/coordinator/slice_owners.h"

#include <cmath>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"
#include "core/wire/limits.h"
#include "core/wire/rules.h"

namespace collab::protocol {
namespace {

std::string in_percent(double part) { return json_number(std::round(1000 * part) / 10) + " %"; }

double mean_ratio_in(const std::vector<wire::Setting>& settings) {
  const auto codec = value_of(settings, "codec");
  return codec ? mean_ratio_of(*codec) : 1;
}

}  // namespace

std::vector<wire::Slice> SliceOwners::divide(const wire::StartAttempt& start, const std::vector<Line>& lines,
                                             const std::vector<wire::Slice>& before) {
  const ModelReference& model = *all_->admission.reference();
  BandwidthPartition::Division by;
  if (all_->config.equal_shares) {
    by.shares = partition_.divide_equally(start.run, start.round, lines);
  } else {
    by = partition_.divide(start.run, start.round, lines, mean_ratio_in(model.settings()));
  }
  if (by.takes) report_division(start.round, by.shares, *by.takes);
  std::vector<wire::Slice> slices;
  const RoundId round = mutant(Mutant::kFragmentIsTheNext) ? RoundId{start.round.value + 1} : start.round;
  const ElementRange range = model.fragments().range_of(model.elements(), round);
  if (covered_by(before) == range) slices = pass_on(before, by.shares);
  if (slices.empty() || slices.size() > wire::kMaxSlices || lopsided(slices, by.shares)) {
    slices = make_slices(range, by.shares);
  }
  return slices;
}

void SliceOwners::report_division(RoundId round, const std::vector<Share>& shares, double takes) {
  double total = 0;
  for (const Share& share : shares) total += share.share;
  std::vector<std::string> parts;
  std::string json;
  for (const Share& share : shares) {
    const std::string name = all_->membership.name_of(share.site);
    parts.push_back(name + " " + in_percent(share.share / total));
    json += (json.empty() ? "" : ",") + json_quote(name) + ":" + json_number(share.share / total);
  }
  all_->note(Note::Level::kInfo, "partition",
             "round " + std::to_string(round.value) + ": by the rates the sites have measured, owners are " +
                 join_words(parts) + "; the exchange should take " + in_percent(takes) +
                 " of the time that it would have taken before",
             {{"round", std::to_string(round.value)}, {"partition", "{" + json + "}"}});
}

}  // namespace collab::protocol
