// Which tensors COLLAB_KEEP_FP16 keeps at 16 bits.
#include "core/runtime/tensors/kept_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace collab {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<TensorInfo> kModel{{"wte.weight", "float32", {70'000, 2}, TensorKind::kAveraged, {}},
                                     {"h.0.ln.weight", "float32", {100}, TensorKind::kAveraged, {}},
                                     {"attn.mask", "float32", {64, 64}, TensorKind::kLeftOut, {1, 1}},
                                     {"h.0.ln.bias", "float32", {100}, TensorKind::kAveraged, {}},
                                     {"h.0.mlp.weight", "float32", {256, 256}, TensorKind::kAveraged, {}},
                                     {"scale", "float32", {}, TensorKind::kAveraged, {}},
                                     {"head.weight", "float32", {0, 4}, TensorKind::kAveraged, {}},
                                     {"bn.running_mean", "float32", {500}, TensorKind::kAveraged, {}}};
constexpr std::uint64_t kParameters = 140'000 + 100 + 100 + 65'536 + 1;
constexpr std::uint64_t kElements = kParameters + 500;

TEST(KeptTensors, NoneKeepsBuffersAlone) {
  EXPECT_THAT(kept_tensors("none", kModel, kElements, UINT64_MAX).ranges, IsEmpty());
  const KeptTensors kept = kept_tensors("none", kModel, kElements, kParameters);
  EXPECT_THAT(kept.ranges, ElementsAre(ElementRange{kParameters, kElements}));
  EXPECT_THAT(kept.unmatched, IsEmpty());
}

TEST(KeptTensors, SmallOnesAreThoseBelow65536Elements) {
  const KeptTensors kept = kept_tensors("small", kModel, kElements, UINT64_MAX);
  EXPECT_THAT(kept.ranges, ElementsAre(ElementRange{140'000, 140'200}, ElementRange{kParameters - 1, kElements}))
      << "neighbours are one; 256 x 256 is not small; what is left out of the vector has no place in it";
}

TEST(KeptTensors, WordsArePartsOfNames) {
  const KeptTensors kept = kept_tensors("mlp,wte,ln.bias", kModel, kElements, UINT64_MAX);
  EXPECT_THAT(kept.ranges, ElementsAre(ElementRange{0, 140'000}, ElementRange{140'100, 140'200 + 65'536}));
  EXPECT_THAT(kept.unmatched, IsEmpty());
}

TEST(KeptTensors, WordsThatMatchNothingAreReported) {
  const KeptTensors kept = kept_tensors("embeding,ln,small", kModel, kElements, UINT64_MAX);
  EXPECT_THAT(kept.unmatched, ElementsAre("embeding"));
  EXPECT_THAT(kept_tensors("small", {}, kElements, UINT64_MAX).unmatched, IsEmpty()) << "small is no name";
}

TEST(KeptTensors, BuffersAreKeptBesideTheMatchedTensors) {
  EXPECT_THAT(kept_tensors("mlp", kModel, kElements, kParameters).ranges,
              ElementsAre(ElementRange{140'200, 140'200 + 65'536}, ElementRange{kParameters, kElements}));
  EXPECT_THAT(kept_tensors("small", kModel, kElements, kParameters).ranges,
              ElementsAre(ElementRange{140'000, 140'200}, ElementRange{kParameters - 1, kElements}));
}

TEST(KeptTensors, RangesAreCutAtTheEndOfTheVector) {
  EXPECT_THAT(kept_tensors("wte", kModel, 1000, UINT64_MAX).ranges, ElementsAre(ElementRange{0, 1000}));
  EXPECT_THAT(kept_tensors("ln", kModel, 1000, UINT64_MAX).ranges, IsEmpty());
}

}  // namespace
}  // namespace collab
