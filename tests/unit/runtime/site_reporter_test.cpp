// What a node tells of a round.
#include "core/runtime/site_reporter.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace collab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a round leaves in the events file.
std::string line_of(const Config& config, const RoundReport& report, std::uint32_t fragments) {
  const std::string path = ::testing::TempDir() + "collab-news-" + std::to_string(::getpid());
  SiteReporter(config, "paris", "tcp", {fragments}, *EventsFile::open(path)).round(report, EgressWatch(0, {}));
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  return text;
}

TEST(SiteReporter, ARoundsReportFollowsTheSettings) {
  RoundReport report;
  report.round = RoundId(4);
  report.outer_lr = 0.5F;
  Config config;
  config.outer_optimizer = OuterId::kNesterov;
  const std::string plain = line_of(config, report, 1);
  EXPECT_THAT(plain, HasSubstr(R"("site":"paris","event":"round")"));
  EXPECT_THAT(plain, HasSubstr(R"("transport":"tcp")"));
  EXPECT_THAT(plain, HasSubstr(R"("outer_lr":0.5)"));
  for (const char* field : {"fragment", "overlap_seconds", "clipped_norm", "period", "egress_gb"}) {
    EXPECT_THAT(plain, Not(HasSubstr(field)));
  }
  config.overlap = true;
  config.outer_optimizer = OuterId::kAverage;
  report.clipped_norm = 2;
  report.period = 100;
  const std::string more = line_of(config, report, 3);
  EXPECT_THAT(more, HasSubstr(R"("fragment":0)"));
  EXPECT_THAT(more, HasSubstr(R"("overlap_seconds":0)"));
  EXPECT_THAT(more, HasSubstr(R"("clipped_norm":2)"));
  EXPECT_THAT(more, HasSubstr(R"("period":100)"));
  EXPECT_THAT(more, Not(HasSubstr("outer_lr")));
}

}  // namespace
}  // namespace collab
