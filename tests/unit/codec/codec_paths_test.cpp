// All paths give the same bits as the scalar one, on all lengths and all finite numbers, whatever the caller's
// floating-point modes.
#include <gtest/gtest.h>

#include <cfenv>
#include <iterator>
#include <string>

#include "tests/unit/codec/samples.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace collab {
namespace {

// The five operations of one codec on one input, as bytes.
std::vector<Outcome> all_operations(const Codec& codec, const std::vector<float>& a, const std::vector<float>& b,
                                    std::size_t n) {
  const auto first = std::span(a).first(n);
  const auto second = std::span(b).first(n);
  const std::size_t size = codec.encoded_size(n);
  const auto floats = [](std::span<std::byte> bytes) {
    return std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  };
  std::vector<Outcome> outcomes;
  outcomes.push_back(outcome_of(size, [&](auto out) { return codec.encode(first, out); }));
  const std::vector<std::byte> payload(outcomes[0].bytes.begin(), outcomes[0].bytes.end() - kMargin);
  outcomes.push_back(outcome_of(size, [&](auto out) { return codec.encode_difference(first, second, out); }));
  outcomes.push_back(outcome_of(4 * n, [&](auto out) { return codec.decode(payload, floats(out)).ok(); }));
  outcomes.push_back(outcome_of(4 * n, [&](auto out) { return codec.decode_scaled(payload, 0.3F, floats(out)).ok(); }));
  outcomes.push_back(outcome_of(4 * n, [&](auto out) {
    if (n > 0) std::memcpy(out.data(), b.data(), 4 * n);
    return codec.decode_accumulate(payload, 0.3F, floats(out)).ok();
  }));
  return outcomes;
}

void expect_same_on_every_path(const Codec& codec, const std::vector<float>& a, const std::vector<float>& b,
                               std::size_t n) {
  std::vector<Outcome> reference;
  on_every_path([&](codec::Path path) {
    const std::vector<Outcome> outcomes = all_operations(codec, a, b, n);
    for (const Outcome& outcome : outcomes) ASSERT_TRUE(margin_untouched(outcome)) << codec.name() << " " << n;
    ASSERT_TRUE(outcomes[0].ok && outcomes[2].ok && outcomes[3].ok && outcomes[4].ok) << codec.name() << " " << n;
    if (path == codec::Path::kScalar) {
      reference = outcomes;
      return;
    }
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (!outcomes[i].ok && !reference[i].ok) continue;  // the difference was not finite: bytes are unspecified
      ASSERT_TRUE(outcomes[i] == reference[i])
          << codec.name() << ", " << n << " elements, operation " << i << ", path " << codec::name_of(path);
    }
  });
}

TEST(CodecPaths, AgreeOnAllLengths) {
  Prng random(1);
  const std::vector<float> a = normal_vector(random, 3000, 1.0);
  const std::vector<float> b = normal_vector(random, 3000, 1.0);
  for (std::size_t n = 0; n <= 3000; ++n) {
    // All codecs up to three blocks and a bit; beyond, they take turns.
    for (std::size_t i = 0; i < std::size(kAllCodecs); ++i) {
      if (n > 780 && (n + n / 256) % std::size(kAllCodecs) != i) continue;
      expect_same_on_every_path(codec_for(kAllCodecs[i]), a, b, n);
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
      std::vector<std::byte> payload(codec.encoded_size(n));
      ASSERT_TRUE(codec.encode(values, payload));
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
      const std::vector<Outcome> plain = all_operations(codec_for(id), a, b, a.size());
      ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
      _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
      const unsigned before = _mm_getcsr();
#endif
      const std::vector<Outcome> odd = all_operations(codec_for(id), a, b, a.size());
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
