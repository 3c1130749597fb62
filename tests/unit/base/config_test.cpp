#include "collab/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "core/base/knobs.h"
#include "core/base/strangers.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Config config_of(const Pairs& environment, const Pairs& options = {}) {
  auto loaded = load_config(environment, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? loaded->config : Config{};
}
std::string error_of(const Pairs& environment, const Pairs& options = {}) {
  const auto loaded = load_config(environment, options);
  EXPECT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  return loaded.status().message();
}
std::map<std::string, std::string> values_of(const LoadedConfig& loaded) {
  std::map<std::string, std::string> values;
  for (const KnobValue& value : loaded.values) values[std::string(value.knob->name)] = value.value;
  return values;
}

// ---- the table and the struct agree ----------------------------------------------------------------

TEST(KnobTable, EveryDefaultIsWhatTheStructSays) {
  const Config fresh;
  for (const KnobRow& row : knob_rows()) {
    if (row.knob.name == "outer_lr") continue;  // depends on outer; below
    Config parsed;
    ASSERT_TRUE(row.parse(row.knob.default_, parsed)) << row.knob.name;
    EXPECT_EQ(row.format(parsed), row.format(fresh)) << row.knob.name;
    EXPECT_EQ(row.format(fresh), row.knob.default_) << row.knob.name;
  }
}

TEST(KnobTable, NamesAreUniqueAndRowsAreComplete) {
  std::map<std::string_view, int> seen;
  for (const Knob& knob : knob_table()) {
    EXPECT_EQ(++seen[knob.name], 1) << knob.name;
    EXPECT_TRUE(std::ranges::all_of(knob.name, [](char c) { return std::islower(c) != 0 || c == '_'; })) << knob.name;
    EXPECT_FALSE(knob.range.empty()) << knob.name;
    EXPECT_TRUE(knob.sentence.ends_with('.')) << knob.name;
  }
  EXPECT_EQ(seen.size(), knob_rows().size());
}

// "4..65536, a multiple of 4": the numbers a range names are taken, their neighbours outside are not.
TEST(KnobTable, RangesSayWhatTheParsersTake) {
  int checked = 0;
  for (const KnobRow& row : knob_rows()) {
    if (row.start != "a whole number") continue;
    const std::string range(row.knob.range);
    const std::size_t dots = range.find("..");
    ASSERT_NE(dots, std::string::npos) << row.knob.name;
    const long low = std::stol(range);
    const long high = std::stol(range.substr(dots + 2));
    Config config;
    EXPECT_TRUE(row.parse(std::to_string(low), config)) << row.knob.name;
    EXPECT_TRUE(row.parse(std::to_string(high), config)) << row.knob.name;
    EXPECT_FALSE(row.parse(std::to_string(low - 1), config)) << row.knob.name;
    EXPECT_FALSE(row.parse(std::to_string(high + 1), config)) << row.knob.name;
    ++checked;
  }
  EXPECT_EQ(checked, 5);
}

