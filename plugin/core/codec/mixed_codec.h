// A codec for the vector that keeps 16 bits for some elements: small tensors, norms, embeddings, batch statistics.
//
// A chunk's payload has the kept elements first, joined and encoded as fp16, then the others, joined and encoded by the
// codec. A codec of 16 bits or more keeps none. The functions take, return, refuse and round elements like those of
// Codec.
// Threads: one caller at a time. Ownership: buffers for the elements of one chunk.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collab/codec.h"
#include "collab/types.h"

namespace collab {

class MixedCodec {
 public:
  // `kept`: ascending, disjoint ranges of a vector of `elements` elements.
  MixedCodec(CodecId codec, std::span<const ElementRange> kept, std::uint64_t elements);

  [[nodiscard]] CodecId id() const { return codec_->id(); }
  [[nodiscard]] std::string_view name() const { return codec_->name(); }
  [[nodiscard]] bool lossless() const { return codec_->lossless(); }
  // Whether a payload's length depends only on the chunk's place. Otherwise it depends on the elements, too.
  [[nodiscard]] bool fixed_size() const { return codec_->fixed_size(); }
  // A chunk's bytes: exact with fixed_size(), otherwise an upper bound.
  [[nodiscard]] std::size_t encoded_size(ElementRange chunk) const;
  // Approximate bytes for this many elements anywhere in the vector.
  [[nodiscard]] std::size_t usual_size(std::uint64_t elements) const;

  [[nodiscard]] std::optional<std::size_t> encode(ElementRange chunk, std::span<const float> in,
                                                  std::span<std::byte> out);
  [[nodiscard]] std::optional<std::size_t> encode_difference(ElementRange chunk, std::span<const float> a,
                                                             std::span<const float> b, std::span<std::byte> out);
  [[nodiscard]] std::optional<std::size_t> encode_with_feedback(ElementRange chunk, std::span<const float> in,
                                                                Feedback feedback, std::span<std::byte> out);
  [[nodiscard]] std::optional<std::size_t> encode_difference_with_feedback(ElementRange chunk, std::span<const float> a,
                                                                           std::span<const float> b, Feedback feedback,
                                                                           std::span<std::byte> out);

  Status decode(ElementRange chunk, std::span<const std::byte> in, std::span<float> out);
  Status decode_accumulate(ElementRange chunk, std::span<const std::byte> in, float scale, std::span<float> acc);
  Status decode_scaled(ElementRange chunk, std::span<const std::byte> in, float scale, std::span<float> out);

 private:
  // The elements of a chunk that are kept, or those that are not.
  struct Part {
    const Codec* codec;
    bool kept;
    std::size_t elements;
  };
  [[nodiscard]] std::array<Part, 2> parts_of(ElementRange chunk) const;  // in the payload's order
  // Calls f(first, count) for each run of such elements; `first` counts from the chunk's begin.
  template <typename F>
  void each_run(ElementRange chunk, bool kept, F f) const;
  // A part's elements, joined: `values` itself if the part is the whole chunk, otherwise a copy in `joined`.
  std::span<const float> join(ElementRange chunk, const Part& part, std::span<const float> values,
                              std::vector<float>& joined) const;
  void spread(ElementRange chunk, const Part& part, std::span<const float> joined, std::span<float> values) const;
  // Calls encode(Part, bytes) for each part that has elements. The others do the same with feed(Part, Feedback, bytes)
  // and decode(Part, bytes, values).
  template <typename Encode>
  std::optional<std::size_t> encode_parts(ElementRange chunk, std::span<std::byte> out, Encode encode);
  template <typename Feed>
  std::optional<std::size_t> feed_parts(ElementRange chunk, Feedback feedback, std::span<std::byte> out, Feed feed);
  template <typename Decode>
  Status decode_parts(ElementRange chunk, std::span<const std::byte> in, std::span<float> values, Decode decode);

  const Codec* codec_;
  const Codec* fp16_;
  std::vector<ElementRange> kept_;
  std::uint64_t elements_;
  std::vector<float> a_, b_, residual_, next_;  // of a part
};

}  // namespace collab
