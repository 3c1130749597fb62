// What is shown, in JSON and in Prometheus' text: whatever members are called, it stays what it is.
#include "tools/page/contents.h"

#include <gmock/gmock.h>

namespace collab::page {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CoordinatorReport report() {
  CoordinatorReport made;
  made.status.swarm = "night";
  made.status.round = RoundId{7};
  made.status.leads = true;
  MemberStatus paris, odd;
  paris.name = "paris";
  paris.state = "active";
  paris.share = 0.5;
  paris.loss = 1.25;
  paris.times.step_seconds = 0.25;
  paris.times.round_seconds = 1.5;
  paris.times.waited = 0.02;
  paris.times.overlapped = 0.6;
  paris.times.merged = 0.005;
  odd.name = "a\"}\\ 9\n<script>";
  odd.state = "suspect";
  odd.helper = true;
  made.status.members = {paris, odd};
  made.events.push_back({12.5, "join", "</script> \x1b[2J joined"});
  return made;
}

TEST(PageContents, AreOneJsonObject) {
  const std::string text = status_text({"Learn \"French\"", "collab"}, report(), {{"paris", 640, 7}}, 99.5);
  EXPECT_THAT(text,
              testing::StartsWith(R"({"at":99.5,"objective":"Learn \"French\"","join":"collab","swarm":{"swarm":)"));
  EXPECT_THAT(text,
              HasSubstr(R"("leaderboard":[{"name":"paris","samples":640,"rounds":7}],"rounds":[],"events":[{"at":)"
                        R"(12.5,"event":"join","text":)"));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\n")), Not(HasSubstr("\x1b"))));
}

TEST(PageContents, MetricsHaveALineEach) {
  const std::string text = metrics_text(report(), {{"paris", 640, 7}, {"rome", 64, 1}});
  EXPECT_THAT(text, HasSubstr("# HELP collab_round The last round that was agreed on.\n# TYPE collab_round gauge\n"
                              "collab_round 7\n"));
  EXPECT_THAT(text, HasSubstr("collab_site_up{site=\"paris\",state=\"active\",role=\"site\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("collab_site_share{site=\"paris\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("collab_site_step_seconds{site=\"paris\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("collab_site_round_seconds{site=\"paris\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("collab_site_waited_ratio{site=\"paris\"} 0.02\n"));
  EXPECT_THAT(text, HasSubstr("collab_site_overlapped_ratio{site=\"paris\"} 0.6\n"));
  EXPECT_THAT(text, HasSubstr("collab_site_merged_ratio{site=\"paris\"} 0.005\n"));
  EXPECT_THAT(text, HasSubstr("collab_contributed_samples_total{site=\"rome\"} 64\n"));
}

TEST(PageContents, ALossThatNobodyLoggedIsNone) {
  const std::string text = metrics_text(report(), {});
  EXPECT_THAT(text, HasSubstr("# TYPE collab_site_loss gauge\ncollab_site_loss{site=\"paris\"} 1.25\n# HELP"));
}

TEST(PageContents, UnknownDeltaStatisticsHaveNoLine) {
  CoordinatorReport known = report();
  EXPECT_THAT(metrics_text(known, {}), Not(HasSubstr("collab_delta_spread")));
  known.status.spread = 0.75;
  EXPECT_THAT(metrics_text(known, {}),
              AllOf(HasSubstr("\ncollab_delta_spread 0.75\n"), Not(HasSubstr("collab_mean_cosine"))));
}

TEST(PageContents, ANameCannotEndItsLabelOrItsLine) {
  EXPECT_THAT(metrics_text(report(), {}),
              HasSubstr(R"(collab_site_up{site="a\"}\\ 9\\n<script>",state="suspect",role="helper"} 1)"));
}

TEST(JoinCommand, NamesAFileOfTheKeyAndNeverTheKey) {
  EXPECT_EQ(join_command("h:1", "default", Key::kNone),
            "COLLAB_SITE=NAME COLLAB_COORDINATOR=h:1 torchrun --standalone train.py");
  EXPECT_EQ(join_command("h:1", "night", Key::kToken),
            "COLLAB_SITE=NAME COLLAB_COORDINATOR=h:1 COLLAB_RUN=night COLLAB_TOKEN_FILE=swarm.key torchrun "
            "--standalone train.py");
  EXPECT_THAT(join_command("h:1", "default", Key::kCertificates), HasSubstr("COLLAB_TLS_CERT=site.pem"));
}

TEST(JoinCommand, QuotesWhatAShellWouldObey) {
  EXPECT_THAT(join_command("[::1]:2", "it's; rm -rf $HOME", Key::kNone),
              AllOf(HasSubstr("COLLAB_SITE=NAME COLLAB_COORDINATOR='[::1]:2' "),
                    HasSubstr(R"(COLLAB_RUN='it'\''s; rm -rf $HOME' )")));
}

}  // namespace
}  // namespace collab::page
