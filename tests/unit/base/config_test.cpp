#include "collab/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "core/base/knobs.h"
#include "core/base/presets.h"
#include "core/base/unknown_variables.h"
#include "tests/unit/base/config_of.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

// ---- the table -------------------------------------------------------------------------------------

TEST(KnobTable, EveryDefaultIsReadAndWrittenAsItStands) {
  for (const KnobRow& row : knob_rows()) {
    Config parsed;
    ASSERT_TRUE(row.form.parse(row.knob.default_, parsed)) << row.knob.name;
    const std::string written = row.form.format(parsed);
    EXPECT_TRUE(row.form.parse(written, parsed)) << row.knob.name << " " << written;
    EXPECT_EQ(row.form.format(parsed), written) << row.knob.name;
    const bool depends = row.form.type == KnobType::kRealOrAuto;  // auto is a number by what else is set
    EXPECT_EQ(written == row.knob.default_, !depends) << row.knob.name << " " << written;
  }
}

TEST(KnobTable, AFreshConfigEqualsAConfigLoadedFromNothing) {
  const Config fresh;
  const auto loaded = load_config({});
  ASSERT_TRUE(loaded.ok());
  for (const KnobRow& row : knob_rows()) {
    EXPECT_EQ(row.form.format(fresh), row.form.format(loaded->config)) << row.knob.name;
    EXPECT_EQ(row.form.data(fresh), row.form.data(loaded->config)) << row.knob.name;
  }
}

TEST(KnobTable, NamesAreUniqueAndRowsAreComplete) {
  std::map<std::string_view, int> seen;
  for (const Knob& knob : knob_table()) {
    EXPECT_EQ(++seen[knob.name], 1) << knob.name;
    EXPECT_TRUE(std::ranges::all_of(knob.name, [](char c) {
      return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
    })) << knob.name;
    EXPECT_FALSE(knob.range.empty()) << knob.name;
    EXPECT_TRUE(knob.sentence.ends_with('.')) << knob.name;
  }
  EXPECT_EQ(seen.size(), knob_rows().size());
  for (const Knob& knob : knob_table()) {
    EXPECT_EQ(seen.count(knob.old_name), 0U) << knob.old_name << " is a knob's name today";
    EXPECT_FALSE(knob.secret && !knob.old_name.empty()) << "two values of it would be shown";
  }
}

struct Bounds {
  std::string low;
  std::string high;
  std::vector<std::string> outside;
};

// The ends of "4..65536, a multiple of 4", "100ms..24h", "1..64 or auto", and what lies beyond them.
Bounds bounds_of(const KnobRow& row) {
  const std::string range(row.knob.range);
  const std::size_t dots = range.find("..");
  if (dots == std::string::npos) return {};
  const std::size_t end = std::min(range.find_first_of(", ", dots), range.size());
  Bounds bounds{range.substr(0, dots), range.substr(dots + 2, end - dots - 2), {}};
  switch (row.form.type) {
    case KnobType::kWhole:
    case KnobType::kWholeOrAuto:
    case KnobType::kWholeOrNone:
      bounds.outside = {std::to_string(std::stol(bounds.low) - 1), std::to_string(std::stol(bounds.high) + 1)};
      break;
    case KnobType::kReal:
    case KnobType::kRealOrAuto:
      bounds.outside = {std::to_string(std::stod(bounds.low) - 1e-4), std::to_string(std::stod(bounds.high) + 1e-4)};
      break;
    case KnobType::kTime:
      bounds.outside = {bounds.low == "0s" ? "-1ms" : std::to_string(std::stol(bounds.low) - 1) + "ms",
                        bounds.high == "60s" ? "60001ms" : "24.001h"};
      break;
    default: return {};
  }
  return bounds;
}

