#include "tests/sim/checkers.h"

#include <algorithm>
#include <cmath>

#include "core/protocol/fragments.h"

namespace collab::sim {
namespace {

// How much of the largest element of a payload may be missing from any other.
double coarseness(CodecId codec) {
  switch (codec) {
    case CodecId::kFp32: return 0;
    case CodecId::kFp16: return 1.0 / 1'024;
    case CodecId::kBf16: return 1.0 / 128;
    case CodecId::kInt8: return 1.0 / 200;
    case CodecId::kInt4: return 1.0 / 7;
    default: return 1;  // of a few bits, or only of the largest elements
  }
}

}  // namespace

void Checkers::contributes(const wire::StartAttempt& start, SiteId site, Contribution contribution) {
  const Attempt attempt{start.run, start.round, start.attempt};
  starts_[attempt] = start;
  attempts_[attempt][site] = std::move(contribution);
}

// What an owner holds of an earlier attempt may be all it needs of a site, which need not have begun this one.
const Contribution* Checkers::contribution(const Attempt& attempt, SiteId site) const {
  const auto& [run, round, number] = attempt;
  const auto start = starts_.find(attempt);
  if (start == starts_.end()) return nullptr;
  const auto& in = start->second.participants;
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
  const auto [known, fresh] = committed_.try_emplace({commit.run, commit.round}, commit);
  if (!fresh) {
    const wire::Commit& first = known->second;
    if (first.attempt == commit.attempt && first.contributors == commit.contributors) return;
    return fail("round " + std::to_string(commit.round.value) + " of run " + std::to_string(commit.run.value) +
                " was committed twice: as attempt " + std::to_string(first.attempt.value) + ", and as attempt " +
                std::to_string(commit.attempt.value));
  }
  ++commits_;
  if (commit.contributors.empty()) return;  // no site exchanged anything
  const Attempt attempt{commit.run, commit.round, commit.attempt};
  if (starts_.count(attempt) == 0) return fail("round " + std::to_string(commit.round.value) + " was never exchanged");
  for (const SiteId site : commit.contributors) {
    const Contribution* part = contribution(attempt, site);
    if (part == nullptr) {
      fail("round " + std::to_string(commit.round.value) + " counts site " + std::to_string(site.value) +
           ", which never began that exchange");
      continue;
    }
    const Contribution& c = *part;
    auto& counted = counted_[{c.process, c.fragment}];
    for (const auto& [from, interval] : counted) {
      if (from < c.to && c.from < interval.to) {
        fail(c.process + ": samples [" + std::to_string(c.from) + ", " + std::to_string(c.to) + ") of round " +
             std::to_string(commit.round.value) + " were counted in round " + std::to_string(interval.round.value) +
             " already");
      }
    }
    if (c.weight != static_cast<double>(c.to - c.from)) {
      fail(c.process + ": weighs " + std::to_string(c.weight) + " for " + std::to_string(c.to - c.from) + " samples");
    }
    counted[c.from] = {c.to, starts_[attempt].run, commit.round};
  }
}

void Checkers::holds(const std::string& process, const SealedAnchor& anchor) {
  const auto [known, fresh] = anchors_.try_emplace({anchor.run, anchor.round}, std::pair(anchor.digest, process));
  if (fresh || known->second.first == anchor.digest) return;
  fail(process + " has another anchor of round " + std::to_string(anchor.round.value) + " of run " +
       std::to_string(anchor.run.value) + " than " + known->second.second + " had");
}

void Checkers::follows(const std::string& process, const Told& after, std::uint32_t period) {
  const auto [known, fresh] = periods_.try_emplace(after, std::pair(period, process));
  if (fresh || known->second.first == period) return;
  fail(process + " trains " + std::to_string(period) + " steps after round " +
       std::to_string(std::get<RoundId>(after).value) + ", " + known->second.second + " trains " +
       std::to_string(known->second.first));
}

const Checkers::Mean* Checkers::mean_of(const wire::StartAttempt& start, const wire::Commit& commit,
                                        const DataPlane::Settings& settings) {
  const Attempt attempt{start.run, start.round, start.attempt};
  for (const SiteId site : commit.contributors) {
    if (contribution(attempt, site) == nullptr) return nullptr;
  }
  const auto [known, fresh] = means_.try_emplace(attempt);
  if (fresh) known->second = weigh(start, commit, settings);
  return &known->second;
}

// Owners add their own delta as it is, and what others send as it is decoded; with error feedback both are made of what
// is new and of what was left out before.
Checkers::Mean Checkers::weigh(const wire::StartAttempt& start, const wire::Commit& commit,
                               const DataPlane::Settings& settings) {
  const Codecs& codec = settings.codec;
  const Attempt attempt{start.run, start.round, start.attempt};
  double total = 0;
  for (const SiteId site : commit.contributors) total += contribution(attempt, site)->weight;
  Mean mean;
  const std::size_t elements = contribution(attempt, commit.contributors.front())->delta.size();
  mean.value.resize(elements);
  mean.left_out.resize(elements);
  const bool encoded = start.participants.size() > 1;
  std::vector<Part> parts;
  for (const SiteId site : commit.contributors) {
    parts.push_back(
        {contribution(attempt, site)->weight / total, std::vector<double>(elements), std::vector<double>(elements)});
  }
  for (const wire::Slice& slice : start.slices) {
    const auto [begin, end] = slice.range;
    for (std::size_t number = 0; number < parts.size(); ++number) {
      const SiteId site = commit.contributors[number];
      auto& [share, sent, left_outs] = parts[number];
      const Contribution& c = *contribution(attempt, site);
      const bool travels = site != slice.owner;
      double largest = 0;
      for (std::size_t i = begin; i < end; ++i) {
        sent[i] = static_cast<double>(c.delta[i]);
        if (travels && !c.left_out_of_delta.empty()) sent[i] += static_cast<double>(c.left_out_of_delta[i]);
        largest = std::max(largest, std::abs(sent[i]));
      }
      const double left_out = travels ? largest * coarseness(codec.up) : 0;
      for (std::size_t i = begin; i < end; ++i) {
        left_outs[i] = left_out;
        mean.value[i] += share * sent[i];
        mean.left_out[i] += share * left_out + 1e-5 * std::abs(share * sent[i]);
      }
    }
    if (!encoded) continue;
    const Contribution* owner = contribution(attempt, slice.owner);
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (owner != nullptr && !owner->left_out_of_mean.empty()) {
        mean.value[i] += static_cast<double>(owner->left_out_of_mean[i]);
      }
      largest = std::max(largest, std::abs(mean.value[i]) + mean.left_out[i]);
    }
    for (std::size_t i = begin; i < end; ++i) mean.left_out[i] += largest * coarseness(codec.down);
  }
  mean.factors.resize(elements);
  if (settings.outer.id != OuterId::kRda || parts.size() == 1) return mean;
  for (const ElementRange& tensor : settings.radial) {
    const ElementRange moved = common(tensor, protocol::covered_by(start.slices));
    const Factor factor = radial_of(parts, moved);
    for (std::size_t i = moved.begin; i < moved.end; ++i) mean.factors[i] = factor;
  }
  return mean;
}

