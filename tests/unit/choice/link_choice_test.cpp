// Which transport is chosen from which settings.
#include "transport/choice/link_choice.h"

#include <gtest/gtest.h>

namespace collab::testing {
namespace {

LinkChoice chosen(Config config, Status ucx = {}) {
  const auto choice = choose_links(config, [&] { return ucx; });
  EXPECT_TRUE(choice.ok()) << choice.status().to_string();
  return choice.ok() ? *choice : LinkChoice();
}

// UCX is opened by nobody who has not named it, not even to look whether it loads.
TEST(LinkChoice, AutoIsTcp) {
  Config config;
  const auto unasked = choose_links(config, [] {
    ADD_FAILURE() << "asked for UCX";
    return Status();
  });
  ASSERT_TRUE(unasked.ok());
  EXPECT_EQ(to_string(*unasked),
            "links between sites use tcp: COLLAB_TRANSPORT=auto, not encrypted, as no token is given");
  config.token = "secret";
  EXPECT_EQ(to_string(chosen(config)), "links between sites use tcp: COLLAB_TRANSPORT=auto, encrypted by COLLAB_TOKEN");
}

TEST(LinkChoice, UcxChosenByNameReportsWhatIsMissing) {
  Config config;
  config.transport = "ucx";
  EXPECT_EQ(chosen(config).kind, "ucx");
  const auto refused = choose_links(config, [] { return unavailable("no libucp.so"); });
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("COLLAB_TRANSPORT=ucx, and no libucp.so; then look at `collab doctor`"),
            std::string::npos);
}

TEST(LinkChoice, AKeyIsNotDroppedSilently) {
  Config config;
  config.transport = "ucx";
  EXPECT_EQ(chosen(config).reason, "COLLAB_TRANSPORT=ucx, not encrypted");
  config.tls_cert = "/cert.pem";
  const auto refused = choose_links(config, [] { return Status(); });
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("COLLAB_TLS_CERT is given"), std::string::npos);
  config.insecure = true;
  EXPECT_TRUE(chosen(config).key_unused);
}

TEST(LinkChoice, APartOfACertificateDoesNotTurnEncryptionOff) {
  for (std::string Config::*part : {&Config::tls_cert, &Config::tls_key, &Config::tls_ca}) {
    Config config;
    config.*part = "/a.pem";
    EXPECT_EQ(chosen(config).kind, "tcp") << "which says what is missing";
    config.transport = "ucx";
    EXPECT_FALSE(choose_links(config, [] { return Status(); }).ok());
  }
}

}  // namespace
}  // namespace collab::testing
