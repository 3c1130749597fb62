// All paths give the same bits as the scalar one, on all lengths and all finite numbers, whatever the caller's
// floating-point modes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <iterator>
#include <string>

#include "tests/unit/codec/samples.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace collab {
namespace {

// The operations of one codec on one input, as bytes: four encoders, three decoders.
std::vector<CodecResult> all_operations(const Codec& codec, const std::vector<float>& a, const std::vector<float>& b,
                                        std::size_t n) {
  const auto first = std::span(a).first(n);
  const auto second = std::span(b).first(n);
  const std::size_t size = codec.encoded_size(n);
  const auto floats = [](std::span<std::byte> bytes) {
    return std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  };
  // What a payload leaves of its buffer is not the codec's: zeros, so that it compares.
  const auto trimmed = [](std::span<std::byte> out, std::optional<std::size_t> used) {
    if (used) std::ranges::fill(out.subspan(*used), std::byte{0});
    return used.has_value();
  };
  const auto with_rest = [&](auto&& encode) {
    return result_of(size + 4 * n, [&](auto out) {
      const std::span<float> next = floats(out.first(4 * n));
      std::ranges::copy(second, next.begin());
      return trimmed(out.subspan(4 * n), encode(Feedback{next, next}, out.subspan(4 * n)));
    });
  };
  std::vector<CodecResult> results;
  const auto payload = payload_of(codec, first).value_or(std::vector<std::byte>());
  results.push_back(result_of(size, [&](auto out) { return trimmed(out, codec.encode(first, out)); }));
  results.push_back(
      result_of(size, [&](auto out) { return trimmed(out, codec.encode_difference(first, second, out)); }));
  results.push_back(
      with_rest([&](Feedback feedback, auto out) { return codec.encode_with_feedback(first, feedback, out); }));
  results.push_back(with_rest([&](Feedback feedback, auto out) {
    return codec.encode_difference_with_feedback(first, second, feedback, out);
  }));
  results.push_back(result_of(4 * n, [&](auto out) { return codec.decode(payload, floats(out)).ok(); }));
  results.push_back(result_of(4 * n, [&](auto out) { return codec.decode_scaled(payload, 0.3F, floats(out)).ok(); }));
  results.push_back(result_of(4 * n, [&](auto out) {
    if (n > 0) std::memcpy(out.data(), b.data(), 4 * n);
    return codec.decode_accumulate(payload, 0.3F, floats(out)).ok();
  }));
  return results;
}

void expect_same_on_every_path(const Codec& codec, const std::vector<float>& a, const std::vector<float>& b,
                               std::size_t n) {
  std::vector<CodecResult> reference;
  on_every_path([&](codec::Path path) {
    const std::vector<CodecResult> results = all_operations(codec, a, b, n);
    for (const CodecResult& result : results) ASSERT_TRUE(margin_untouched(result)) << codec.name() << " " << n;
    ASSERT_TRUE(results[0].ok && results[4].ok && results[5].ok && results[6].ok) << codec.name() << " " << n;
    if (path == codec::Path::kScalar) {
      reference = results;
      return;
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i].ok && !reference[i].ok) continue;  // a difference or sum was not finite: bytes are unspecified
      ASSERT_TRUE(results[i] == reference[i])
          << codec.name() << ", " << n << " elements, operation " << i << ", path " << codec::name_of(path);
    }
  });
}

TEST(CodecPaths, AgreeOnAllLengths) {
  Prng random(1);
  const std::vector<float> a = normal_vector(random, 3000, 1.0);
  const std::vector<float> b = normal_vector(random, 3000, 1.0);
  for (std::size_t n = 0; n <= 3000; ++n) {
    // All codecs up to three blocks and a bit, top-k to its first steps; beyond, they take turns.
    for (std::size_t i = 0; i < std::size(kAllCodecs); ++i) {
      const std::size_t all_up_to = codec_for(kAllCodecs[i]).fixed_size() ? 780 : 130;
      if (n > all_up_to && (n + n / 256) % std::size(kAllCodecs) != i) continue;
      expect_same_on_every_path(codec_for(kAllCodecs[i]), a, b, n);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CodecPaths, AgreeOnSeveralGroups) {
  Prng random(2);
  const std::vector<float> a = normal_vector(random, 13'000, 1.0);
  const std::vector<float> b = normal_vector(random, 13'000, 1.0);
  for (const CodecId id : kAllCodecs) {
    for (const std::size_t n : {4095U, 4096U, 4097U, 8191U, 8192U, 12'345U}) {
      expect_same_on_every_path(codec_for(id), a, b, n);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CodecPaths, AgreeOnEveryFiniteNumber) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Prng random(seed);
    // Halves of whole blocks with one exponent, so that blocks are not all ruled by one huge value.
    std::vector<float> a = finite_bits(random, 1500);
    for (std::size_t i = 0; i < 768; ++i) {
      const auto exponent = static_cast<std::uint32_t>((seed * 37 + i / 256) % 255) << 23;
      a[i] = std::bit_cast<float>((std::bit_cast<std::uint32_t>(a[i]) & 0x807F'FFFF) | exponent);
    }
    const std::vector<float> b = finite_bits(random, 1500);
    for (const CodecId id : kAllCodecs) {
      expect_same_on_every_path(codec_for(id), a, b, a.size());
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CodecPaths, AgreeOnWhatIsRefused) {
  Prng random(5);
  int accepted = 0;
  int turned_away = 0;
  for (int trial = 0; trial < 400; ++trial) {
    for (const CodecId id : kAllCodecs) {
      const Codec& codec = codec_for(id);
      const std::size_t n = 200 + random.below(700);
      const std::vector<float> values = normal_vector(random, n, 1.0);
      std::vector<std::byte> payload = payload_of(codec, values).value();
      for (int flips = 0; flips < 3; ++flips) {
        payload[payload.size() - 1 - random.below(flips == 0 ? 4 : payload.size())] ^=
            static_cast<std::byte>(1U << random.below(8));
      }
      std::string verdict;
      on_every_path([&](codec::Path path) {
        std::vector<float> out(n);
        const std::string text = codec.decode(payload, out).to_string();
        if (path == codec::Path::kScalar) verdict = text;
        EXPECT_EQ(text, verdict) << codec.name() << " " << codec::name_of(path);
        EXPECT_EQ(codec.decode_scaled(payload, 1.0F, out).to_string(), verdict);
        EXPECT_EQ(codec.decode_accumulate(payload, 1.0F, out).to_string(), verdict);
      });
      ++(verdict == "ok" ? accepted : turned_away);
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(turned_away, 100);
}

TEST(CodecPaths, TheCallersFloatingPointModesDoNotMatter) {
  Prng random(7);
  const std::vector<float> a = finite_bits(random, 1500);
  std::vector<float> b = a;
  for (float& value : b) value *= 0.5F;
  for (const CodecId id : kAllCodecs) {
    on_every_path([&](codec::Path path) {
      const std::vector<CodecResult> plain = all_operations(codec_for(id), a, b, a.size());
      ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
      _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
      const unsigned before = _mm_getcsr();
#endif
      const std::vector<CodecResult> odd = all_operations(codec_for(id), a, b, a.size());
#if defined(__x86_64__)
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before & ~0x8040U);
      EXPECT_EQ(before, after);
#endif
      EXPECT_EQ(std::fegetround(), FE_UPWARD);
      std::fesetround(FE_TONEAREST);
      EXPECT_TRUE(plain == odd) << codec_for(id).name() << " " << codec::name_of(path);
    });
  }
}

}  // namespace
}  // namespace collab
