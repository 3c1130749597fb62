// The end of a round: the means are compared, the attempt committed.
#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

void Coordinator::State::finish_attempt() {
  const wire::StartAttempt& start = *round.attempt;
  if (round.done < (mutant(Mutant::kCommitBeforeAllAreDone) ? 1 : round.here)) return;
  std::set<SiteId> wrong;
  for (std::size_t i = 0; i < start.slices.size(); ++i) {
    std::map<SiteId, Digest> said;
    for (const wire::Participant& p : start.participants) {
      if (p.here && (members.at(p.site).done || !mutant(Mutant::kCommitBeforeAllAreDone)))
        said[p.site] = (*members.at(p.site).done)[i];
    }
    const Digest right = majority(said);
    for (const auto& [site, digest] : said) {
      if (digest != right && !mutant(Mutant::kMeansNotCompared)) wrong.insert(site);
    }
  }
  if (wrong.empty()) {
    return commit(start.attempt, contributors_of(start));
  }
  const std::string what =
      " has another mean of round " + std::to_string(start.round.value) + " than " +
      (start.participants.size() == 2 ? "the lower site, which of two is taken to be right" : "most");
  const RoundId number_started = start.round;
  start_afresh();
  changed = true;
  for (const SiteId id : wrong) {
    const std::uint32_t times = ++round.mean_repairs[id];
    if (times > kMaxRepeats) {
      expel(id, name_of(id) + what + " (" + times_text(times) + ")");
    } else {
      note(Note::Level::kError, "repair", name_of(id) + what + "; another attempt is formed",
           {{"who", json_quote(name_of(id))}, {"round", std::to_string(number_started.value)}});
    }
  }
}

void Coordinator::State::commit(AttemptId attempt, const std::vector<SiteId>& contributors) {
  const RoundId committed = number();
  const wire::StartAttempt start = *round.attempt;
  std::vector<std::string> members_named;
  std::vector<Digest> mean;
  for (const wire::Participant& p : start.participants) {
    if (!p.here) continue;
    mean = members.at(p.site).done.value_or(std::vector<Digest>{});
    members_named.push_back(name_of(p.site));
  }
  history.add(past_of(start, mean));
  if (!mutant(Mutant::kVotersKeptByLeader)) voters = next_voters;
  compare(start);
  std::vector<std::string> names;
  for (const SiteId id : contributors) {
    const auto gone = round.gone.find(id);
    names.push_back(gone == round.gone.end() ? name_of(id) : gone->second.name);
  }
  Broadcast all{{}, wire::Commit{term, anchor->run, committed, attempt, contributors}};
  auto participant = start.participants.begin();  // both ascend
  for (auto& [id, member] : members) {
    member.done.reset();
    while (participant != start.participants.end() && participant->site < id) ++participant;
    if (participant != start.participants.end() && participant->site == id && participant->here) {
      all.links.push_back(member.link);
      member.ready.reset();
    } else if (member.phase == MemberPhase::kActive) {  // left out; one that is ready by now takes the anchor at once
      member.phase = member.ready ? MemberPhase::kJoined : MemberPhase::kStale;
      member.ready.reset();
    } else if (member.phase == MemberPhase::kInstalling) {  // it is given the newer one
      member.phase = MemberPhase::kJoined;
    }
  }
  out.emplace_back(std::move(all));
  judge_partition(start, now - round.started);
  note(Note::Level::kInfo, "round",
       "round " + std::to_string(committed.value) +
           (names.empty() ? ": nobody had anything to contribute, the anchor stands" : ": " + join_words(names)),
       {{"round", std::to_string(committed.value)},
        {"attempt", std::to_string(attempt.value)},
        {"members", json_list(members_named)},
        {"contributors", json_list(names)},
        {"seconds", json_number(static_cast<double>((now - round.started).count()) / 1e6)}});
  anchor->round = committed;
  if (!contributors.empty()) anchor->digest.reset();
  clear_round();
}

void Coordinator::State::compare(const wire::StartAttempt& start) {
  std::map<SiteId, std::span<const std::uint32_t>> sampled_deltas;
  for (const wire::Participant& p : start.participants) {
    if (!p.here || p.weight == 0) continue;
    const auto& ready = members.at(p.site).ready;
    if (ready) sampled_deltas[p.site] = ready->sampled_delta;
  }
  for (const DuplicateData::Pair& pair : duplicate_data.committed(sampled_deltas)) {
    const std::string text =
        name_of(pair.a) + " and " + name_of(pair.b) + " have learned the same in " + std::to_string(kAlikeRounds) +
        " rounds running (cosine " + json_number(pair.cosine) +
        "): if they train on the same data it counts twice. Give each site its own: a DistributedSampler with default "
        "ranks does; where the script draws batches itself (torch.manual_seed, a generator, numpy) add "
        "torch_collab.site_index() to the seed (times the number of ranks where the rank is added too), where it reads "
        "files or a stream (IterableDataset) take every torch_collab.site_count()-th part from site_index() on, with "
        "COLLAB_SITE_INDEX and COLLAB_SITE_COUNT set";
    note(Note::Level::kWarning, "same-data", text,
         {{"who", json_list({name_of(pair.a), name_of(pair.b)})}, {"round", std::to_string(start.round.value)}});
    for (const SiteId id : {pair.a, pair.b}) send(members.at(id), wire::Notice{"same-data", text});
  }
}

}  // namespace collab::protocol