TEST(KnobTable, RangesSayWhatTheParsersTake) {
  int checked = 0;
  for (const KnobRow& row : knob_rows()) {
    const Bounds bounds = bounds_of(row);
    if (bounds.outside.empty()) continue;
    Config config;
    EXPECT_TRUE(row.form.parse(bounds.low, config)) << row.knob.name << " " << bounds.low;
    EXPECT_TRUE(row.form.parse(bounds.high, config)) << row.knob.name << " " << bounds.high;
    for (const std::string& text : bounds.outside) {
      EXPECT_FALSE(row.form.parse(text, config)) << row.knob.name << " " << text;
    }
    ++checked;
  }
  const auto has_ends = [](const KnobRow& row) {
    return row.form.type != KnobType::kText && row.form.type != KnobType::kWord && row.form.type != KnobType::kSwitch &&
           row.form.type != KnobType::kAddresses &&
           row.form.type != KnobType::kStepsOrTime;  // whose ends are in SyncEvery.IsStepsOrTime
  };
  EXPECT_EQ(checked, std::ranges::count_if(knob_rows(), has_ends));
}

TEST(KnobTable, EveryWordOfAChoiceIsTaken) {
  for (const KnobRow& row : knob_rows()) {
    if (row.form.type != KnobType::kWord) continue;
    std::string range(row.knob.range);
    range += "|";
    for (std::size_t at = 0; at < range.size();) {
      const std::size_t bar = range.find('|', at);
      const std::string word = range.substr(at, bar - at);
      Config config;
      EXPECT_TRUE(row.form.parse(word, config)) << row.knob.name << " " << word;
      EXPECT_EQ(row.form.format(config), word);
      EXPECT_FALSE(row.form.parse(word + "x", config));
      at = bar + 1;
    }
  }
}

// Another language shows a value as it is printed.
TEST(KnobTable, DataAreOfTheTypeThatTheRowStates) {
  const Config config;
  for (const KnobRow& row : knob_rows()) {
    const KnobData data = row.form.data(config);
    switch (row.form.type) {
      case KnobType::kSwitch: EXPECT_TRUE(std::holds_alternative<bool>(data)) << row.knob.name; break;
      case KnobType::kWhole:
      case KnobType::kWholeOrAuto:
      case KnobType::kStepsOrTime: EXPECT_TRUE(std::holds_alternative<std::uint64_t>(data)) << row.knob.name; break;
      case KnobType::kWholeOrNone: EXPECT_TRUE(std::holds_alternative<std::monostate>(data)) << row.knob.name; break;
      case KnobType::kReal:
      case KnobType::kRealOrAuto:
      case KnobType::kTime: EXPECT_TRUE(std::holds_alternative<double>(data)) << row.knob.name; break;
      case KnobType::kWord:
      case KnobType::kText: EXPECT_TRUE(std::holds_alternative<std::string>(data)) << row.knob.name; break;
      case KnobType::kAddresses:
        EXPECT_TRUE(std::holds_alternative<std::vector<std::string>>(data)) << row.knob.name;
        break;
    }
  }
  EXPECT_EQ(row_of("sync_every")->form.data(config_of({{"COLLAB_SYNC_EVERY", "1500ms"}})), KnobData(1.5));
  EXPECT_EQ(row_of("site_index")->form.data(config_of({{"COLLAB_SITE_INDEX", "3"}})), KnobData(std::uint64_t{3}));
  EXPECT_EQ(row_of("token")->form.data(config_of({{"COLLAB_TOKEN", std::string(40, 'x')}})),
            KnobData(std::string("(set, not shown)")));
}

// ---- old names -------------------------------------------------------------------------------------

