#include "core/protocol/coordinator/contributions.h"

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"

namespace collab::protocol {

Contributions::Summary Contributions::committed(const wire::StartAttempt& start) {
  const SampledDeltas sampled = sampled_deltas(start);
  warn_of_duplicate_data(start, sampled);
  return {.names = count_samples(start), .deltas = compare(start, sampled)};
}

void Contributions::forget() {
  duplicate_data_ = {};
  deltas_ = {};
}

Contributions::SampledDeltas Contributions::sampled_deltas(const wire::StartAttempt& start) const {
  SampledDeltas sampled;
  for (const wire::Participant& p : start.participants) {
    if (!p.here || p.weight == 0) continue;
    const auto& ready = all_->members().at(p.site).round.ready();
    if (ready) sampled[p.site] = ready->sampled_delta;
  }
  return sampled;
}

DeltaStatistics::Found Contributions::compare(const wire::StartAttempt& start, const SampledDeltas& sampled) {
  std::vector<DeltaStatistics::Contribution> contributions;
  for (const auto& [site, delta] : sampled) contributions.push_back({participant_of(start, site)->weight, delta});
  const ModelReference& model = *all_->admission.reference();
  return deltas_.committed(contributions, model.elements(), model.fragments().range_of(model.elements(), start.round));
}

std::vector<std::string> Contributions::count_samples(const wire::StartAttempt& start) {
  // Each sample occurs once in every fragment, so one fragment counts.
  const bool counts = all_->admission.reference()->fragments().in_turn(start.round) == 0;
  std::vector<std::string> names;
  for (const SiteId id : contributors_of(start)) {
    std::uint64_t samples = 0;
    if (const auto gone = all_->round.gone().find(id); gone != all_->round.gone().end()) {
      names.push_back(gone->second.name);
      samples = gone->second.samples;
    } else {
      names.push_back(all_->membership.name_of(id));
      if (const auto member = all_->members().find(id); member != all_->members().end()) {
        samples = member->second.round.samples();
      }
    }
    tally_.add(names.back(), counts ? samples : 0);
  }
  return names;
}

void Contributions::warn_of_duplicate_data(const wire::StartAttempt& start, const SampledDeltas& sampled) {
  for (const DuplicateData::Pair& pair : duplicate_data_.committed(sampled)) {
    const std::string text =
        all_->membership.name_of(pair.a) + " and " + all_->membership.name_of(pair.b) + " have learned the same in " +
        std::to_string(kAlikeRounds) + " rounds in a row (cosine " + json_number(pair.cosine) +
        "): if they train on the same data, it counts twice. Give each site its own: a DistributedSampler with default "
        "ranks does so. If the script draws batches itself (torch.manual_seed, a generator, numpy), add "
        "torch_collab.site_index() to the seed (times the number of ranks if the rank is added too). If it reads files "
        "or a stream (IterableDataset), take every torch_collab.site_count()-th part from site_index() on, with "
        "COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS set [round.same-data]";
    all_->note(Note::Level::kWarning, "same-data", text,
               {{"who", json_list({all_->membership.name_of(pair.a), all_->membership.name_of(pair.b)})},
                {"round", std::to_string(start.round.value)}});
    for (const SiteId id : {pair.a, pair.b}) all_->send(all_->members().at(id), wire::Notice{"same-data", text});
  }
}

}  // namespace collab::protocol
