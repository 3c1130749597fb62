#include "tools/lab/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/unit/lab/packets.h"
#include "tools/lab/options.h"
#include "tools/lab/report.h"
#include "tools/lab/supervisor.h"

namespace collab::lab {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<HostSpec> kHosts{{.name = "paris"}, {.name = "tokyo"}};

TEST(HostSpec, RatesNatAndQueue) {
  const Result<HostSpec> paris = parse_host("paris:100/20.5,nat,queue=30", milliseconds(100));
  ASSERT_TRUE(paris.ok()) << paris.status().message();
  EXPECT_EQ(paris.value().name, "paris");
  EXPECT_EQ(paris.value().down, Rate{100});
  EXPECT_EQ(paris.value().up, Rate{20.5});
  EXPECT_TRUE(paris.value().nat);
  EXPECT_EQ(paris.value().queue, milliseconds(30));
  const Result<HostSpec> both = parse_host("site-1:5", milliseconds(70));
  EXPECT_EQ(both.value().up, Rate{5});
  EXPECT_EQ(both.value().down, Rate{5});
  EXPECT_EQ(both.value().queue, milliseconds(70));
  EXPECT_TRUE(parse_host("free", Time::zero()).value().up.unlimited());
}

TEST(HostSpec, ErrorsSayWhatWasExpectedAndWhatCame) {
  const auto error = [](std::string_view text) { return parse_host(text, Time::zero()).status().message(); };
  EXPECT_THAT(error(""), HasSubstr("NAME[:DOWN/UP]"));
  EXPECT_THAT(error("9lives:5"), HasSubstr("'9lives:5'"));
  EXPECT_THAT(error("a_b"), HasSubstr("letters"));
  EXPECT_THAT(error("paris:fast"), HasSubstr("rate down in Mbit/s from 0.001 to 100000, got 'fast' in site"));
  EXPECT_THAT(error("paris:5/"), HasSubstr("rate up"));
  EXPECT_THAT(error("paris:5/1e3"), HasSubstr("'1e3'"));
  EXPECT_THAT(error("paris:0/1"), HasSubstr("got '0'"));
  EXPECT_THAT(error("paris:-5"), HasSubstr("got '-5'"));
  EXPECT_THAT(error("paris:inf"), HasSubstr("got 'inf'"));
  EXPECT_THAT(error("paris:5,natt"), HasSubstr("expected 'nat' or 'queue=MS', got 'natt'"));
  EXPECT_THAT(error("paris:5,queue=long"), HasSubstr("queue in milliseconds"));
}

TEST(Script, StepsInOrderOfTime) {
  const Result<std::vector<ScriptStep>> steps = parse_script(
      "# faults\n"
      "20 heal paris   # again\r\n"
      "\n"
      "12.5\tcut  paris\n"
      "30 rate tokyo 5/2\n"
      "40 link paris tokyo rtt=300 loss=2\n"
      "50 path tokyo paris delay=90 jitter=5 reorder=1 duplicate=0.5\n"
      "60 heal",
      "f", kHosts);
  ASSERT_TRUE(steps.ok()) << steps.status().message();
  ASSERT_EQ(steps.value().size(), 6U);
  EXPECT_EQ(steps.value()[0].at, milliseconds(12500));
  EXPECT_EQ(steps.value()[0].text, "cut paris");
  EXPECT_TRUE(std::get<Cut>(steps.value()[0].change).cut);
  EXPECT_FALSE(std::get<Cut>(steps.value()[1].change).cut);
  const auto& rate = std::get<SetRate>(steps.value()[2].change);
  EXPECT_EQ(rate.host, 1U);
  EXPECT_EQ(rate.up, Rate{2});
  const auto& link = std::get<SetPath>(steps.value()[3].change);
  EXPECT_TRUE(link.both_ways);
  PathSpec path{.delay = {}, .jitter = milliseconds(7)};
  link.change.apply_to(path);
  EXPECT_EQ(path.delay, milliseconds(150));
  EXPECT_EQ(path.jitter, milliseconds(7));
  EXPECT_DOUBLE_EQ(path.loss, 0.02);
  const auto& one_way = std::get<SetPath>(steps.value()[4].change);
  EXPECT_FALSE(one_way.both_ways);
  EXPECT_EQ(one_way.from, 1U);
  EXPECT_FALSE(std::get<Cut>(steps.value()[5].change).host);
}

TEST(Script, ErrorsNameTheLine) {
  const auto error = [](std::string_view text) { return parse_script(text, "f.txt", kHosts).status().message(); };
  EXPECT_THAT(error("1 cut paris\n2 cut pariss"), HasSubstr("f.txt:2: there is no host 'pariss'"));
  EXPECT_THAT(error("2 cut pariss"), HasSubstr("did you mean 'paris'?"));
  EXPECT_THAT(error("\n\nsoon cut paris"), HasSubstr("f.txt:3: expected a time in seconds"));
  EXPECT_THAT(error("1 break paris"), HasSubstr("expected cut, heal, rate, link or path, got 'break'"));
  EXPECT_THAT(error("1"), HasSubstr("expected cut, heal, rate, link or path, got ''"));
  EXPECT_THAT(error("1 cut"), HasSubstr("expected 'cut HOST' or 'cut HOST HOST'"));
  EXPECT_THAT(error("1 cut paris paris"), HasSubstr("two different hosts"));
  EXPECT_THAT(error("1 rate paris"), HasSubstr("expected 'rate HOST DOWN/UP'"));
  EXPECT_THAT(error("1 rate paris x"), HasSubstr("rate down in Mbit/s"));
  EXPECT_THAT(error("1 link paris tokyo"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(error("1 link paris tokyo lag=5"), HasSubstr("got 'lag'"));
  EXPECT_THAT(error("1 link paris tokyo loss"), HasSubstr("got 'loss'"));
  EXPECT_THAT(error("1 link paris tokyo loss=101"), HasSubstr("loss in percent from 0 to 100, got '101'"));
  EXPECT_THAT(error("1 path paris tokyo rtt=5"), HasSubstr("expected delay=MS"));
}

Result<Options> options(std::initializer_list<std::string_view> words) { return parse_options(words); }

TEST(OptionsTest, ReadsTheWholeCommandLine) {
  const Result<Options> read = options({"--sites",
                                        "paris:100/20,nat",
                                        "tokyo:100/100,queue=5",
                                        "--rtt",
                                        "180",
                                        "--loss=0.5",
                                        "--queue",
                                        "40",
                                        "--link",
                                        "paris tokyo jitter=3",
                                        "--script",
                                        "faults.txt",
                                        "--env",
                                        "A=b=c",
                                        "--network",
                                        "203.0.113.0",
                                        "--seed",
                                        "7",
                                        "--",
                                        "python",
                                        "x.py",
                                        "--rtt"});
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Options& o = read.value();
  ASSERT_EQ(o.network.hosts.size(), 2U);
  EXPECT_EQ(o.network.hosts[0].queue, milliseconds(40));
  EXPECT_EQ(o.network.hosts[1].queue, milliseconds(5));
  EXPECT_EQ(o.network.path.delay, milliseconds(90));
  EXPECT_DOUBLE_EQ(o.network.path.loss, 0.005);
  EXPECT_EQ(o.network.address_base, 203U << 24 | 113U << 8);
  EXPECT_EQ(o.network.seed, 7U);
  EXPECT_EQ(o.links.size(), 1U);
  EXPECT_EQ(o.script_file, "faults.txt");
  EXPECT_THAT(o.environment, ElementsAre(std::pair<std::string, std::string>("A", "b=c")));
  EXPECT_THAT(o.command, ElementsAre("python", "x.py", "--rtt"));
}

TEST(OptionsTest, ErrorsSayWhatWasExpected) {
  const auto error = [](std::initializer_list<std::string_view> words) { return options(words).status().message(); };
  EXPECT_THAT(error({}), HasSubstr("--sites NAME"));
  EXPECT_THAT(error({"--sites", "a"}), HasSubstr("command after --"));
  EXPECT_THAT(error({"--sites", "a", "a", "--", "x"}), HasSubstr("two sites 'a'"));
  EXPECT_THAT(error({"--site", "a"}), HasSubstr("did you mean --sites?"));
  EXPECT_THAT(error({"--rtt", "--", "x"}), HasSubstr("expected a value after --rtt"));
  EXPECT_THAT(error({"--quiet=yes"}), HasSubstr("takes no value"));
  EXPECT_THAT(error({"--mtu", "9"}), HasSubstr("--mtu from 576 to 65000"));
  EXPECT_THAT(error({"--seed", "1.5"}), HasSubstr("whole number"));
  EXPECT_THAT(error({"--network", "10.1.2.3"}), HasSubstr("end in .0"));
  EXPECT_THAT(error({"--network", "10.1.2"}), HasSubstr("A.B.C.0"));
  EXPECT_THAT(error({"--network", "10.1.2.0.0"}), HasSubstr("A.B.C.0"));
  EXPECT_THAT(error({"--env", "=x"}), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(error({"--sites", "a", "--link", "a b loss=1", "--", "x"}), HasSubstr("no host 'b'"));
}

TEST(OptionsTest, EachSiteSeesItself) {
  const Options o = options({"--sites", "paris", "tokyo", "--", "x"}).value();
  EXPECT_EQ(substitute("{site} {index}/{count} {address} {address:paris}", o.network, 1),
            "tokyo 1/2 10.99.0.2 10.99.0.1");
  EXPECT_EQ(substitute("${HOME} {\"site\": {}} {address:>12}", o.network, 0), "${HOME} {\"site\": {}} {address:>12}");
}

TEST(OptionsTest, TheAddressOfASiteThatDoesNotExistIsRefused) {
  const auto error = [](std::initializer_list<std::string_view> words) { return options(words).status().message(); };
  const std::string expected = "there is no host 'rome'; there are paris tokyo";
  EXPECT_THAT(error({"--sites", "paris", "tokyo", "--", "x", "{address:paris}:1,{address:rome}:2"}),
              AllOf(HasSubstr(expected), HasSubstr("in {address:rome}")));
  EXPECT_THAT(error({"--sites", "paris", "tokyo", "--env", "TO={address:rome}", "--", "x"}), HasSubstr(expected));
  EXPECT_EQ(error({"--sites", "paris", "--", "x", "{address} {address:paris} {address:} {address:>12} {address:rome"}),
            "");
}

TEST(Supervisor, SaysHowACommandEnded) {
  constexpr int kStatus3 = 3 << 8;
  constexpr int kDumpedCore = 0x80;
  EXPECT_EQ(describe_end(kStatus3), "ended with status 3");
  EXPECT_EQ(describe_end(137 << 8), "ended with status 137");
  EXPECT_EQ(describe_end(SIGKILL), "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(describe_end(SIGSEGV | kDumpedCore), "was killed by signal 11 (SIGSEGV)");
}

TEST(Report, CountsEveryPair) {
  NetworkSpec spec{.hosts = kHosts, .path = {}, .address_base = kBase};
  Network network(spec);
  network.send(Time::zero(), 0, udp(0, 1, 1, 2, 1000));
  std::vector<Delivery> out;
  network.advance(milliseconds(1), out);
  const std::string json = traffic_json(network, spec, milliseconds(1500));
  EXPECT_THAT(json, HasSubstr("\"seconds\": 1.500000"));
  EXPECT_THAT(json, HasSubstr("\"name\": \"paris\", \"address\": \"10.99.0.1\""));
  EXPECT_THAT(json, HasSubstr("\"from\": \"paris\", \"to\": \"tokyo\", \"sent_packets\": 1, \"sent_bytes\": 1000, "
                              "\"delivered_packets\": 1, \"delivered_bytes\": 1000"));
  EXPECT_THAT(traffic_table(network, spec, milliseconds(1500)), HasSubstr("lab: tokyo        0.000        0.001"));
}

}  // namespace
}  // namespace collab::lab