// The mean of the norms over the norm of the mean, from 1 to the root of their number; payloads make both uncertain.
Checkers::Factor Checkers::radial_of(const std::vector<Part>& parts, ElementRange tensor) {
  double norms = 0, norms_off = 0, of_mean = 0, off = 0;
  for (const Part& part : parts) {
    double square = 0, left_out = 0;
    for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
      square += part.value[i] * part.value[i];
      left_out += part.left_out[i] * part.left_out[i];
    }
    norms += part.share * std::sqrt(square);
    norms_off += part.share * std::sqrt(left_out);
  }
  for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
    double mean = 0;
    for (const Part& part : parts) mean += part.share * part.value[i];
    of_mean += mean * mean;
  }
  of_mean = std::sqrt(of_mean);
  off = norms_off + 1e-6 * norms;  // of the mean no more is left out than of what it is made of
  const double most = std::sqrt(static_cast<double>(parts.size()));
  const auto factor = [most](double above, double below) {
    return below > 0 ? std::clamp(above / below, 1.0, most) : above > 0 ? most : 1.0;
  };
  const double high = factor(norms + off, of_mean - off);
  const double low = factor(std::max(0.0, norms - off), of_mean + off);
  return {(high + low) / 2, (high - low) / 2 + 1e-6};
}

