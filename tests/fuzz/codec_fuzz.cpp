// Every codec's decoders on any bytes, and its encoder on any floats.
// Input: codec u8, elements u16 (little-endian), then the encoded bytes, which are also read as floats to encode.
#include <cmath>
#include <cstring>

#include "collab/codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace collab::fuzz {
namespace {

constexpr std::size_t kHeader = 3;
constexpr std::size_t kCodecs = static_cast<std::size_t>(kLastCodec) + 1;

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

// Exact copies on the heap, so that a read or write one past the end is seen.
template <typename T>
std::vector<T> copied(std::span<const std::byte> bytes) {
  std::vector<T> copy(bytes.size() / sizeof(T));
  if (!copy.empty()) std::memcpy(copy.data(), bytes.data(), copy.size() * sizeof(T));
  return copy;
}

void check_decoders(const Codec& codec, std::span<const std::byte> encoded, std::size_t elements) {
  std::vector<float> plain(elements);
  std::vector<float> scaled(elements);
  std::vector<float> sum(elements, 1.0F);
  const Status status = codec.decode(encoded, plain);
  FUZZ_CHECK(codec.decode_scaled(encoded, 1.0F, scaled).ok() == status.ok());
  FUZZ_CHECK(codec.decode_accumulate(encoded, 1.0F, sum).ok() == status.ok());
  if (!status.ok()) {
    FUZZ_CHECK(status.code() == StatusCode::kCorrupt && !status.message().empty());
    return;
  }
  FUZZ_CHECK(encoded.size() <= codec.encoded_size(elements));
  FUZZ_CHECK(!codec.fixed_size() || encoded.size() == codec.encoded_size(elements));
  FUZZ_CHECK(all_finite(plain));
  for (std::size_t i = 0; i < elements; ++i) {
    FUZZ_CHECK(scaled[i] == plain[i]);
    FUZZ_CHECK(sum[i] == 1.0F + plain[i]);
  }
}

void check_encoder(const Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> encoded(codec.encoded_size(values.size()));
  const std::optional<std::size_t> size = codec.encode(values, encoded);
  FUZZ_CHECK(size.has_value() == all_finite(values));
  if (!size) return;
  FUZZ_CHECK(*size == encoded.size() || (!codec.fixed_size() && *size < encoded.size()));
  encoded.resize(*size);
  encoded.shrink_to_fit();
  std::vector<float> decoded(values.size());
  FUZZ_CHECK(codec.decode(encoded, decoded).ok());
  FUZZ_CHECK(!codec.lossless() || std::equal(values.begin(), values.end(), decoded.begin()));

  // With nothing left out before, feedback sends the same and keeps the rest. -0 + 0 would be +0.
  std::vector<float> residual(values.size(), -0.0F);
  std::vector<std::byte> again(codec.encoded_size(values.size()));
  const std::optional<std::size_t> same = codec.encode_with_feedback(values, {residual, residual}, again);
  FUZZ_CHECK(same == size && std::equal(encoded.begin(), encoded.end(), again.begin()));
  for (std::size_t i = 0; i < values.size(); ++i) FUZZ_CHECK(residual[i] == values[i] - decoded[i]);
}

}  // namespace

std::vector<Input> seed_inputs() {
  std::vector<Input> inputs;
  for (std::size_t number = 0; number < kCodecs; ++number) {
    const auto id = static_cast<CodecId>(number);
    for (const std::size_t elements : {0U, 1U, 130U, 1500U, 5000U}) {
      std::vector<float> values(elements);
      for (std::size_t i = 0; i < elements; ++i)
        values[i] = std::ldexp(static_cast<float>(i % 19) - 9, static_cast<int>(i % 7) - 30);
      std::vector<std::byte> encoded(codec_for(id).encoded_size(elements));
      encoded.resize(codec_for(id).encode(values, encoded).value_or(0));
      Input input{static_cast<std::uint8_t>(id), static_cast<std::uint8_t>(elements),
                  static_cast<std::uint8_t>(elements >> 8)};
      const Input body = to_input(encoded);
      input.insert(input.end(), body.begin(), body.end());
      inputs.push_back(input);
    }
  }
  return inputs;
}

}  // namespace collab::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using collab::fuzz::kHeader;
  if (size < kHeader) return 0;
  const auto& codec = collab::codec_for(static_cast<collab::CodecId>(data[0] % collab::fuzz::kCodecs));
  const std::size_t elements = data[1] | std::size_t{data[2]} << 8;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(kHeader);
  collab::fuzz::check_decoders(codec, collab::fuzz::copied<std::byte>(rest), elements);
  collab::fuzz::check_encoder(codec, collab::fuzz::copied<float>(rest));
  return 0;
}
