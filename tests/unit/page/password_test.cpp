// The password is made from the swarm's token, and opens only the page.
#include "tools/page/password.h"

#include <gmock/gmock.h>

namespace collab::page {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kToken = "clb_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

LoadedConfig with_token(const std::string& token) { return load_config({}, {{"token", token}}).value(); }

TEST(PagePassword, IsDerivedFromTheToken) {
  const std::vector<std::string> made = passwords_of(with_token(std::string(kToken) + "0d8b7a2e")).value();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_THAT(made[0], testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(made[0].size(), 32U);
  EXPECT_EQ(passwords_of(with_token(std::string(kToken) + "0d8b7a2e")).value(), made);
  EXPECT_NE(passwords_of(with_token("another that somebody thought up")).value(), made);
}

TEST(PagePassword, IsAbsentWithoutAToken) { EXPECT_THAT(passwords_of(load_config({}, {}).value()).value(), IsEmpty()); }

TEST(PagePassword, StandsBehindTheFirstColon) {
  EXPECT_EQ(password_in("Basic dXNlcjpwYXNzOndvcmQ="), "pass:word");
  EXPECT_EQ(password_in("Basic OnBhc3N3b3Jk"), "password");
  EXPECT_EQ(password_in("Basic dXNlcjo="), "");
  for (const char* odd : {"", "Basic", "Basic !", "Basic =", "Basic ====", "Basic dXNlcg==", "Digest dXNlcjpw"}) {
    EXPECT_EQ(password_in(odd), "") << odd;
  }
  EXPECT_EQ(password_in("Basic " + std::string(100'000, 'A')), "");
}

TEST(PagePassword, IsComparedAsAWhole) {
  const std::vector<std::string> passwords{"abcd", "efgh"};
  EXPECT_TRUE(is_one_of("abcd", passwords));
  EXPECT_TRUE(is_one_of("efgh", passwords)) << "of a token that another one takes the place of";
  for (const char* wrong : {"", "abc", "abcde", "abcx", "efgd"}) EXPECT_FALSE(is_one_of(wrong, passwords)) << wrong;
  EXPECT_FALSE(is_one_of("", {}));
}

// RFC 6234 has no base64; this is `printf abc | openssl dgst -sha256 -binary | base64`.
TEST(PagePolicy, NamesTheDigestOfWhatStandsInTheElement) {
  EXPECT_EQ(digest_of_element("<p><style>abc</style><script>x</script>", "style"),
            "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='");
}

}  // namespace
}  // namespace collab::page
