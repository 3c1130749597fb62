#include "tests/sim/checkers.h"

#include <algorithm>
#include <cmath>

namespace collab::sim {

void Checkers::contributes(const wire::Form& form, SiteId site, Contribution contribution) {
  const Attempt attempt{form.run, form.round, form.attempt};
  forms_[attempt] = form;
  attempts_[attempt][site] = std::move(contribution);
}

// What an owner holds of an earlier attempt may be all it needs of a site, which need not have begun this one.
const Contribution* Checkers::contribution(const Attempt& attempt, SiteId site) const {
  const auto& [run, round, number] = attempt;
  const auto form = forms_.find(attempt);
  if (form == forms_.end()) return nullptr;
  const auto& in = form->second.participants;
  const auto part = std::find_if(in.begin(), in.end(), [&](const auto& p) { return p.site == site; });
  if (part == in.end()) return nullptr;
  const Contribution* newest = nullptr;
  for (const auto& [at, contributions] : attempts_) {
    const auto& [of_run, of_round, of] = at;
    const bool counts = of >= part->since && of <= number;
    if (of_run != run || of_round != round || !counts) continue;
    if (const auto found = contributions.find(site); found != contributions.end()) newest = &found->second;
  }
  return newest;
}

void Checkers::committed(const wire::Commit& commit) {
  if (commit.contributors.empty()) {  // nobody exchanged anything
    commits_ += idle_.insert({commit.run, commit.round, commit.attempt}).second ? 1 : 0;
    return;
  }
  const Attempt attempt{commit.run, commit.round, commit.attempt};
  if (forms_.count(attempt) == 0) return fail("round " + std::to_string(commit.round.value) + " was never exchanged");
  if (!committed_.insert({commit.run, commit.round}).second) return;
  ++commits_;
  for (const SiteId site : commit.contributors) {
    const Contribution* part = contribution(attempt, site);
    if (part == nullptr) {
      fail("round " + std::to_string(commit.round.value) + " counts site " + std::to_string(site.value) +
           ", which never began that exchange");
      continue;
    }
    const Contribution& c = *part;
    auto& counted = counted_[c.process];
    for (const auto& [from, interval] : counted) {
      // What others agreed on in another run after this one left it is no part of this one's anchor.
      const RunId branch = branch_of_[interval.run];
      const bool line = branch.value == 0 || branch == branch_of_[commit.run];
      const bool included = interval.run == commit.run || (line && interval.round <= began_at_[commit.run]);
      if (included && from < c.to && c.from < interval.to) {
        fail(c.process + ": samples [" + std::to_string(c.from) + ", " + std::to_string(c.to) + ") of round " +
             std::to_string(commit.round.value) + " were counted in round " + std::to_string(interval.round.value) +
             " already");
      }
    }
    if (c.weight != static_cast<double>(c.to - c.from)) {
      fail(c.process + ": weighs " + std::to_string(c.weight) + " for " + std::to_string(c.to - c.from) + " samples");
    }
    counted[c.from] = {c.to, forms_[attempt].run, commit.round};
    ever_counted_[c.process][c.from] = c.to;
  }
}

void Checkers::leaves_branch(const std::string& process, std::uint64_t from) {
  std::erase_if(ever_counted_[process], [&](const auto& entry) { return entry.first >= from; });
}

void Checkers::starts_from(const wire::Adopt& adopt) {
  const RunId run = adopt.run;
  const RoundId round = adopt.round;
  if (!adopt.branch.empty()) branch_of_[run] = adopt.branch[0].run;
  began_at_.try_emplace(run, round);
  const auto undone = [&](RunId of, RoundId later) {
    return of == run && later > round && !invariants.is_committed(of, later);
  };
  for (auto& [process, counted] : counted_) {
    std::erase_if(counted, [&](const auto& entry) { return undone(entry.second.run, entry.second.round); });
  }
  std::erase_if(committed_, [&](const auto& entry) { return undone(std::get<0>(entry), std::get<1>(entry)); });
}

void Checkers::applied(const std::string& process, const wire::Form& form, const wire::Commit& commit,
                       const std::vector<float>& mean) {
  const Attempt attempt{form.run, form.round, form.attempt};
  double total = 0;
  std::vector<const Contribution*> parts;
  for (const SiteId site : commit.contributors) {
    parts.push_back(contribution(attempt, site));
    if (parts.back() == nullptr) return;  // told at the commit
    total += parts.back()->weight;
  }
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double expected = 0;
    double scale = 0;
    for (const Contribution* c : parts) {
      const double term = c->weight / total * static_cast<double>(c->delta[i]);
      expected += term;
      scale += std::abs(term);
    }
    if (std::abs(expected - static_cast<double>(mean[i])) > 1e-5 * scale + 1e-12) {
      return fail(process + ": element " + std::to_string(i) + " of the mean of round " +
                  std::to_string(commit.round.value) + " is " + std::to_string(mean[i]) + ", the contributions give " +
                  std::to_string(expected));
    }
  }
}

void Checkers::expect_all_counted(const std::string& process, std::uint64_t trained) {
  std::uint64_t at = 0;
  for (const auto& [from, to] : ever_counted_[process]) {
    if (from != at) break;
    at = to;
  }
  if (at != trained) {
    fail(process + ": it stayed and trained " + std::to_string(trained) +
         " samples, but the first one not counted is " + std::to_string(at));
  }
}

std::vector<std::string> Checkers::failures() const {
  std::vector<std::string> all = invariants.broken();
  all.insert(all.end(), failures_.begin(), failures_.end());
  return all;
}

}  // namespace collab::sim