TEST(OldNames, AreAcceptedAndReportedOnceWithTheNewNames) {
  const Pairs old{{"COLLAB_LOG", "warning"},     {"COLLAB_EVENTS", "/e"},      {"COLLAB_EGRESS_GB", "1.5"},
                  {"COLLAB_CONGESTION", "reno"}, {"COLLAB_OUTER", "nesterov"}, {"COLLAB_SITE_COUNT", "3"}};
  const Config config = config_of(old);
  EXPECT_EQ(config.log_level, "warning");
  EXPECT_EQ(config.events_file, "/e");
  EXPECT_EQ(config.egress_budget_gb, 1.5);
  EXPECT_EQ(config.tcp_congestion, "reno");
  EXPECT_EQ(config.outer_optimizer, OuterId::kNesterov);
  EXPECT_EQ(config.outer_lr, 0);
  EXPECT_EQ(config.num_shards, 3U);
  EXPECT_EQ(config.min_sites, 3U);
  EXPECT_THAT(environment_warnings(old),
              ::testing::ElementsAre(
                  "COLLAB_LOG is now called COLLAB_LOG_LEVEL, COLLAB_EVENTS is now called COLLAB_EVENTS_FILE, "
                  "COLLAB_EGRESS_GB is now called COLLAB_EGRESS_BUDGET_GB, COLLAB_CONGESTION is now called "
                  "COLLAB_TCP_CONGESTION, COLLAB_OUTER is now called COLLAB_OUTER_OPTIMIZER, COLLAB_SITE_COUNT is now "
                  "called COLLAB_NUM_SHARDS and COLLAB_MIN_SITES: the old name still works, but not forever "
                  "[knob.old-name]"));
  EXPECT_EQ(config_of({}, {{"site_count", "5"}}).min_sites, 5U) << "an option, too";
  EXPECT_THAT(environment_warnings({{"COLLAB_LOG_LEVEL", "off"}, {"HOME", "/"}}), ::testing::IsEmpty());
}

TEST(OldNames, AreRefusedIfTheNewNameHasAnotherValue) {
  EXPECT_EQ(error_of({{"COLLAB_LOG", "info"}, {"COLLAB_LOG_LEVEL", "debug"}}),
            "COLLAB_LOG is \"info\" and COLLAB_LOG_LEVEL is \"debug\", but they are two names of one knob: leave the "
            "old one out (COLLAB_LOG_LEVEL is the new one) [knob.two-names]");
  EXPECT_THAT(error_of({{"COLLAB_NUM_SHARDS", "4"}, {"COLLAB_SITE_COUNT", "3"}}),
              AllOf(HasSubstr("COLLAB_NUM_SHARDS is \"4\""), HasSubstr("COLLAB_SITE_COUNT is \"3\"")));
  EXPECT_THAT(error_of({}, {{"outer", "average"}, {"outer_optimizer", "nesterov"}}),
              HasSubstr("the option \"outer\" is \"average\" and the option \"outer_optimizer\" is \"nesterov\""));
  EXPECT_EQ(config_of({{"COLLAB_EGRESS_GB", "1.50"}, {"COLLAB_EGRESS_BUDGET_GB", "1.5"}}).egress_budget_gb, 1.5);
  EXPECT_EQ(config_of({{"COLLAB_LOG", "info"}}, {{"log_level", "debug"}}).log_level, "debug")
      << "an option wins, whatever it is called";
}

// ---- presets ---------------------------------------------------------------------------------------

TEST(Presets, NameValuesThatTheirKnobsTake) {
  for (const Preset& preset : presets()) {
    const auto loaded = load_config({{"COLLAB_PRESET", std::string(preset.name)}});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    for (const auto& [name, text] : preset.values) {
      const KnobRow* row = row_of(name);
      ASSERT_NE(row, nullptr) << preset.name << " " << name;
      EXPECT_EQ(row->form.format(loaded->config), text) << preset.name << " " << name;
    }
    for (const KnobValue& value : loaded->values) {
      const bool named = std::ranges::any_of(preset.values, [&](const auto& v) { return v.first == value.knob->name; });
      const std::string source = named ? "preset " + std::string(preset.name) : "default";
      EXPECT_EQ(value.source, value.knob->name == "preset" ? "environment" : source) << value.knob->name;
    }
    EXPECT_NE(row_of("preset")->knob.range.find(preset.name), std::string_view::npos);
    EXPECT_TRUE(preset.sentence.ends_with('.'));
  }
}

TEST(Presets, AreOverriddenByAnyGivenValue) {
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "wan"}}).codec, CodecId::kInt4);
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "wan"}, {"COLLAB_CODEC", "int8"}}).codec, CodecId::kInt8);
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "wan"}, {"COLLAB_CODEC", "int8"}}, {{"codec", "fp32"}}).codec, CodecId::kFp32);
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "wan"}}, {{"preset", "lan"}}).codec, CodecId::kFp16);
  EXPECT_EQ(config_of({{"COLLAB_CODEC", "int8"}}, {{"preset", "wan"}}).codec, CodecId::kInt8)
      << "an option names the preset, which lies below the environment all the same";
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "pretrain"}}).outer_lr, 0) << "as the preset's outer optimizer has it";
  EXPECT_EQ(config_of({{"COLLAB_PRESET", ""}}).sync_every.steps, 100U);
}

