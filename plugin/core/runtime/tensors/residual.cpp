#include "core/runtime/tensors/residual.h"

#include <algorithm>
#include <utility>

#include "core/wire/rules.h"

namespace collab {
namespace {

// f(part) for each part of `range` that lies in one of `ranges`.
template <typename F>
void each_within(ElementRange range, const std::vector<ElementRange>& ranges, F f) {
  for (const ElementRange& other : ranges) {
    if (const ElementRange both = common(range, other); both.size() > 0) f(both);
  }
}

// f(part) for each part of `range` that lies in none of `ranges`.
template <typename F>
void each_outside(ElementRange range, const std::vector<ElementRange>& ranges, F f) {
  std::uint64_t at = range.begin;
  each_within(range, ranges, [&](ElementRange both) {
    if (both.begin > at) f(ElementRange{at, both.begin});
    at = both.end;
  });
  if (range.end > at) f(ElementRange{at, range.end});
}

}  // namespace

Residual::Residual(const Codecs& codecs, bool feedback, std::uint64_t elements, std::uint64_t chunk_elements,
                   float decay, std::span<const ElementRange> kept, std::uint64_t buffers_from,
                   std::function<void()> passing)
    : up_(codecs.up, kept, elements),
      down_(codecs.down, kept, elements),
      chunk_elements_(chunk_elements),
      decay_(decay),
      buffers_from_(std::min(buffers_from, elements)),
      passing_(std::move(passing)) {
  if (feedback && (needs_error_feedback(codecs.up) || needs_error_feedback(codecs.down))) values_.resize(elements);
}

void Residual::start(const wire::StartAttempt& start, SiteId self, float share) {
  if (!on()) return;
  const std::size_t members = start.participants.size();
  attempt_.emplace(Attempt{.share = share,
                           .equal = 1.0F / static_cast<float>(members),
                           .alone = members == 1,
                           .range = wire::covered_by(start.slices),
                           .own = {},
                           .theirs = {}});
  std::size_t owned = 0;
  for (const wire::Slice& slice : start.slices) {
    if (slice.owner != self) {
      attempt_->theirs.push_back(slice.range);
      continue;
    }
    attempt_->own.push_back({slice.range, owned});
    owned += slice.range.size();
  }
  if (!attempt_->alone) next_of_mean_.resize(owned);
}

std::optional<std::size_t> Residual::encode_contribution(ElementRange range, std::span<const float> anchor,
                                                         std::span<const float> parameters, std::span<std::byte> out) {
  if (!on()) return up_.encode_difference(range, anchor, parameters, out);
  next_.resize(range.size());
  return up_.encode_difference_with_feedback(range, anchor, parameters, {in_delta(range), next_}, out);
}

std::optional<std::size_t> Residual::encode_mean(ElementRange range, std::span<const float> mean,
                                                 std::span<std::byte> out) {
  if (!on()) return down_.encode(range, mean, out);
  return down_.encode_with_feedback(range, mean, {in_mean(range), next_of_mean(range)}, out);
}

Status Residual::commit(std::span<const float> anchor, const Reader& contributed, float taken) {
  const std::optional<Attempt> attempt = std::exchange(attempt_, std::nullopt);
  if (!attempt || attempt->alone) return {};
  const bool counts = contributed && attempt->share > 0;
  for (const ElementRange& range : attempt->theirs) {
    if (counts) {
      COLLAB_RETURN_IF_ERROR(keep_left_out(range, anchor, contributed, taken));
    } else {
      each_within(range, units_.of_mean, [this](ElementRange both) {
        for (float& value : part(both)) value /= per_delta();
      });
    }
  }
  std::vector<ElementRange> of_mean = of_mean_beside(*attempt);
  for (const Own& own : attempt->own) {
    for (std::uint64_t begin = own.range.begin; begin < own.range.end; begin += chunk_elements_) {
      const ElementRange chunk{begin, std::min(own.range.end, begin + chunk_elements_)};
      const std::span<const float> after =
          std::span(next_of_mean_).subspan(own.at + begin - own.range.begin, chunk.size());
      keep(chunk, taken == 1.0F ? after : in_mean(chunk), after, taken);
    }
    of_mean.push_back(own.range);
  }
  std::ranges::sort(of_mean);
  units_ = {.share = counts ? attempt->share : units_.share, .equal = attempt->equal, .of_mean = std::move(of_mean)};
  drop_of_buffers();
  return {};
}

Status Residual::assume_contributed(std::span<const float> anchor, const Reader& contributed) {
  const std::optional<Attempt> attempt = std::exchange(attempt_, std::nullopt);
  if (!attempt || attempt->alone || !(attempt->share > 0)) return {};
  for (const ElementRange& range : attempt->theirs) {
    COLLAB_RETURN_IF_ERROR(keep_left_out(range, anchor, contributed, 1.0F));
  }
  std::vector<ElementRange> of_mean = of_mean_beside(*attempt);
  for (const Own& own : attempt->own) {
    each_within(own.range, units_.of_mean, [&](ElementRange both) { of_mean.push_back(both); });
  }
  std::ranges::sort(of_mean);
  units_ = {.share = attempt->share, .equal = attempt->equal, .of_mean = std::move(of_mean)};
  drop_of_buffers();
  return {};
}

// The parts of `of_mean` in fragments that the attempt does not move.
std::vector<ElementRange> Residual::of_mean_beside(const Attempt& attempt) const {
  std::vector<ElementRange> beside;
  for (const ElementRange& range : units_.of_mean) {
    if (range.begin < attempt.range.begin) beside.push_back({range.begin, std::min(range.end, attempt.range.begin)});
    if (range.end > attempt.range.end) beside.push_back({std::max(range.begin, attempt.range.end), range.end});
  }
  return beside;
}

// Works in the chunks that were sent, because groups of top-k begin with them.
Status Residual::keep_left_out(ElementRange range, std::span<const float> anchor, const Reader& contributed,
                               float taken) {
  for (std::uint64_t begin = range.begin; begin < range.end; begin += chunk_elements_) {
    const ElementRange chunk{begin, std::min(range.end, begin + chunk_elements_)};
    const Result<std::span<const float>> parameters = contributed(chunk);
    if (!parameters.ok()) return parameters.status();
    payload_.resize(up_.encoded_size(chunk));
    next_.resize(chunk.size());
    const std::span<const float> before = in_delta(chunk);
    const std::optional<std::size_t> again = up_.encode_difference_with_feedback(
        chunk, anchor.subspan(chunk.begin, chunk.size()), *parameters, {before, next_}, payload_);
    if (again) {
      keep(chunk, before, next_, taken);
    } else {  // the parameters were written to meanwhile
      std::ranges::fill(part(chunk), 0.0F);
    }
  }
  return {};
}

void Residual::keep(ElementRange range, std::span<const float> before, std::span<const float> after, float taken) {
  const std::span<float> here = part(range);  // `before` may point into it
  const float rest = 1.0F - taken;
  for (std::size_t i = 0; i < here.size(); ++i) {
    here[i] = taken == 1.0F ? after[i] : taken * after[i] + rest * before[i];
  }
  if (passing_) passing_();
}

void Residual::drop_of_buffers() {
  if (on()) std::ranges::fill(std::span(values_).subspan(buffers_from_), 0.0F);
}

void Residual::drop() {
  std::ranges::fill(values_, 0.0F);
  units_.of_mean.clear();
}

void Residual::restore(StoredResidual stored) {
  if (!on() || stored.values.size() != values_.size()) return;
  restored_from_ = stored.run;
  units_ = std::move(stored.units);
  values_ = std::move(stored.values);
  drop_of_buffers();
}

void Residual::settle(RunId run) {
  if (restored_from_ && *restored_from_ != run) drop();
  restored_from_.reset();
}

// A mean's error is fed back only through our contribution, where it counts by our share. The share may be much larger
// next time: from a small share (a joiner's is 0) the error would come back many times over. So at least an equal share
// is assumed.
float Residual::per_delta() const { return std::max(units_.share, units_.equal); }

float Residual::per_mean() const { return units_.share > 0 ? units_.share : units_.equal; }

std::span<float> Residual::part(ElementRange range) { return std::span(values_).subspan(range.begin, range.size()); }

bool Residual::decayed(std::span<const float> here) {
  if (decay_ == 1.0F) return false;
  converted_.assign(here.begin(), here.end());
  for (float& value : converted_) value *= decay_;
  return true;
}

std::span<const float> Residual::in_delta(ElementRange range) {
  const std::span<float> here = part(range);
  bool converted = decayed(here);
  each_within(range, units_.of_mean, [&](ElementRange both) {
    if (!std::exchange(converted, true)) converted_.assign(here.begin(), here.end());
    for (float& value : std::span(converted_).subspan(both.begin - range.begin, both.size())) value /= per_delta();
  });
  return converted ? std::span<const float>(converted_) : here;
}

std::span<const float> Residual::in_mean(ElementRange range) {
  const std::span<float> here = part(range);
  bool converted = decayed(here);
  each_outside(range, units_.of_mean, [&](ElementRange other) {
    if (!std::exchange(converted, true)) converted_.assign(here.begin(), here.end());
    for (float& value : std::span(converted_).subspan(other.begin - range.begin, other.size())) value *= per_mean();
  });
  return converted ? std::span<const float>(converted_) : here;
}

std::span<float> Residual::next_of_mean(ElementRange range) {
  for (const Own& own : attempt_->own) {
    if (own.range.begin > range.begin || own.range.end < range.end) continue;
    return std::span(next_of_mean_).subspan(own.at + range.begin - own.range.begin, range.size());
  }
  panic("a mean of elements that are not ours is to be encoded", __FILE__, __LINE__);
}

}  // namespace collab