TEST(KnobTable, TimeRangesSayWhatTheParsersTake) {
  const std::map<std::string, std::pair<long, long>> bounds{{"100ms..24h", {100, 86'400'000}},
                                                            {"20ms..24h", {20, 86'400'000}},
                                                            {"10ms..60s", {10, 60'000}},
                                                            {"0s..24h", {0, 86'400'000}}};
  int checked = 0;
  for (const KnobRow& row : knob_rows()) {
    if (!row.start.starts_with("a time")) continue;
    const auto [low, high] = bounds.at(std::string(row.knob.range));
    Config config;
    EXPECT_TRUE(row.parse(std::to_string(low) + "ms", config)) << row.knob.name;
    EXPECT_TRUE(row.parse(std::to_string(high) + "ms", config)) << row.knob.name;
    EXPECT_FALSE(row.parse(std::to_string(low - 1) + "ms", config)) << row.knob.name;
    EXPECT_FALSE(row.parse(std::to_string(high + 1) + "ms", config)) << row.knob.name;
    ++checked;
  }
  EXPECT_EQ(checked, 7);
}

TEST(KnobTable, EveryWordOfAChoiceIsTaken) {
  for (const KnobRow& row : knob_rows()) {
    if (row.start != "one word") continue;
    std::string range(row.knob.range);
    range += "|";
    for (std::size_t at = 0; at < range.size();) {
      const std::size_t bar = range.find('|', at);
      const std::string word = range.substr(at, bar - at);
      Config config;
      EXPECT_TRUE(row.parse(word, config)) << row.knob.name << " " << word;
      EXPECT_EQ(row.format(config), word);
      EXPECT_FALSE(row.parse(word + "x", config));
      at = bar + 1;
    }
  }
}

TEST(KnobTable, AsMarkdownHasALineForEachKnob) {
  const std::string table = knob_table_markdown();
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(table, '\n')), knob_table().size() + 2);
  EXPECT_THAT(table, HasSubstr("| `COLLAB_CODEC` | fp16 | "
                               "fp32\\|bf16\\|fp16\\|int8\\|int4\\|int4-e3m0\\|int2\\|topk64\\|topk128, or UP/DOWN |"));
  EXPECT_THAT(table, HasSubstr("All sites must agree."));
}

// ---- values ----------------------------------------------------------------------------------------

TEST(LoadConfig, WithoutAnythingGivesTheDefaults) {
  const auto loaded = load_config({});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->values.size(), knob_table().size());
  for (const KnobValue& value : loaded->values) EXPECT_EQ(value.source, "default");
  EXPECT_EQ(loaded->config.sync_every.steps, 100U);
  EXPECT_EQ(loaded->config.codec, CodecId::kFp16);
  EXPECT_EQ(loaded->config.outer_lr, 1.0);
}