TEST(Presets, AMisspeltOneIsRefusedWithTheNearest) {
  EXPECT_EQ(error_of({{"COLLAB_PRESET", "pretrian"}}),
            "COLLAB_PRESET: expected a preset's name (lan|wan|slow|pretrain), got \"pretrian\"; the nearest one is "
            "pretrain [knob.bad-value]");
  EXPECT_THAT(error_of({}, {{"preset", "Slow"}}), HasSubstr("the nearest one is slow"));
}

TEST(Presets, AreComparedByTheirValues) {
  const Config wan = config_of({{"COLLAB_PRESET", "wan"}});
  EXPECT_EQ(shared_settings(wan), shared_settings(config_of({{"COLLAB_SYNC_EVERY", "32"},
                                                             {"COLLAB_CODEC", "int4"},
                                                             {"COLLAB_KEEP_FP16", "small"},
                                                             {"COLLAB_OVERLAP", "1"}})));
  EXPECT_NE(shared_settings(wan), shared_settings(Config()));
}

TEST(LoadConfig, TheRendezvousWinsOverTheDefaultAlone) {
  const auto loaded = load_config({}, {}, {{"run", "job-7"}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.run, "job-7");
  EXPECT_THAT(loaded->values, ::testing::Contains(::testing::Field(&KnobValue::source, kFromRendezvous)));
  const auto given = load_config({{"COLLAB_RUN", "night"}}, {}, {{"run", "job-7"}});
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(given->config.run, "night");
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

TEST(LoadConfig, OptionsOverrideTheEnvironmentAndEachValueNamesItsSource) {
  const auto loaded = load_config({{"COLLAB_CODEC", "int8"}, {"COLLAB_RUN", "night"}}, {{"codec", "fp32"}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.codec, CodecId::kFp32);
  std::map<std::string_view, std::string> sources;
  for (const KnobValue& value : loaded->values) sources[value.knob->name] = value.source;
  EXPECT_EQ(sources["codec"], "options");
  EXPECT_EQ(sources["run"], "environment");
  EXPECT_EQ(sources["outer_optimizer"], "default");
}

TEST(LoadConfig, EachWayMayHaveItsOwnCodec) {
  EXPECT_EQ(config_of({{"COLLAB_CODEC", "topk64/int4-e3m0"}}).codec, Codecs(CodecId::kTopK64, CodecId::kInt4E3m0));
  for (const std::string_view name :
       {"fp32", "bf16", "fp16", "int8", "int4", "int4-e3m0", "int2", "topk64", "topk128"}) {
    const auto loaded = load_config({{"COLLAB_CODEC", std::string(name) + "/" + std::string(name)}});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(loaded->config.codec, config_of({{"COLLAB_CODEC", std::string(name)}}).codec);
    const auto shared = shared_settings(loaded->config);
    EXPECT_NE(std::ranges::find(shared, std::pair(std::string("codec"), std::string(name))), shared.end())
        << "one spelling";
  }
  const auto loaded = load_config({{"COLLAB_CODEC", "int4/int8"}, {"COLLAB_ERROR_FEEDBACK", "no"}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->config.error_feedback);
  const auto shared = shared_settings(loaded->config);
  EXPECT_NE(std::ranges::find(shared, std::pair(std::string("codec"), std::string("int4/int8"))), shared.end());
  EXPECT_NE(std::ranges::find(shared, std::pair(std::string("error_feedback"), std::string("0"))), shared.end());
  for (const std::string bad : {"int4/", "/int8", "int4/int8/int8", "int4 / int8", "int4,int8", "/", ""}) {
    EXPECT_THAT(error_of({{"COLLAB_CODEC", bad}}), HasSubstr("one for each way such as int4/int8")) << bad;
  }
}

TEST(LoadConfig, OtherVariablesAreNotOurs) {
  EXPECT_EQ(config_of({{"PATH", "/bin"}, {"COLLABORATE", "x"}}).run, "default");
}

TEST(LoadConfig, MergeIsARuleAndItsFactor) {
  EXPECT_FALSE(config_of({}).overlap);
  EXPECT_EQ(config_of({}).merge.rule, MergeRule::kRebase);
  EXPECT_EQ(config_of({}).merge.factor, 0.5);
  const Merge mix = config_of({{"COLLAB_OVERLAP", "1"}, {"COLLAB_MERGE", "mix:.25"}}).merge;
  EXPECT_EQ(mix.rule, MergeRule::kMix);
  EXPECT_EQ(mix.factor, 0.25);
  const auto loaded = load_config({{"COLLAB_MERGE", "mix:.250"}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(values_of(*loaded)["merge"], "mix:0.25");
  for (const std::string bad : {"", "rebase", "rebase:", "rebase:1.1", "mix:-0.1", "mix:nan", "add:0.5", "0.5"}) {
    EXPECT_THAT(error_of({{"COLLAB_MERGE", bad}}), HasSubstr("COLLAB_MERGE: expected rebase:K or mix:A")) << bad;
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
  EXPECT_EQ(config_of({{"COLLAB_OUTER_OPTIMIZER", "nesterov"}}).outer_lr, 0) << "by the sites";
  EXPECT_EQ(config_of({{"COLLAB_OUTER_OPTIMIZER", "rda"}}).outer_lr, 1) << "as average";
  EXPECT_EQ(config_of({{"COLLAB_OUTER_OPTIMIZER", "average"}}).outer_lr, 1.0);
  EXPECT_EQ(config_of({{"COLLAB_OUTER_OPTIMIZER", "nesterov"}, {"COLLAB_OUTER_LR", "auto"}}).outer_lr, 0);
  EXPECT_EQ(config_of({{"COLLAB_OUTER_LR", "auto"}}).outer_lr, 1.0);
  EXPECT_EQ(config_of({{"COLLAB_OUTER_OPTIMIZER", "nesterov"}, {"COLLAB_OUTER_LR", "0.4"}}).outer_lr, 0.4);
  for (const std::string bad : {"0", "-1", "10.5", "nan", "inf", "fast", ""}) {
    EXPECT_THAT(error_of({{"COLLAB_OUTER_LR", bad}}), HasSubstr("0.0001..10")) << bad;
  }
}

TEST(LoadConfig, TheResidualOfTopKDecays) {
  EXPECT_EQ(config_of({}).feedback_decay, 1);
  EXPECT_EQ(config_of({{"COLLAB_CODEC", "int4"}, {"COLLAB_FEEDBACK_DECAY", "auto"}}).feedback_decay, 1);
  for (const char* codec : {"topk128", "topk64/int8", "int4/topk64"}) {
    EXPECT_EQ(config_of({{"COLLAB_CODEC", codec}}).feedback_decay, 0.95) << codec;
    EXPECT_EQ(config_of({{"COLLAB_CODEC", codec}, {"COLLAB_FEEDBACK_DECAY", "1"}}).feedback_decay, 1) << codec;
  }
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "slow"}}).feedback_decay, 0.95);
  for (const char* bad : {"-0.1", "1.1", "nan", "slow", ""}) {
    EXPECT_THAT(error_of({{"COLLAB_FEEDBACK_DECAY", bad}}), HasSubstr("0..1 or auto")) << bad;
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

TEST(LoadConfig, ReadsHostsAddressesAndPaths) {
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

TEST(LoadConfig, VariablesOfKubernetesAreIgnored) {
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
    return classify_variable(variable, "tcp://10.0.0.11:29500", {}).kind == UnknownVariableKind::kKubernetes;
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
                                             {"COLLAB_LOGS", "COLLAB_LOG_LEVEL"},
                                             {"COLLAB_LOGLEVEL", "COLLAB_LOG_LEVEL"}}) {
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
  EXPECT_THAT(foreign_text(foreign),
              AllOf(StartsWith("COLLAB_, COLLAB_LOG_DIR, COLLAB_MY_EXPERIMENT, COLLAB_PORT, COLLAB_TEAM are "),
                    EndsWith("[knob.foreign]")));
  EXPECT_THAT(foreign_text({{"COLLAB_TEAM", "blue"}}), HasSubstr("COLLAB_TEAM is in the environment"));
}

TEST(LoadConfig, VariablesForItsOwnProcessesAreIgnored) {
  const Pairs own{{"COLLAB_START", "lone"},
                  {"COLLAB_SITE_STORE", "127.0.0.1:1"},
                  {"COLLAB_WORLD", "x"},
                  {"COLLAB_ENDPOINT", "127.0.0.1:1"},
                  {"COLLAB_RENDEZVOUS_RUN", "job-7"},
                  {"COLLAB_UCX_LIBRARY", "/x/libucp.so.0"}};
  EXPECT_EQ(config_of(own).run, "default");
  EXPECT_EQ(foreign_text(own), "");
}

TEST(LoadConfig, AWrongValueSaysWhatIsAccepted) {
  EXPECT_EQ(error_of({{"COLLAB_CODEC", "int7"}}),
            "COLLAB_CODEC: expected a codec, or one for each way such as int4/int8 "
            "(fp32|bf16|fp16|int8|int4|int4-e3m0|int2|topk64|topk128, or UP/DOWN), got \"int7\" "
            "[knob.bad-value]");
  EXPECT_THAT(error_of({}, {{"connections", "65"}}),
              HasSubstr("the option \"connections\": expected a whole number (1..64 or auto), got \"65\""));
  EXPECT_THAT(error_of({}, {{"connections", "0"}}), HasSubstr("1..64 or auto")) << "0 is how auto is kept, not said";
  EXPECT_THAT(error_of({{"COLLAB_TCP_CONGESTION", "BBR; no"}}), HasSubstr("tcp_available_congestion_control"));
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
  EXPECT_EQ(shared_settings(a->config), shared_settings(b->config));
  EXPECT_EQ(values_of(*a)["sync_every"], "120s");
}

TEST(SharedSettings, AreTheKnobsThatMustAgree) {
  const auto loaded = load_config({});
  ASSERT_TRUE(loaded.ok());
  std::vector<std::string> names;
  for (const auto& [name, _] : shared_settings(loaded->config)) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("sync_every", "target_overhead", "sync_warmup", "sync_anneal", "fragments",
                                            "overlap", "merge", "codec", "error_feedback", "feedback_decay",
                                            "keep_fp16", "outer_optimizer", "outer_lr", "outer_momentum", "outer_clip",
                                            "weight", "buffers", "chunk_kib"));
}

TEST(LoadConfig, ReadsKeptTensorsAsAListOfWords) {
  EXPECT_EQ(config_of({}).keep_fp16, "none");
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "wan"}}).keep_fp16, "small");
  EXPECT_EQ(config_of({{"COLLAB_PRESET", "wan"}, {"COLLAB_KEEP_FP16", "none"}}).keep_fp16, "none");
  EXPECT_EQ(config_of({{"COLLAB_KEEP_FP16", "small,wte,h.0_ln-f"}}).keep_fp16, "small,wte,h.0_ln-f");
  for (const char* bad : {",", "small,", ",norm", "a,,b", "a b", "wte*"}) {
    EXPECT_THAT(error_of({{"COLLAB_KEEP_FP16", bad}}), HasSubstr("COLLAB_KEEP_FP16: expected none, or words")) << bad;
  }
}

TEST(LoadConfig, PrintedSettingsCanBeReadBack) {
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

// `auto` alone begins as the preset does.
TEST(LoadConfig, AFirstPeriodIsPrintedWithAPreset) {
  for (const std::string first : {"auto:10", "auto:32"}) {
    const auto config = load_config({{"COLLAB_PRESET", "wan"}, {"COLLAB_SYNC_EVERY", first}});
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(values_of(*config)["sync_every"], first);
  }
}

}  // namespace
}  // namespace collab
