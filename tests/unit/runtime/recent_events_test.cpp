// What is kept of what a coordinator told: the last few, cut short.
#include "core/runtime/recent_events.h"

#include <gmock/gmock.h>

namespace collab {
namespace {

protocol::Note note(std::string text) { return {protocol::Note::Level::kInfo, "join", std::move(text), {}}; }

TEST(RecentEvents, TheLastOnesAreKept) {
  RecentEvents recent_events;
  for (int i = 0; i < 100; ++i) recent_events.add(note("number " + std::to_string(i)));
  const std::vector<RecentEvent> last = recent_events.last();
  ASSERT_EQ(last.size(), RecentEvents::kMost);
  EXPECT_EQ(last.front().text, "number 70");
  EXPECT_EQ(last.back().text, "number 99");
  EXPECT_EQ(last.back().event, "join");
  EXPECT_GT(last.back().at, 1.7e9) << "Unix time";
}

TEST(RecentEvents, ALongOneIsCut) {
  RecentEvents recent_events;
  recent_events.add(note(std::string(100'000, 'x')));
  EXPECT_EQ(recent_events.last()[0].text, std::string(RecentEvents::kMostBytes, 'x') + " ...");
}

}  // namespace
}  // namespace collab
