// Routes, methods, the password, how often the coordinator is asked.
#include "tools/page/answers.h"

#include <gmock/gmock.h>

namespace collab::page {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

constexpr std::string_view kPassword = "00112233445566778899aabbccddeeff";
constexpr const char* kRight = "basic eDowMDExMjIzMzQ0NTU2Njc3ODg5OWFhYmJjY2RkZWVmZg==";  // x:the password

class PageAnswers : public testing::Test {
 protected:
  Answers made(Answers::Options options) {
    return {std::move(options), [this]() -> Result<Texts> {
              ++looks_;
              if (!fails_.ok()) return fails_;
              return Texts{"{\"look\":" + std::to_string(looks_) + "}", "collab_round 3\n"};
            }};
  }
  static Request get(const std::string& target) { return {"GET", target, "localhost:8080", {}}; }

  TimePoint now_ = TimePoint{} + std::chrono::seconds(100);
  int looks_ = 0;
  Status fails_;
  Answers open_ = made({});
  Answers closed_ = made({{std::string(kPassword)}, true});
};

TEST_F(PageAnswers, ThereAreThreeOfThem) {
  const Answer html = open_.answer(now_, get("/"));
  EXPECT_EQ(html.status, 200U);
  EXPECT_EQ(html.type, "text/html; charset=utf-8");
  EXPECT_THAT(html.body, AllOf(HasSubstr("<!doctype html>"), Not(HasSubstr("http:")), Not(HasSubstr("https:"))));
  EXPECT_EQ(open_.answer(now_, get("/status.json")).body, "{\"look\":1}");
  EXPECT_EQ(open_.answer(now_, get("/status.json?again=1")).type, "application/json");
  const Answer metrics = open_.answer(now_, get("/metrics"));
  EXPECT_EQ(metrics.body, "collab_round 3\n");
  EXPECT_EQ(metrics.type, "text/plain; version=0.0.4; charset=utf-8");
  for (const char* other : {"", "/x", "//", "/status.json/", "/../etc/passwd", "*", "http://elsewhere/"}) {
    EXPECT_EQ(open_.answer(now_, get(other)).status, 404U) << other;
  }
}

TEST_F(PageAnswers, AreRead) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "get", ""}) {
    const Answer answer = open_.answer(now_, {method, "/", "localhost", {}});
    EXPECT_EQ(answer.status, 405U) << method;
    EXPECT_THAT(answer.headers, Contains(Pair("Allow", "GET, HEAD")));
  }
  EXPECT_EQ(open_.answer(now_, {"HEAD", "/", "localhost", {}}).status, 200U);
}

TEST_F(PageAnswers, EachSaysWhatTheBrowserMayDo) {
  for (const char* target : {"/", "/status.json", "/metrics", "/nothing"}) {
    const Answer answer = open_.answer(now_, get(target));
    EXPECT_THAT(answer.headers, Contains(Pair("Content-Security-Policy",
                                              AllOf(HasSubstr("default-src 'none'"), HasSubstr("script-src 'sha256-"),
                                                    HasSubstr("style-src 'sha256-"), Not(HasSubstr("unsafe"))))));
    EXPECT_THAT(answer.headers, Contains(Pair("X-Content-Type-Options", "nosniff")));
    EXPECT_THAT(answer.headers, Contains(Pair("Cache-Control", "no-store")));
  }
}

TEST_F(PageAnswers, NothingIsShownWithoutThePassword) {
  Request request = get("/status.json");
  for (const char* given : {"", "Basic", "Basic ", "Basic ????", "Bearer 00112233445566778899aabbccddeeff",
                            "Basic eDp3cm9uZw==", "Basic bm9jb2xvbg=="}) {
    request.authorization = given;
    const Answer answer = closed_.answer(now_, request);
    EXPECT_EQ(answer.status, 401U) << given;
    EXPECT_THAT(answer.headers, Contains(Pair("WWW-Authenticate", HasSubstr("Basic realm"))));
    EXPECT_THAT(answer.body, Not(HasSubstr("look")));
  }
  EXPECT_EQ(looks_, 0) << "strangers cost the coordinator nothing";
  request.authorization = kRight;
  EXPECT_EQ(closed_.answer(now_, request).status, 200U);
}