// What the payloads left out makes the norm uncertain, and with it the factor.
Checkers::Factor Checkers::clip_of(const Mean& mean, const DataPlane::Settings& settings) {
  const auto most = static_cast<double>(settings.outer.clip);
  if (most == 0) return {};
  double square = 0;
  double left_out = 0;
  for (std::size_t i = 0; i < std::min<std::uint64_t>(mean.value.size(), settings.outer_elements); ++i) {
    const auto [radial, uncertain] = mean.factors[i];
    const double off = radial * mean.left_out[i] + uncertain * std::abs(mean.value[i]);
    square += radial * mean.value[i] * radial * mean.value[i];
    left_out += off * off;
  }
  const auto factor = [most](double norm) { return norm > most ? most / norm : 1.0; };
  const double norm = std::sqrt(square);
  const double off = std::sqrt(left_out);
  return {factor(norm), std::max(factor(norm - off) - factor(norm), factor(norm) - factor(norm + off)) + 1e-6};
}

void Checkers::applied(const std::string& process, const wire::StartAttempt& start, const wire::Commit& commit,
                       const OuterStep& step) {
  const Mean* mean = mean_of(start, commit, step.settings);
  if (mean == nullptr) return;
  const OuterConfig outer = for_contributors(step.settings.outer, commit.contributors.size());
  const Factor clip = clip_of(*mean, step.settings);
  const ElementRange fragment = protocol::covered_by(start.slices);
  for (std::size_t i = 0; i < mean->value.size(); ++i) {
    if (i < fragment.begin || i >= fragment.end) {
      const bool outer_stands = step.outer.empty() || step.outer[i] == step.next_outer[i];
      if (step.anchor[i] == step.next[i] && outer_stands) continue;
      return fail(process + ": element " + std::to_string(i) + " is of no slice of round " +
                  std::to_string(commit.round.value) + ", and was changed");
    }
    const bool buffer = i >= step.settings.outer_elements;
    const double lr = buffer ? 1.0 : static_cast<double>(outer.lr);
    const double moved = static_cast<double>(step.anchor[i]) - static_cast<double>(step.next[i]);
    double taken = moved / lr;
    // The error of rounding to float32: of the anchor, and of the outer state.
    double rounding = 4e-7 * std::abs(static_cast<double>(step.anchor[i])) / lr + 1e-9;
    if (!step.outer.empty() && !buffer) {
      const auto momentum = static_cast<double>(outer.momentum);
      const auto next = static_cast<double>(step.next_outer[i]);
      const double kept = momentum * static_cast<double>(step.outer[i]);
      taken = next - kept;
      rounding += 4e-7 * (std::abs(next) + std::abs(kept));
      if (std::abs(moved - lr * (taken + momentum * next)) > lr * rounding) {
        return fail(process + ": element " + std::to_string(i) + " moved by " + std::to_string(moved) + " in round " +
                    std::to_string(commit.round.value) + ", which is no step of the outer optimizer");
      }
    }
    const Factor radial = mean->factors[i];
    const double expected = mean->value[i] * (buffer ? 1.0 : radial.factor * clip.factor);
    const double uncertain = buffer ? 0.0
                                    : std::abs(mean->value[i]) * (radial.factor * clip.uncertain + radial.uncertain) +
                                          (radial.factor + radial.uncertain - 1) * mean->left_out[i];
    if (std::abs(expected - taken) > mean->left_out[i] + uncertain + rounding) {
      return fail(process + ": element " + std::to_string(i) + " of the mean of round " +
                  std::to_string(commit.round.value) + " is " + std::to_string(taken) + ", the contributions give " +
                  std::to_string(expected));
    }
  }
}

// It may still be committed if sites that went on from less do not know of it. Then it is in the ledger twice.
void Checkers::perhaps_counted(const std::string& process, std::uint32_t fragment, std::uint64_t from,
                               std::uint64_t to) {
  if (from < to) perhaps_[{process, fragment}][from] = to;
}

void Checkers::expect_all_counted(const std::string& process, std::uint64_t trained, std::uint32_t fragments) {
  for (std::uint32_t fragment = 0; fragment < fragments; ++fragment) {
    std::map<std::uint64_t, std::uint64_t> intervals = perhaps_[{process, fragment}];
    for (const auto& [from, interval] : counted_[{process, fragment}]) {
      std::uint64_t& to = intervals[from];
      to = std::max(to, interval.to);
    }
    std::uint64_t at = 0;
    for (const auto& [from, to] : intervals) {
      if (from > at) break;
      at = std::max(at, to);
    }
    if (at == trained) continue;
    fail(process + ": it stayed and trained " + std::to_string(trained) +
         " samples, but the first one not counted in fragment " + std::to_string(fragment) + " is " +
         std::to_string(at));
  }
}

std::vector<std::string> Checkers::failures() const {
  std::vector<std::string> all = invariants.broken();
  all.insert(all.end(), failures_.begin(), failures_.end());
  return all;
}

}  // namespace collab::sim
