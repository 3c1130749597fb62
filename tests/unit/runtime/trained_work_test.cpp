// What a site's triggers tell of what it has trained.
#include "core/runtime/trained_work.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

TEST(TrainedWork, SamplesAndStepsAddUpWithoutTheDroppedOnes) {
  TrainedWork work;
  work.count(100);
  EXPECT_EQ(work.trigger(10).samples, 100U);
  EXPECT_EQ(work.trigger(10).steps, 10U);
  work.count(40);
  work.drop(4);
  EXPECT_EQ(work.trigger(14).samples, 100U);
  EXPECT_EQ(work.trigger(14).steps, 10U);
  work.count(60);
  EXPECT_EQ(work.trigger(20).samples, 160U);
  EXPECT_EQ(work.trigger(20).steps, 16U);
}

TEST(TrainedWork, ReportsTheBitsOfTheLossOnceThereIsOne) {
  TrainedWork work;
  EXPECT_EQ(work.trigger(0).measured.loss, wire::kNoLoss);
  work.note_loss(0.5F);
  EXPECT_EQ(work.trigger(0).measured.loss, 0x3f00'0000U);
}

}  // namespace
}  // namespace collab