TEST_F(PageAnswers, APasswordThatIsTakenOutOpensNothing) {
  Request request = get("/status.json");
  request.authorization = kRight;
  closed_.take({"another", std::string(kPassword)});
  EXPECT_EQ(closed_.answer(now_, request).status, 200U);
  closed_.take({"another"});
  EXPECT_EQ(closed_.answer(now_, request).status, 401U);
}

TEST_F(PageAnswers, AnswersOnlyThisMachineIfThereIsNoPassword) {
  Request request = get("/status.json");
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:1", "127.0.0.1", "[::1]:80", "[::1]"}) {
    request.host = host;
    EXPECT_EQ(open_.answer(now_, request).status, 200U) << host;
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "10.0.0.1"}) {
    request.host = host;
    EXPECT_EQ(open_.answer(now_, request).status, 403U) << host;
    EXPECT_EQ(made({{}, false}).answer(now_, request).status, 200U) << "--http-insecure: " << host;
  }
}

TEST_F(PageAnswers, TheCoordinatorIsAskedOnceASecond) {
  for (int i = 0; i < 50; ++i) static_cast<void>(open_.answer(now_, get(i % 2 == 0 ? "/status.json" : "/metrics")));
  EXPECT_EQ(looks_, 1);
  now_ += std::chrono::milliseconds(999);
  static_cast<void>(open_.answer(now_, get("/status.json")));
  EXPECT_EQ(looks_, 1);
  now_ += std::chrono::milliseconds(1);
  EXPECT_EQ(open_.answer(now_, get("/status.json")).body, "{\"look\":2}");
  fails_ = timed_out("it is busy [coordinator.busy]");
  now_ += std::chrono::seconds(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(open_.answer(now_, get("/status.json")).status, 503U);
  EXPECT_EQ(looks_, 3) << "also while it does not answer";
}

TEST_F(PageAnswers, AnswersABoundedNumberASecondToEachNetwork) {
  int answered = 0;
  for (int i = 0; i < 1000; ++i) answered += open_.answer(now_, get("/")).status == 200 ? 1 : 0;
  EXPECT_EQ(answered, static_cast<int>(Shares::kKnownASecond));
  EXPECT_EQ(open_.answer(now_, get("/")).status, 429U);
  now_ += std::chrono::seconds(1);
  EXPECT_EQ(open_.answer(now_, get("/")).status, 200U);
}

TEST_F(PageAnswers, GuessingPasswordsLocksNobodyElseOut) {
  Request wrong = get("/"), right = get("/");
  wrong.authorization = "Basic eDp3cm9uZw==";
  right.authorization = kRight;
  wrong.network = right.network = "192.0.2.1";
  int told = 0;
  for (int i = 0; i < 1000; ++i) told += closed_.answer(now_, wrong).status == 401 ? 1 : 0;
  EXPECT_EQ(told, static_cast<int>(Shares::kStrangersASecond));
  EXPECT_EQ(closed_.answer(now_, right).status, 200U) << "not even behind the same proxy";
  Request other = wrong;
  other.network = "192.0.2.2";
  EXPECT_EQ(closed_.answer(now_, other).status, 401U) << "and is asked for it";
}

TEST_F(PageAnswers, RemembersTheNetworksThatAskedLast) {
  Shares shares;
  const auto network = [](std::size_t number) { return "net " + std::to_string(number); };
  const auto spend = [&](std::size_t number) {
    int let = 0;
    while (shares.allow(now_, network(number), false)) ++let;
    return let;
  };
  EXPECT_EQ(spend(0), static_cast<int>(Shares::kStrangersASecond));
  EXPECT_EQ(spend(0), 0);
  now_ += std::chrono::microseconds(1);
  for (std::size_t i = 1; i < Shares::kMaxNetworks; ++i) EXPECT_TRUE(shares.allow(now_, network(i), false));
  EXPECT_EQ(spend(0), 0) << "there is room for all";
  EXPECT_TRUE(shares.allow(now_, network(0), true));
  now_ += std::chrono::microseconds(1);
  for (std::size_t i = 1; i <= Shares::kMaxNetworks; ++i) EXPECT_TRUE(shares.allow(now_, network(i), false));
  EXPECT_EQ(spend(0), static_cast<int>(Shares::kStrangersASecond)) << "and no more";
}

}  // namespace
}  // namespace collab::page