TEST(LoadConfig, OptionsWinOverTheEnvironmentAndBothAreTold) {
  const auto loaded = load_config({{"COLLAB_CODEC", "int8"}, {"COLLAB_RUN", "night"}}, {{"codec", "fp32"}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.codec, CodecId::kFp32);
  std::map<std::string_view, std::string> sources;
  for (const KnobValue& value : loaded->values) sources[value.knob->name] = value.source;
  EXPECT_EQ(sources["codec"], "options");
  EXPECT_EQ(sources["run"], "environment");
  EXPECT_EQ(sources["outer"], "default");
}

TEST(LoadConfig, ACodecForEachWay) {
  EXPECT_EQ(config_of({{"COLLAB_CODEC", "topk64/int4-e3m0"}}).codec, Codecs(CodecId::kTopK64, CodecId::kInt4E3m0));
  for (const std::string_view name :
       {"fp32", "bf16", "fp16", "int8", "int4", "int4-e3m0", "int2", "topk64", "topk128"}) {
    const auto loaded = load_config({{"COLLAB_CODEC", std::string(name) + "/" + std::string(name)}});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(loaded->config.codec, config_of({{"COLLAB_CODEC", std::string(name)}}).codec);
    const auto shared = shared_settings(*loaded);
    EXPECT_NE(std::ranges::find(shared, std::pair(std::string("codec"), std::string(name))), shared.end())
        << "one spelling";
  }
  const auto loaded = load_config({{"COLLAB_CODEC", "int4/int8"}, {"COLLAB_ERROR_FEEDBACK", "no"}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->config.error_feedback);
  const auto shared = shared_settings(*loaded);
  EXPECT_NE(std::ranges::find(shared, std::pair(std::string("codec"), std::string("int4/int8"))), shared.end());
  EXPECT_NE(std::ranges::find(shared, std::pair(std::string("error_feedback"), std::string("0"))), shared.end());
  for (const std::string bad : {"int4/", "/int8", "int4/int8/int8", "int4 / int8", "int4,int8", "/", ""}) {
    EXPECT_THAT(error_of({{"COLLAB_CODEC", bad}}), HasSubstr("one for each way such as int4/int8")) << bad;
  }
}

TEST(LoadConfig, OtherVariablesAreNotOurs) {
  EXPECT_EQ(config_of({{"PATH", "/bin"}, {"COLLABORATE", "x"}}).run, "default");
}

TEST(LoadConfig, SyncEveryIsStepsOrTime) {
  EXPECT_EQ(config_of({{"COLLAB_SYNC_EVERY", "250"}}).sync_every.steps, 250U);
  const SyncEvery by_time = config_of({{"COLLAB_SYNC_EVERY", "30s"}}).sync_every;
  EXPECT_EQ(by_time.steps, 0U);
  EXPECT_EQ(by_time.time, milliseconds(30'000));
  for (const std::string bad : {"0", "30 s", "-5", "1.5", "s", "", "5ms", "25h", "100steps", "1000000001", "30d"}) {
    EXPECT_THAT(error_of({{"COLLAB_SYNC_EVERY", bad}}), HasSubstr("COLLAB_SYNC_EVERY: expected a number of steps"))
        << bad;
  }
}

TEST(LoadConfig, TimesTakeTheirUnits) {
  const std::map<std::string, int> cases{{"45", 45'000},  {"45s", 45'000},   {"500ms", 500},
                                         {"2m", 120'000}, {"1h", 3'600'000}, {"1.5s", 1500}};
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(config_of({{"COLLAB_JOIN_TIMEOUT", text}}).join_timeout, milliseconds(expected)) << text;
  }
  for (const std::string bad : {"", "s", "5 s", "5sec", "1d", "-1s", "inf", "nan", "1e400s", "0x10", "25h"}) {
    EXPECT_THAT(error_of({{"COLLAB_JOIN_TIMEOUT", bad}}), HasSubstr("30s, 500ms, 2m or 1h")) << bad;
  }
}

TEST(LoadConfig, OuterLearningRateDependsOnTheOptimizer) {
  EXPECT_EQ(config_of({{"COLLAB_OUTER", "nesterov"}}).outer_lr, 0.7);
  EXPECT_EQ(config_of({{"COLLAB_OUTER", "average"}}).outer_lr, 1.0);
  EXPECT_EQ(config_of({{"COLLAB_OUTER", "nesterov"}, {"COLLAB_OUTER_LR", "0.4"}}).outer_lr, 0.4);
  for (const std::string bad : {"0", "-1", "10.5", "nan", "inf", "fast", ""}) {
    EXPECT_THAT(error_of({{"COLLAB_OUTER_LR", bad}}), HasSubstr("0.0001..10")) << bad;
  }
}

TEST(LoadConfig, CoordinatorIsAListOfAddresses) {
  EXPECT_EQ(config_of({{"COLLAB_COORDINATOR", "paris:29500,[::1]:29501"}}).coordinator,
            (std::vector<std::string>{"paris:29500", "[::1]:29501"}));
  EXPECT_TRUE(config_of({{"COLLAB_COORDINATOR", ""}}).coordinator.empty());
  for (const std::string bad : {"paris", "paris:0", "paris:29500,", ",paris:1", "a:1,,b:2", "::1:80", "paris:99999"}) {
    EXPECT_THAT(error_of({{"COLLAB_COORDINATOR", bad}}), HasSubstr("HOST:PORT")) << bad;
  }
}

TEST(LoadConfig, SwitchesTakeTheUsualWords) {
  for (const std::string on : {"1", "true", "yes"}) EXPECT_TRUE(config_of({{"COLLAB_RESEED", on}}).reseed);
  for (const std::string off : {"0", "false", "no"}) EXPECT_FALSE(config_of({{"COLLAB_RESEED", off}}).reseed);
  EXPECT_THAT(error_of({{"COLLAB_RESEED", "on"}}), HasSubstr("expected 1, true, yes, 0, false or no"));
}

TEST(LoadConfig, NamesAreFitForFilesAndPeople) {
  EXPECT_EQ(config_of({{"COLLAB_SITE", "paris-2.gpu_7"}}).site, "paris-2.gpu_7");
  for (const std::string bad : {"a/b", "..", "a b", "Z\xC3\xBCrich", "a\nb"}) {
    EXPECT_THAT(error_of({{"COLLAB_SITE", bad}}), HasSubstr("COLLAB_SITE: expected a name")) << bad;
  }
  EXPECT_THAT(error_of({{"COLLAB_RUN", ""}}), HasSubstr("COLLAB_RUN"));
  EXPECT_THAT(error_of({{"COLLAB_RUN", std::string(65, 'a')}}), HasSubstr("at most 64"));
}

TEST(LoadConfig, HostsAndPlaces) {
  EXPECT_EQ(config_of({{"COLLAB_ADVERTISE", "fe80::1"}}).advertise, "fe80::1");
  EXPECT_EQ(config_of({{"COLLAB_ADVERTISE", "None"}}).advertise, "none") << "not a host of that name";
  EXPECT_EQ(config_of({{"COLLAB_ADVERTISE", "Nonesuch"}}).advertise, "Nonesuch");
  EXPECT_THAT(error_of({{"COLLAB_ADVERTISE", "paris:29500"}}), HasSubstr("without a port"));
  EXPECT_EQ(config_of({{"COLLAB_LISTEN", "[::]:0"}}).listen, "[::]:0");
  EXPECT_THAT(error_of({{"COLLAB_LISTEN", "29500"}}), HasSubstr("COLLAB_LISTEN: expected HOST:PORT"));
  EXPECT_THAT(error_of({{"COLLAB_STATE_DIR", std::string("a\0b", 3)}}), HasSubstr("a path"));
  EXPECT_EQ(config_of({{"COLLAB_SITE_INDEX", "3"}}).site_index, 3U);
  EXPECT_FALSE(config_of({}).site_index.has_value());
}

TEST(LoadConfig, ChunksKeepBlocksWhole) {
  EXPECT_EQ(config_of({{"COLLAB_CHUNK_KIB", "256"}}).chunk_kib, 256U);
  EXPECT_THAT(error_of({{"COLLAB_CHUNK_KIB", "6"}}), HasSubstr("a multiple of 4"));
}

// ---- errors ----------------------------------------------------------------------------------------

TEST(LoadConfig, AnUnknownKnobNamesTheNearest) {
  EXPECT_THAT(error_of({{"COLLAB_SYNC_EVRY", "5"}}),
              HasSubstr("COLLAB_SYNC_EVRY is not a knob of collab; the nearest one is COLLAB_SYNC_EVERY"));
  EXPECT_THAT(error_of({{"COLLAB_codec", "fp32"}}), HasSubstr("the nearest one is COLLAB_CODEC"));
  EXPECT_THAT(error_of({}, {{"Codec", "fp32"}}), HasSubstr("the nearest one is \"codec\""));
  EXPECT_THAT(error_of({}, {{"heartbeat_ms", "5"}}), HasSubstr("\"heartbeat\""));
}

// As Kubernetes writes them for a Service `collab` and one `collab-foo`, each with two ports, of which one has a name.
const Pairs kOfKubernetes{{"COLLAB_SERVICE_HOST", "10.0.0.11"},
                          {"COLLAB_SERVICE_PORT", "29500"},
                          {"COLLAB_SERVICE_PORT_HTTP", "80"},
                          {"COLLAB_PORT", "tcp://10.0.0.11:29500"},
                          {"COLLAB_PORT_29500_TCP", "tcp://10.0.0.11:29500"},
                          {"COLLAB_PORT_29500_TCP_PROTO", "tcp"},
                          {"COLLAB_PORT_29500_TCP_PORT", "29500"},
                          {"COLLAB_PORT_29500_TCP_ADDR", "10.0.0.11"},
                          {"COLLAB_PORT_53_UDP_ADDR", "10.0.0.11"},
                          {"COLLAB_FOO_SERVICE_HOST", "10.0.0.12"},
                          {"COLLAB_FOO_SERVICE_PORT", "29500"},
                          {"COLLAB_FOO_SERVICE_PORT_TOKEN", "29500"},
                          {"COLLAB_FOO_PORT", "sctp://10.0.0.12:29500"},
                          {"COLLAB_FOO_PORT_29500_TCP_PROTO", "tcp"},
                          // Of a Service `collab-site`.
                          {"COLLAB_SITE_PORT", "udp://10.0.0.13:53"}};

TEST(LoadConfig, WhatKubernetesPutsIntoAPodIsPassedOver) {
  const auto loaded = load_config(kOfKubernetes);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(foreign_text(kOfKubernetes), "");
  for (const KnobValue& value : loaded->values) EXPECT_EQ(value.source, "default") << value.knob->name;
}

// Else a Service of that name would set the knob, in every pod beside it.
TEST(KnobTable, NoKnobHasANameThatKubernetesMakes) {
  const auto made = [](std::string_view knob) {
    std::string variable = "COLLAB_";
    for (const char c : knob) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return stranger_of(variable, "tcp://10.0.0.11:29500", {}).kind == StrangerKind::kKubernetes;
  };
  for (const Knob& knob : knob_table()) EXPECT_FALSE(made(knob.name)) << knob.name;
  for (const std::string_view bad : {"port", "coordinator_port", "service_host", "port_29500_tcp", "service_port_x"}) {
    EXPECT_TRUE(made(bad)) << bad;
  }
}

TEST(LoadConfig, AVariableNearAKnobIsRefusedAndAnotherIsNot) {
  for (const auto& [variable, meant] : Pairs{{"COLLAB_SYNC_EVRY", "COLLAB_SYNC_EVERY"},
                                             {"COLLAB_CODDEC", "COLLAB_CODEC"},
                                             {"COLLAB_CDOEC", "COLLAB_CODEC"},
                                             {"COLLAB_STATEDIR", "COLLAB_STATE_DIR"},
                                             {"COLLAB_MAXMBITUP", "COLLAB_MAX_MBIT_UP"},
                                             {"COLLAB_Sync_Every", "COLLAB_SYNC_EVERY"},
                                             {"COLLAB_JOIN_OPTIMISER", "COLLAB_JOIN_OPTIMIZER"},
                                             {"COLLAB_LOGS", "COLLAB_LOG"}}) {
    EXPECT_THAT(error_of({{variable, "5"}}),
                HasSubstr(variable + " is not a knob of collab; the nearest one is " + meant + " ("));
  }
  const Pairs foreign{{"COLLAB_TEAM", "blue"},
                      {"COLLAB_MY_EXPERIMENT", "7"},
                      {"COLLAB_PORT", "29500"},
                      {"COLLAB_LOG_DIR", "/tmp"},
                      {"COLLAB_", ""},
                      {"COLLAB_CODEC", "int8"},
                      {"HOME", "/"}};
  EXPECT_EQ(config_of(foreign).codec, CodecId::kInt8);
  EXPECT_EQ(
      foreign_text(foreign),
      "COLLAB_, COLLAB_LOG_DIR, COLLAB_MY_EXPERIMENT, COLLAB_PORT, COLLAB_TEAM are in the environment and are not "
      "knobs of collab, nor near one: not used (`collab config` lists all)");
  EXPECT_THAT(foreign_text({{"COLLAB_TEAM", "blue"}}), HasSubstr("COLLAB_TEAM is in the environment"));
}

TEST(LoadConfig, WhatCollabSetsForItsOwnProcessesIsPassedOver) {
  const Pairs own{{"COLLAB_START", "lone"},
                  {"COLLAB_SITE_STORE", "127.0.0.1:1"},
                  {"COLLAB_WORLD", "x"},
                  {"COLLAB_ENDPOINT", "127.0.0.1:1"},
                  {"COLLAB_UCX_LIBRARY", "/x/libucp.so.0"}};
  EXPECT_EQ(config_of(own).run, "default");
  EXPECT_EQ(foreign_text(own), "");
}

TEST(LoadConfig, AWrongValueSaysWhatIsAccepted) {
  EXPECT_EQ(error_of({{"COLLAB_CODEC", "int7"}}),
            "COLLAB_CODEC: expected a codec, or one for each way such as int4/int8 "
            "(fp32|bf16|fp16|int8|int4|int4-e3m0|int2|topk64|topk128, or UP/DOWN), got \"int7\"");
  EXPECT_THAT(error_of({}, {{"connections", "65"}}),
              HasSubstr("the option \"connections\": expected a whole number (1..64 or auto), got \"65\""));
  EXPECT_THAT(error_of({}, {{"connections", "0"}}), HasSubstr("1..64 or auto")) << "0 is how auto is kept, not said";
  EXPECT_THAT(error_of({{"COLLAB_CONGESTION", "BBR; no"}}), HasSubstr("tcp_available_congestion_control"));
  EXPECT_THAT(error_of({{"COLLAB_CONNECTIONS", "4294967297"}}), HasSubstr("1..64")) << "not cut to 32 bits";
}

TEST(LoadConfig, ASecretIsNeverShown) {
  const std::string token = "clb_0123456789abcdefghijklmnopqrstuvwxyz";
  const auto loaded = load_config({{"COLLAB_TOKEN", token}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.token, token);
  for (const KnobValue& value : loaded->values) EXPECT_THAT(value.value, Not(HasSubstr("clb_")));
  const std::string message = error_of({{"COLLAB_TOKEN", "clb_short"}});
  EXPECT_THAT(message, AllOf(HasSubstr("COLLAB_TOKEN"), HasSubstr("`collab token`"), HasSubstr("9 characters")));
  EXPECT_THAT(message, Not(HasSubstr("clb_")));
}

TEST(LoadConfig, AGraceBelowTwoHeartbeatsIsRefused) {
  EXPECT_THAT(error_of({{"COLLAB_HEARTBEAT", "40s"}}),
              HasSubstr("COLLAB_LINK_GRACE: expected at least twice COLLAB_HEARTBEAT, which is 40s; got 60s"));
  EXPECT_EQ(config_of({{"COLLAB_HEARTBEAT", "50ms"}, {"COLLAB_LINK_GRACE", "100ms"}}).link_grace, milliseconds(100));
}

// ---- what sites compare ------------------------------------------------------------------------------

TEST(SharedSettings, HaveOneSpellingForOneValue) {
  const auto a = load_config({{"COLLAB_OUTER_LR", "0.70"},
                              {"COLLAB_SYNC_EVERY", "2m"},
                              {"COLLAB_BUFFERS", "yes"},
                              {"COLLAB_OUTER_MOMENTUM", "-0"}});
  const auto b = load_config({{"COLLAB_OUTER_LR", ".7"},
                              {"COLLAB_SYNC_EVERY", "120s"},
                              {"COLLAB_BUFFERS", "1"},
                              {"COLLAB_OUTER_MOMENTUM", "0"}});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(shared_settings(*a), shared_settings(*b));
  EXPECT_EQ(values_of(*a)["sync_every"], "120s");
}

TEST(SharedSettings, AreTheKnobsThatMustAgree) {
  const auto loaded = load_config({});
  ASSERT_TRUE(loaded.ok());
  std::vector<std::string> names;
  for (const auto& [name, _] : shared_settings(*loaded)) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("sync_every", "codec", "error_feedback", "outer", "outer_lr",
                                            "outer_momentum", "weight", "buffers", "chunk_kib"));
}

TEST(LoadConfig, WhatIsPrintedCanBeReadBack) {
  const auto first = load_config({{"COLLAB_COORDINATOR", "a:1,b:2"},
                                  {"COLLAB_SYNC_EVERY", "1500ms"},
                                  {"COLLAB_OUTER_LR", "0.3"},
                                  {"COLLAB_SITE", "x"},
                                  {"COLLAB_SITE_INDEX", "9"}});
  ASSERT_TRUE(first.ok());
  Pairs again;
  for (const auto& [name, value] : values_of(*first)) again.emplace_back(name, value);
  const auto second = load_config({}, again);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(values_of(*first), values_of(*second));
}

}  // namespace
}  // namespace collab
