// A codec for the vector's elements, and 16 bits for some of them: small tensors, norms, embeddings, batch statistics.
//
// A chunk's payload has its kept elements first, joined, as fp16 encodes them, then the others, joined, as the codec
// does. A codec of 16 bits and more keeps none. Functions take the chunk's elements as Codec's do, and return, refuse
// and round as these.
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
  // `kept`: ascending, apart, of a vector of so many elements.
  MixedCodec(CodecId codec, std::span<const ElementRange> kept, std::uint64_t elements);

  [[nodiscard]] CodecId id() const { return codec_->id(); }
  [[nodiscard]] std::string_view name() const { return codec_->name(); }
  [[nodiscard]] bool lossless() const { return codec_->lossless(); }
  // Whether a payload's length depends on the chunk's place alone; else on the elements as well.
  [[nodiscard]] bool fixed_size() const { return codec_->fixed_size(); }
  // Bytes for these elements: exactly so many with fixed_size(), else at most.
  [[nodiscard]] std::size_t encoded_size(ElementRange chunk) const;
  // For so many elements wherever they are, about.
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
  // f(first, count), in the chunk, for each run of such elements.
  template <typename F>
  void each_run(ElementRange chunk, bool kept, F f) const;
  // A part's elements, joined: `values` itself where the part is the whole chunk, else a copy in `joined`.
  std::span<const float> join(ElementRange chunk, const Part& part, std::span<const float> values,
                              std::vector<float>& joined) const;
  void spread(ElementRange chunk, const Part& part, std::span<const float> joined, std::span<float> values) const;
  // encode(Part, bytes) of each part that has elements; likewise feed(Part, Feedback, bytes), decode(Part, bytes,
  // values).
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
