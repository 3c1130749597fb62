// The tensor that makes a delta unfit is named, with what to do about it.
#include "core/runtime/tensors/not_finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/runtime/tensors/host_vector.h"

namespace collab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint64_t kBuffersFrom = 200'000 + 3;

// 200 000 elements of wte.weight (several tiles), 3 of bias, then 4 x 2 of a buffer; what is frozen or left out is no
// part of the vector.
const std::vector<TensorInfo> kModel{
    {"wte.weight", "float32", {2, 100'000}, TensorKind::kAveraged, {}},
    {"scale", "float32", {7}, TensorKind::kFrozen, {1, 2}},
    {"bias", "bfloat16", {3}, TensorKind::kAveraged, {}},
    {"attn.mask", "float32", {5}, TensorKind::kLeftOut, {3, 4}},
    {"norm.mean", "float32", {4, 2}, TensorKind::kAveraged, {}},
};

class NotFinite : public ::testing::Test {
 protected:
  [[nodiscard]] std::string words() { return not_finite_text(vector_, anchor_, kModel, kBuffersFrom); }
  float& operator[](std::size_t at) { return vector_.values()[at]; }

  HostVector vector_{std::vector<float>(kBuffersFrom + 8, 0.25F)};
  std::vector<float> anchor_ = std::vector<float>(kBuffersFrom + 8, 0.5F);
};

TEST_F(NotFinite, FiniteTensorsAreNotReported) { EXPECT_EQ(words(), ""); }

TEST_F(NotFinite, AParameterIsNamedWithElementAndShape) {
  (*this)[200'001] = std::nanf("");
  EXPECT_THAT(words(), HasSubstr("NaN in parameter \"bias\" (element 1 of bfloat16 [3]): training has diverged there"));
  EXPECT_THAT(words(), Not(HasSubstr("COLLAB_BUFFERS")));
  (*this)[199'999] = kInfinity;
  EXPECT_THAT(words(), HasSubstr("infinity in parameter \"wte.weight\" (element 199999 of float32 [2, 100000])"));
}

TEST_F(NotFinite, ABufferIsNamedWithTheTwoWaysToLeaveItOut) {
  (*this)[kBuffersFrom + 5] = -kInfinity;
  EXPECT_THAT(words(), HasSubstr("-infinity in buffer \"norm.mean\" (element 5 of float32 [4, 2]): set "
                                 "COLLAB_BUFFERS=0 at all sites, or make it no part of the average: "
                                 "register_buffer(..., persistent=False)"));
}

TEST_F(NotFinite, FiniteValuesMayLieTooFarApart) {
  (*this)[0] = -3e38F;
  anchor_[0] = 3e38F;
  EXPECT_THAT(words(), HasSubstr("the change of parameter \"wte.weight\" (element 0 of"));
  EXPECT_THAT(words(), HasSubstr("since the last round is beyond float32"));
}

TEST_F(NotFinite, ANonFiniteAnchorIsReportedAsTheAnchors) {
  anchor_[200'002] = -kInfinity;
  EXPECT_THAT(words(), HasSubstr("-infinity in the anchor's parameter \"bias\" (element 2 of"));
}

TEST_F(NotFinite, TheElementIsReportedIfThereAreNoNames) {
  (*this)[12] = kInfinity;
  EXPECT_THAT(not_finite_text(vector_, anchor_, {}, UINT64_MAX),
              HasSubstr("infinity in parameter element 12 of the vector"));
}

}  // namespace
}  // namespace collab
