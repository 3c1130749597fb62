#include "core/codec/mixed_codec.h"

#include <algorithm>
#include <string>

namespace collab {

MixedCodec::MixedCodec(CodecId codec, std::span<const ElementRange> kept, std::uint64_t elements)
    : codec_(&codec_for(codec)), fp16_(&codec_for(CodecId::kFp16)), elements_(elements) {
  if (needs_error_feedback(codec)) kept_.assign(kept.begin(), kept.end());
}

template <typename F>
void MixedCodec::each_run(ElementRange chunk, bool kept, F f) const {
  std::uint64_t at = chunk.begin;
  const auto before = [&](const ElementRange& range) { return range.end <= chunk.begin; };
  for (auto range = std::ranges::partition_point(kept_, before); range != kept_.end() && range->begin < chunk.end;
       ++range) {
    const ElementRange both{std::max(chunk.begin, range->begin), std::min(chunk.end, range->end)};
    if (kept) {
      f(both.begin - chunk.begin, both.size());
    } else if (both.begin > at) {
      f(at - chunk.begin, both.begin - at);
    }
    at = both.end;
  }
  if (!kept && chunk.end > at) f(at - chunk.begin, chunk.end - at);
}

std::array<MixedCodec::Part, 2> MixedCodec::parts_of(ElementRange chunk) const {
  std::size_t kept = 0;
  each_run(chunk, true, [&kept](std::size_t, std::size_t count) { kept += count; });
  return {Part{fp16_, true, kept}, Part{codec_, false, chunk.size() - kept}};
}

std::size_t MixedCodec::encoded_size(ElementRange chunk) const {
  std::size_t bytes = 0;
  for (const Part& part : parts_of(chunk)) bytes += part.elements > 0 ? part.codec->encoded_size(part.elements) : 0;
  return bytes;
}

std::size_t MixedCodec::usual_size(std::uint64_t elements) const {
  if (kept_.empty() || elements_ == 0) return codec_->encoded_size(elements);
  const double part = static_cast<double>(elements) / static_cast<double>(elements_);
  return static_cast<std::size_t>(part * static_cast<double>(encoded_size({0, elements_}))) + 1;
}

std::span<const float> MixedCodec::join(ElementRange chunk, const Part& part, std::span<const float> values,
                                        std::vector<float>& joined) const {
  if (part.elements == chunk.size()) return values;
  joined.clear();
  each_run(chunk, part.kept, [&](std::size_t first, std::size_t count) {
    const std::span<const float> run = values.subspan(first, count);
    joined.insert(joined.end(), run.begin(), run.end());
  });
  return joined;
}

void MixedCodec::spread(ElementRange chunk, const Part& part, std::span<const float> joined,
                        std::span<float> values) const {
  std::size_t at = 0;
  each_run(chunk, part.kept, [&](std::size_t first, std::size_t count) {
    std::ranges::copy(joined.subspan(at, count), values.subspan(first, count).begin());
    at += count;
  });
}

template <typename Encode>
std::optional<std::size_t> MixedCodec::encode_parts(ElementRange chunk, std::span<std::byte> out, Encode encode) {
  std::size_t bytes = 0;
  for (const Part& part : parts_of(chunk)) {
    if (part.elements == 0) continue;
    const std::optional<std::size_t> used = encode(part, out.subspan(bytes, part.codec->encoded_size(part.elements)));
    if (!used) return std::nullopt;
    bytes += *used;
  }
  return bytes;
}

template <typename Feed>
std::optional<std::size_t> MixedCodec::feed_parts(ElementRange chunk, Feedback feedback, std::span<std::byte> out,
                                                  Feed feed) {
  return encode_parts(chunk, out, [&](const Part& part, std::span<std::byte> bytes) {
    if (part.elements == chunk.size()) return feed(part, feedback, bytes);
    const std::span<const float> residual = join(chunk, part, feedback.residual, residual_);
    next_.resize(part.elements);
    const std::optional<std::size_t> used = feed(part, Feedback{residual, next_}, bytes);
    spread(chunk, part, next_, feedback.next);
    return used;
  });
}

std::optional<std::size_t> MixedCodec::encode(ElementRange chunk, std::span<const float> in, std::span<std::byte> out) {
  return encode_parts(chunk, out, [&](const Part& part, std::span<std::byte> bytes) {
    return part.codec->encode(join(chunk, part, in, a_), bytes);
  });
}

std::optional<std::size_t> MixedCodec::encode_difference(ElementRange chunk, std::span<const float> a,
                                                         std::span<const float> b, std::span<std::byte> out) {
  return encode_parts(chunk, out, [&](const Part& part, std::span<std::byte> bytes) {
    return part.codec->encode_difference(join(chunk, part, a, a_), join(chunk, part, b, b_), bytes);
  });
}

std::optional<std::size_t> MixedCodec::encode_with_feedback(ElementRange chunk, std::span<const float> in,
                                                            Feedback feedback, std::span<std::byte> out) {
  return feed_parts(chunk, feedback, out, [&](const Part& part, Feedback own, std::span<std::byte> bytes) {
    return part.codec->encode_with_feedback(join(chunk, part, in, a_), own, bytes);
  });
}

std::optional<std::size_t> MixedCodec::encode_difference_with_feedback(ElementRange chunk, std::span<const float> a,
                                                                       std::span<const float> b, Feedback feedback,
                                                                       std::span<std::byte> out) {
  return feed_parts(chunk, feedback, out, [&](const Part& part, Feedback own, std::span<std::byte> bytes) {
    return part.codec->encode_difference_with_feedback(join(chunk, part, a, a_), join(chunk, part, b, b_), own, bytes);
  });
}

template <typename Decode>
Status MixedCodec::decode_parts(ElementRange chunk, std::span<const std::byte> in, std::span<float> values,
                                Decode decode) {
  const std::array<Part, 2> parts = parts_of(chunk);
  const auto& [kept, others] = parts;
  const std::size_t border = others.elements == 0 ? in.size() : kept.codec->encoded_size(kept.elements);
  if (border > in.size()) {
    return corrupt("expected at least " + std::to_string(border) + " bytes, for " + std::to_string(kept.elements) +
                   " elements that are kept at 16 bits; got " + std::to_string(in.size()));
  }
  for (const Part& part : parts) {
    if (part.elements == 0) continue;
    const std::span<const std::byte> bytes = part.kept ? in.first(border) : in.subspan(border);
    if (part.elements == chunk.size()) return decode(part, bytes, values);
    join(chunk, part, values, a_);
    COLLAB_RETURN_IF_ERROR(decode(part, bytes, std::span(a_)));
    spread(chunk, part, a_, values);
  }
  return {};
}

Status MixedCodec::decode(ElementRange chunk, std::span<const std::byte> in, std::span<float> out) {
  return decode_parts(chunk, in, out, [](const Part& part, std::span<const std::byte> bytes, std::span<float> values) {
    return part.codec->decode(bytes, values);
  });
}

Status MixedCodec::decode_accumulate(ElementRange chunk, std::span<const std::byte> in, float scale,
                                     std::span<float> acc) {
  return decode_parts(chunk, in, acc, [&](const Part& part, std::span<const std::byte> bytes, std::span<float> values) {
    return part.codec->decode_accumulate(bytes, scale, values);
  });
}

Status MixedCodec::decode_scaled(ElementRange chunk, std::span<const std::byte> in, float scale, std::span<float> out) {
  return decode_parts(chunk, in, out, [&](const Part& part, std::span<const std::byte> bytes, std::span<float> values) {
    return part.codec->decode_scaled(bytes, scale, values);
  });
}

}  // namespace collab
