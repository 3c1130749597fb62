// What a coordinator tells of: which of it is kept for viewers of the swarm.
#include "core/runtime/coordinator_reporter.h"

#include <gmock/gmock.h>

namespace collab {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CoordinatorReporter, RoundsAndOtherNotableEventsAreKeptApart) {
  CoordinatorReporter news(*EventsFile::open(""));
  const auto tell = [&](protocol::Note::Level level, const std::string& event, const std::string& text) {
    news.record(TimePoint(), {level, event, text, {}});
  };
  ::testing::internal::CaptureStderr();
  tell(protocol::Note::Level::kInfo, "round", "round 1");
  tell(protocol::Note::Level::kWarning, "lost", "paris is lost");
  tell(protocol::Note::Level::kDebug, "join", "in detail");
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(news.rounds(), ElementsAre(Field(&RecentEvent::text, "round 1")));
  EXPECT_THAT(news.notable(), ElementsAre(Field(&RecentEvent::text, "paris is lost")));
  EXPECT_THAT(told, HasSubstr("paris is lost"));
  EXPECT_THAT(told, Not(HasSubstr("round 1"))) << "of that each member tells";
}

}  // namespace
}  // namespace collab
