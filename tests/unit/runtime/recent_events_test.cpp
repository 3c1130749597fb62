// What is kept of what a coordinator told: the last few, cut short.
#include "core/runtime/happenings.h"

#include <gmock/gmock.h>

namespace collab {
namespace {

protocol::Note note(std::string text) { return {protocol::Note::Level::kInfo, "join", std::move(text), {}}; }

TEST(Happenings, TheLastOnesAreKept) {
  Happenings happenings;
  for (int i = 0; i < 100; ++i) happenings.add(note("number " + std::to_string(i)));
  const std::vector<Happening> last = happenings.last();
  ASSERT_EQ(last.size(), Happenings::kMost);
  EXPECT_EQ(last.front().text, "number 70");
  EXPECT_EQ(last.back().text, "number 99");
  EXPECT_EQ(last.back().event, "join");
  EXPECT_GT(last.back().at, 1.7e9) << "Unix time";
}

TEST(Happenings, ALongOneIsCut) {
  Happenings happenings;
  happenings.add(note(std::string(100'000, 'x')));
  EXPECT_EQ(happenings.last()[0].text, std::string(Happenings::kMostBytes, 'x') + " ...");
}

}  // namespace
}  // namespace collab
