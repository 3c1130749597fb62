#include "tests/sim/sim_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/protocol/fragments.h"

namespace collab::sim {

using namespace protocol;

namespace {

std::vector<float> copy_of(std::span<const float> from) { return {from.begin(), from.end()}; }

std::vector<float> first_parameters(std::uint64_t elements, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<float> values(elements);
  for (float& value : values) value = static_cast<float>(prng.uniform() - 0.5);
  return values;
}

// What the data plane adds to a delta and to a mean from earlier payloads, element by element: Residual::in_delta() and
// in_mean(), from their description.
void add_left_out(const Residual& residual, float decay, Contribution& contribution) {
  if (!residual.on()) return;
  const ResidualUnits& units = residual.units();
  const double per_delta = std::max(units.share, units.equal);
  const double per_mean = units.share > 0 ? units.share : units.equal;
  std::vector<bool> of_mean(residual.values().size());
  for (const ElementRange& range : units.of_mean) {
    for (std::uint64_t i = range.begin; i < range.end; ++i) of_mean[i] = true;
  }
  contribution.left_out_of_delta.assign(residual.values().begin(), residual.values().end());
  contribution.left_out_of_mean = contribution.left_out_of_delta;
  for (std::size_t i = 0; i < of_mean.size(); ++i) {
    (of_mean[i] ? contribution.left_out_of_delta : contribution.left_out_of_mean)[i] *=
        static_cast<float>(of_mean[i] ? 1 / per_delta : per_mean);
    contribution.left_out_of_delta[i] *= decay;
    contribution.left_out_of_mean[i] *= decay;
  }
}

}  // namespace

DataPlane::Settings SimData::small() {
  return {.codec = CodecId::kFp32,
          .outer = {},
          .chunk_elements = 1'024,
          .tile_elements = 128,
          .window_bytes = 0,
          .least_window_bytes = 4 * 1'024 * sizeof(float)};
}

SimData::SimData(const Options& options, Checkers& checkers)
    : options_(options),
      checkers_(checkers),
      parameters_(first_parameters(options.elements, options.seed)),
      now_{std::vector<double>(options.elements), 0},
      triggered_(now_),
      uncounted_from_(options.fragments.count) {
  const ArenaSpec spec{.key = {"sim", options_.process, {}},
                       .elements = options_.elements,
                       .outer_state = has_outer_state(options_.settings.outer.id),
                       .training_copy = options_.overlap.has_value(),
                       .shared = false,
                       .job = {},
                       .places = {}};
  auto arena = create_arena(spec);
  COLLAB_CHECK(arena.ok(), "no memory for a simulated site's anchor");
  arena_ = std::move(*arena);
  if (!options_.overlap) return;
  copy_.emplace(arena_->training_copy(), *options_.overlap);
  std::ranges::copy(parameters_.values(), worked_on().begin());
}

ParameterVector& SimData::parameters() {
  if (copy_) return *copy_;
  return parameters_;
}

Digest SimData::digest_of(std::span<const float> anchor, std::span<const float> outer) const {
  const std::uint64_t tile = options_.settings.tile_elements;
  return digest_of_state(digest_of_vector(anchor, tile), outer.empty() ? Digest{} : digest_of_vector(outer, tile));
}

Digest SimData::digest() {
  const std::vector<float> zeros(has_outer_state(options_.settings.outer.id) ? options_.elements : 0);
  return digest_of(parameters_.values(), zeros);
}

// ---- what outlives the process ---------------------------------------------------------------------

void SimData::restore(const StoredAnchor& stored) {
  std::ranges::copy(stored.anchor, arena_->scratch().begin());
  std::ranges::copy(stored.outer, arena_->outer().begin());
  arena_->seal(stored.sealed);
  parameters_.values() = stored.anchor;
  std::ranges::copy(stored.anchor, worked_on().begin());
}

std::optional<StoredAnchor> SimData::stored(const Residual& residual) {
  const std::optional<SealedAnchor> sealed = arena_->sealed();
  if (!sealed || digest_of(arena_->anchor(), arena_->outer()) != sealed->digest) return std::nullopt;
  StoredAnchor stored{*sealed, copy_of(arena_->anchor()), copy_of(arena_->outer()), {}, {}};
  if (residual.on()) stored.residual = StoredResidual{sealed->run, residual.units(), copy_of(residual.values())};
  return stored;
}

// ---- training --------------------------------------------------------------------------------------

void SimData::train(Prng& prng) {
  std::vector<float>& theta = parameters_.values();
  for (std::size_t i = 0; i < theta.size(); ++i) {
    const double drawn = prng.uniform() - 0.5;
    const bool buffer = i >= options_.settings.outer_elements;
    const auto move = static_cast<float>(buffer ? 0.1 * (drawn - static_cast<double>(theta[i])) : 0.02 * drawn);
    theta[i] += move;
    now_.moves[i] += static_cast<double>(move);
  }
}

void SimData::poison(Prng& prng) {
  parameters_.values()[prng.below(options_.elements)] = std::numeric_limits<float>::quiet_NaN();
}

bool SimData::all_counted() const {
  return std::ranges::all_of(uncounted_from_, [this](std::uint64_t from) { return from == now_.trained; });
}

std::uint64_t SimData::counted() const {
  return std::accumulate(uncounted_from_.begin(), uncounted_from_.end(), std::uint64_t{0}) / uncounted_from_.size();
}

bool SimData::fit() {
  return std::ranges::all_of(worked_on(), [](float value) { return std::isfinite(value); });
}

// What is contributed is all that was trained and is not counted yet: no local step is lost, none comes twice.
void SimData::expect_lossless() {
  if (!fit() || !sound_) return;
  const std::span<const float> theta = worked_on();
  for (std::size_t i = 0; i < theta.size(); ++i) {
    const double delta = static_cast<double>(theta[i]) - static_cast<double>(arena_->anchor()[i]);
    if (std::abs(delta - triggered_.moves[i]) < 1e-4) continue;
    return checkers_.fail(options_.process + ": element " + std::to_string(i) + " moved by " + std::to_string(delta) +
                          " from the anchor, and what was trained and not counted moved it by " +
                          std::to_string(triggered_.moves[i]));
  }
}

// As they were drawn, apart from what 16 bits leave out of a delta.
void SimData::expect_buffers_in_range() {
  constexpr float kMost = 0.5F + 1e-2F;
  if (!fit() || !sound_ || options_.mutation != Mutation::kNone) return;
  const std::span<const float> theta = parameters_.values();
  for (std::size_t i = options_.settings.outer_elements; i < theta.size(); ++i) {
    if (std::abs(theta[i]) <= kMost || std::isnan(theta[i])) continue;
    return checkers_.fail(options_.process + ": buffer element " + std::to_string(i) + " is " +
                          std::to_string(theta[i]) + ", and no site's was beyond 0.5");
  }
}

// ---- rounds behind the training --------------------------------------------------------------------

void SimData::trigger(bool merges) {
  expect_buffers_in_range();
  triggered_ = now_;
  if (!copy_) return;
  COLLAB_CHECK(copy_->take(parameters_).ok(), "plain vectors can be copied");
  copy_->begin_round(merges);
}

void SimData::end_round() { change_ = copy_->end_round(arena_->anchor()); }

void SimData::merge() {
  const auto [change, range] = change_;
  COLLAB_CHECK(merge_copy(parameters_, change, copy_->values(), copy_->settings(), range).ok(),
               "plain vectors can be merged");
  if (change == ParameterChange::kUnchanged) return;
  // Buffers are the mean, and unfit parameters the anchor: what they were trained by since is given up.
  const bool all = change == ParameterChange::kTakeCopy;
  for (std::size_t i = range.begin; i < std::min<std::uint64_t>(range.end, now_.moves.size()); ++i) {
    if (all || i >= copy_->settings().trained) now_.moves[i] = 0;
  }
}

void SimData::take_back() {
  if (copy_) std::ranges::copy(worked_on(), parameters_.values().begin());
}

// ---- around what the data plane does ---------------------------------------------------------------

void SimData::before(const StartExchange& start, const Residual& residual) {
  start_ = start.start;
  double weight = 0;
  for (const wire::Participant& p : start.start.participants) {
    if (p.site == start.self) weight = p.weight;
  }
  if (weight > 0) expect_lossless();
  Contribution contribution{options_.process,   weight, fragment(), uncounted_from_[fragment()],
                            triggered_.trained, {},     {},         {}};
  const std::span<float> theta = worked_on();
  const std::span<const float> anchor = arena_->anchor();
  contribution.delta.resize(theta.size());
  for (std::size_t i = 0; i < theta.size(); ++i) contribution.delta[i] = anchor[i] - theta[i];
  add_left_out(residual, options_.settings.feedback_decay, contribution);
  checkers_.contributes(start.start, start.self, std::move(contribution));
  if (options_.mutation != Mutation::kCountTwice) return;
  for (std::size_t i = 0; i < theta.size(); ++i) theta[i] -= anchor[i] - theta[i];
}

void SimData::lose_steps(std::span<const float> anchor) {
  if (options_.mutation == Mutation::kLoseSteps) std::ranges::copy(anchor, worked_on().begin());
}

void SimData::before(const ApplyCommit& apply) {
  if (apply.base == Base::kOldAnchor) lose_steps(arena_->anchor());
  outer_before_ = copy_of(arena_->outer());
  worked_on_before_ = copy_of(worked_on());
}

void SimData::after(const ApplyCommit& apply, bool seen) {
  if (!seen) sound_ = false;
  if (seen && !apply.commit.contributors.empty()) {
    const OuterStep step{options_.settings, arena_->scratch(), arena_->anchor(), outer_before_, arena_->outer()};
    checkers_.applied(options_.process, start_, apply.commit, step);
  }
  // An idle round leaves the parameters alone, unless they were not fit.
  if (!apply.commit.contributors.empty() || apply.base == Base::kUnfit) moved(apply.base, covered_by(start_.slices));
  const std::size_t contributors = apply.commit.contributors.size();
  const bool common = contributors > 0 && apply.base == Base::kParameters;
  if (copy_ && common) keep_difference(worked_on_before_, for_contributors(options_.settings.outer, contributors));
}

void SimData::keep_difference(std::span<const float> snapshot, const OuterConfig& outer) {
  const double kept = 1 - copy_->settings().merge.factor;
  const std::span<const float> old = arena_->scratch();
  const ElementRange moved = common(covered_by(start_.slices), {0, copy_->settings().trained});
  for (std::size_t i = moved.begin; i < moved.end; ++i) {
    const auto was = static_cast<double>(old[i]);
    double delta = (was - static_cast<double>(arena_->anchor()[i])) / static_cast<double>(outer.lr);
    if (has_outer_state(outer.id)) {
      delta = static_cast<double>(arena_->outer()[i]) -
              static_cast<double>(outer.momentum) * static_cast<double>(outer_before_[i]);
    }
    now_.moves[i] += kept * (static_cast<double>(snapshot[i]) - (was - delta));
  }
}

void SimData::before(const Rebase& rebase) {
  if (rebase.base == Base::kOldAnchor) lose_steps(arena_->scratch());
}

void SimData::after(const Rebase& rebase) { moved(rebase.base, kWholeVector); }

// Of the current part, and of the round's.
void SimData::count(const Progress& counted, bool all) {
  const std::vector<double> moves = counted.moves;
  const ElementRange range = all ? ElementRange{0, moves.size()} : covered_by(start_.slices);
  for (std::vector<double>* each : {&now_.moves, &triggered_.moves}) {
    for (std::size_t i = range.begin; i < range.end; ++i) (*each)[i] -= moves[i];
  }
  if (all) std::ranges::fill(uncounted_from_, counted.trained);
  uncounted_from_[fragment()] = counted.trained;
}

void SimData::moved(Base base, ElementRange range) {
  switch (base) {
    case Base::kParameters: count(triggered_); break;
    case Base::kUnfit: count(triggered_, true); break;
    case Base::kSnapshot:
      if (!snapshot_) return checkers_.fail(options_.process + " has no snapshot");
      count(*snapshot_);
      break;
    case Base::kOldAnchor: break;
  }
  snapshot_.reset();
  // Buffers are the anchor, whatever was trained; the script's own once that is merged. Unfit ones all are: one that
  // was no number has moved by none that could be taken away.
  const ElementRange buffers =
      common(base == Base::kUnfit ? kWholeVector : range, {options_.settings.outer_elements, options_.elements});
  for (std::size_t i = buffers.begin; i < buffers.end; ++i) {
    triggered_.moves[i] = 0;
    if (!copy_) now_.moves[i] = 0;
  }
}

void SimData::take_snapshot() { snapshot_ = triggered_; }

// ---- faults ----------------------------------------------------------------------------------------

Digest SimData::flip_anchor(std::uint64_t index) {
  const SealedAnchor sealed = *arena_->sealed();
  const std::span<float> slot = arena_->scratch();
  std::ranges::copy(arena_->anchor(), slot.begin());
  float& value = slot[index % slot.size()];
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 0x0040'0000U);
  const Digest digest = digest_of(slot, arena_->outer());
  arena_->seal({sealed.run, sealed.round, digest, sealed.attached});
  return digest;
}

}  // namespace collab::sim
