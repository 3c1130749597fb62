// What tokens are known by, and what is made of them.
#include "transport/tcp/tls/tcp_token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "transport/tcp/tcp_transport.h"

namespace collab::tcp {
namespace {

// As `collab token` printed it once.
const std::string kMade = "clb_9tiB3RijcSQmbfqUg-4kSbnXY9SoqRJqqjRMCTkXzSo9ad8cde3";
const std::string kOwn = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

std::string hex(const std::vector<unsigned char>& bytes) {
  std::string digits;
  for (const unsigned char byte : bytes) {
    digits += "0123456789abcdef"[byte >> 4U];
    digits += "0123456789abcdef"[byte & 15U];
  }
  return digits;
}

TEST(TcpToken, TheDerivationIsThatOfRfc5869) {
  std::string salt, purpose;
  for (int i = 0; i < 13; ++i) salt += static_cast<char>(i);
  for (int i = 0xF0; i < 0xFA; ++i) purpose += static_cast<char>(i);
  const auto made = hkdf(std::string(22, '\x0B'), salt, purpose, 32);  // its first test case
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(hex(*made), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

TEST(TcpToken, TheStretchIsThatOfRfc7914) {
  const auto made = scrypt("password", "NaCl", {.n = 1024, .r = 8, .p = 16}, 64);  // its second test case
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(hex(*made),
            "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
            "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640");
}

TEST(TcpToken, GeneratedTokensAreToldApartFromOthers) {
  EXPECT_TRUE(is_made_token(kMade));
  EXPECT_TRUE(check_token(kMade).ok());
  for (const std::string& own : {kOwn, "clb_" + std::string(43, 'k'), "clb_" + std::string(51, 'k'), kMade + "0"}) {
    EXPECT_FALSE(is_made_token(own)) << own;
  }
  std::string changed = kMade;
  changed[10] = changed[10] == 'a' ? 'b' : 'a';
  EXPECT_FALSE(is_made_token(changed));
  EXPECT_NE(check_token(changed).message().find("copy it again"), std::string::npos);
  EXPECT_TRUE(check_token(kOwn).ok()) << "stretched, and taken";
}

TEST(TcpToken, OnlyAUsersOwnTokenIsStretched) {
  const auto straight = hkdf(kMade, kSwarmSalt, "identity", 8);
  EXPECT_EQ(*key_of_token(kMade, "identity", 8), *straight);
  const auto secret = *scrypt(kOwn, kSwarmSalt, {}, 32);
  const std::string_view stretched(reinterpret_cast<const char*>(secret.data()), secret.size());
  EXPECT_EQ(*key_of_token(kOwn, "identity", 8), *hkdf(stretched, kSwarmSalt, "identity", 8));
  EXPECT_NE(*key_of_token(kOwn, "identity", 8), *hkdf(kOwn, kSwarmSalt, "identity", 8));
}

TEST(TcpToken, IsStretchedOnceAndWarnedOfOnce) {
  const std::string own(40, 'b');
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(key_of_token(own, "identity", 8).ok());
  const std::string first = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(first.find("was not made by `collab token`"), std::string::npos) << first;
  EXPECT_EQ(first.find(own), std::string::npos) << "and is not shown";
  ::testing::internal::CaptureStderr();
  const std::clock_t begun = std::clock();  // processor time, whatever else runs
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(key_of_token(own, std::to_string(i), 32).ok());
  EXPECT_LT(std::clock() - begun, 2 * CLOCKS_PER_SEC) << "100 stretches take ten seconds or more";
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(TcpToken, AFileThatOthersCanReadIsWarnedOfOnce) {
  const auto file = std::filesystem::temp_directory_path() / ("collab-exposed-" + std::to_string(::getpid()));
  std::ofstream(file) << kMade << "\n";
  const auto told = [&](int mode) {
    EXPECT_EQ(::chmod(file.c_str(), static_cast<mode_t>(mode)), 0);
    TcpOptions options;
    options.token_file = file.string();
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(swarm_secrets(options, "test").ok());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(0600), "");
  EXPECT_NE(told(0640).find("(mode 0640), and with it join the swarm: chmod 600 " + file.string()), std::string::npos);
  EXPECT_EQ(told(0640), "");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace collab::tcp
