#include "core/protocol/coordinator/digest_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

bool DigestCheck::repair_anchors(const std::set<SiteId>& ready) {
  std::map<SiteId, Digest> said;
  for (const SiteId id : ready) said[id] = all_->members().at(id).round.ready()->state;
  const Digest right = right_of(said);
  const std::optional<Digest> before = all_->anchor.record()->digest;
  all_->anchor.set_digest(right);
  if (before && *before != right) all_->installer.digest_changed();
  std::vector<SiteId> wrong;
  std::vector<SiteId> sound;
  for (const auto& [id, digest] : said)
    (digest == right || mutant(Mutant::kStatesNotCompared) ? sound : wrong).push_back(id);
  for (const SiteId id : wrong) {
    Member& member = all_->members().at(id);
    const std::uint32_t times = all_->exclusions.count_state_repair(id);
    const bool tie = said.size() == 2;
    const std::string text = member.name + " holds a different anchor of round " +
                             std::to_string(all_->anchor.record()->round.value) + " (digest " + to_hex(said[id]) +
                             ") from that of " + all_->membership.name_of(sound.front()) + " (" + to_hex(right) + ")" +
                             (tie ? "; with two sites, the lower one counts as right" : "");
    if (times > kMaxRepeats) {
      all_->exclusions.expel_or_exclude(id, text + "; it was repaired " + times_text(kMaxRepeats) + " without success",
                                        "[round.state-beyond-repair]");
      continue;
    }
    all_->note(Note::Level::kError, "repair", text + "; it fetches the anchor again [round.state-differs]",
               {{"who", json_quote(all_->membership.name_of(id))},
                {"round", std::to_string(all_->anchor.record()->round.value)}});
    all_->installer.install_again(member);
  }
  return wrong.empty();
}

bool DigestCheck::means_are_alike(const wire::StartAttempt& attempt) const {
  const std::vector<Digest>* first = nullptr;
  return std::ranges::all_of(attempt.participants, [&](const wire::Participant& p) {
    if (!p.here) return true;
    const auto& done = all_->members().at(p.site).round.done();
    if (!done) return true;  // Mutant::kCommitBeforeAllAreDone
    first = first == nullptr ? &*done : first;
    return *done == *first;
  });
}

std::set<SiteId> DigestCheck::sites_with_wrong_mean(const wire::StartAttempt& attempt) const {
  std::set<SiteId> wrong;
  if (means_are_alike(attempt)) return wrong;
  for (std::size_t i = 0; i < attempt.slices.size(); ++i) {
    std::map<SiteId, Digest> said;
    for (const wire::Participant& p : attempt.participants) {
      if (p.here && (all_->members().at(p.site).round.done() || !mutant(Mutant::kCommitBeforeAllAreDone)))
        said[p.site] = (*all_->members().at(p.site).round.done())[i];
    }
    const Digest right = right_of(said);
    for (const auto& [site, digest] : said) {
      if (digest != right && !mutant(Mutant::kMeansNotCompared)) wrong.insert(site);
    }
  }
  return wrong;
}

Digest DigestCheck::right_of(const std::map<SiteId, Digest>& said) const {
  std::map<SiteId, Digest> by_trainers = said;
  std::erase_if(by_trainers, [this](const auto& entry) {
    return all_->members().at(entry.first).helper || !all_->agreed.is_voter(entry.first);
  });
  return most_reported(by_trainers.empty() ? said : by_trainers);
}

void DigestCheck::repair_means(const wire::StartAttempt& attempt, const std::set<SiteId>& wrong) {
  const std::string of = std::to_string(attempt.round.value);
  const auto here = std::ranges::count_if(attempt.participants, &wire::Participant::here);
  const std::string what = " has a different mean of round " + of + " from " +
                           (here == 2 ? "the lower site, which counts as right if there are two" : "most sites");
  std::map<SiteId, std::string> newcomers;
  for (const SiteId id : wrong) {
    if (!all_->agreed.is_voter(id)) newcomers.emplace(id, all_->membership.name_of(id));
  }
  all_->exclusions.exclude_newcomers(newcomers);
  for (const SiteId id : wrong) {
    const std::uint32_t times = all_->exclusions.count_mean_repair(id);
    const std::string again = all_->membership.name_of(id) + what + " (" + times_text(times) + ")";
    if (times > kMaxRepeats) {
      all_->exclusions.expel_or_exclude(id, again, "[round.mean-beyond-repair]");
    } else {
      all_->note(Note::Level::kError, "repair",
                 all_->membership.name_of(id) + what + "; another attempt is formed [round.mean-differs]",
                 {{"who", json_quote(all_->membership.name_of(id))}, {"round", of}});
    }
  }
}

}  // namespace collab::protocol
