#include "collab/config.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "collab/codec.h"
#include "core/base/knobs.h"
#include "core/base/presets.h"
#include "core/base/text.h"
#include "core/base/unknown_variables.h"

namespace collab {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string_view nearest_knob(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KnobRow& row : knob_rows()) names.push_back(row.knob.name);
  return nearest(lower(name), names);
}

std::string_view nearest_word(std::string_view text, std::string_view range) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t bar = std::min(range.find('|'), range.size());
    words.push_back(range.substr(0, bar));
    if (bar == range.size()) return nearest(lower(text), words);
    range.remove_prefix(bar + 1);
  }
}

std::string text_in_force(std::string_view name, const Config& config) { return row_of(name)->form.format(config); }

// A value that was given for one knob.
struct Given {
  std::string text;
  std::string spelling;  // how the name was written, for messages
};

// "COLLAB_LOG" and "COLLAB_LOG_LEVEL" with the same value count as one.
bool same_value(const KnobRow& row, const std::string& a, const std::string& b) {
  if (a == b) return true;
  Config first;
  Config second;
  return row.form.parse(a, first) && row.form.parse(b, second) && row.form.format(first) == row.form.format(second);
}

// One source of values.
class Layer {
 public:
  explicit Layer(std::string source) : source_(std::move(source)), given_(knob_rows().size()) {}

  Status take(const KnobRow& row, const std::string& text, const std::string& spelling) {
    std::optional<Given>& given = given_[index_of(row)];
    if (given && given->spelling != spelling && !same_value(row, given->text, text)) {
      return invalid_argument(given->spelling + " is \"" + given->text + "\" and " + spelling + " is \"" + text +
                              "\", but they are two names of one knob: leave the old one out (" +
                              variable_of(row.knob.name) + " is the new one) [knob.two-names]");
    }
    given = {text, spelling};
    return {};
  }

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] const std::optional<Given>& given(const KnobRow& row) const { return given_[index_of(row)]; }

 private:
  static std::size_t index_of(const KnobRow& row) { return static_cast<std::size_t>(&row - knob_rows().data()); }

  std::string source_;
  std::vector<std::optional<Given>> given_;  // by row
};

class Loader {
 public:
  Status take_variable(const std::string& variable, const std::string& text) {
    if (!variable.starts_with(kVariablePrefix)) return {};
    const std::vector<const KnobRow*> rows = rows_of_variable(variable);
    if (rows.empty()) return check_unknown(variable, text);
    for (const KnobRow* row : rows) COLLAB_RETURN_IF_ERROR(environment_.take(*row, text, variable));
    return {};
  }

  Status take_option(const std::string& name, const std::string& text) {
    const std::vector<const KnobRow*> rows = rows_meant(name);
    if (rows.empty()) {
      return invalid_argument("the option \"" + name + "\" is not a knob of collab; the nearest one is \"" +
                              std::string(nearest_knob(name)) + "\" (`collab config` lists all) [knob.unknown-option]");
    }
    for (const KnobRow* row : rows) COLLAB_RETURN_IF_ERROR(options_.take(*row, text, "the option \"" + name + "\""));
    return {};
  }

  Status take_rendezvous(const std::string& name, const std::string& text) {
    return rendezvous_.take(*row_of(name), text, "the rendezvous' " + name);
  }

  Result<LoadedConfig> finish() {
    COLLAB_RETURN_IF_ERROR(take_preset());
    LoadedConfig loaded;
    for (const KnobRow& row : knob_rows()) {
      const Layer* layer = layer_of(row);
      if (layer != nullptr) {
        COLLAB_RETURN_IF_ERROR(read(row, *layer->given(row), loaded.config));
      } else {
        COLLAB_RETURN_IF_ERROR(read(row, {std::string(row.knob.default_), std::string(row.knob.name)}, loaded.config));
      }
      loaded.values.push_back(
          {&row.knob, row.form.format(loaded.config), layer == nullptr ? std::string("default") : layer->source()});
    }
    const Config& config = loaded.config;
    if (config.link_grace < 2 * config.heartbeat) {
      return invalid_argument("COLLAB_LINK_GRACE: expected at least twice COLLAB_HEARTBEAT, which is " +
                              text_in_force("heartbeat", config) + "; got " + text_in_force("link_grace", config) +
                              ": otherwise a site would count as dead between two heartbeats [knob.link-grace]");
    }
    if (config.sync_warmup > 0 && config.sync_every.steps == 0) {
      return invalid_argument(
          "COLLAB_SYNC_WARMUP: expected 0 where COLLAB_SYNC_EVERY is a time, which is " +
          text_in_force("sync_every", config) + "; got " + text_in_force("sync_warmup", config) +
          ": the warm-up counts in steps, so give COLLAB_SYNC_EVERY in steps or as auto [knob.warmup-by-time]");
    }
    if (config.sync_anneal.steps > 0 && (config.sync_every.automatic || config.sync_every.steps == 0)) {
      return invalid_argument(
          "COLLAB_SYNC_ANNEAL: expected 0 unless COLLAB_SYNC_EVERY is a number of steps, which is " +
          text_in_force("sync_every", config) + "; got " + text_in_force("sync_anneal", config) +
          ": the anneal needs rounds of a known length, so give COLLAB_SYNC_EVERY in steps "
          "[knob.anneal-needs-steps]");
    }
    return loaded;
  }

 private:
  // A misspelling is refused. Otherwise the intended knob would silently keep its default.
  static Status check_unknown(const std::string& variable, const std::string& text) {
    const UnknownVariable stranger = classify_variable(variable, text, knob_table());
    if (stranger.kind != UnknownVariableKind::kMisspelt) return {};
    return invalid_argument("the environment variable " + variable + " is not a knob of collab; the nearest one is " +
                            variable_of(stranger.meant->name) + " (`collab config` lists all) [knob.misspelt]");
  }

  Status take_preset() {
    const KnobRow& row = *row_of("preset");
    const Layer* layer = layer_of(row);
    if (layer == nullptr) return {};
    const Given& given = *layer->given(row);
    Config named;
    COLLAB_RETURN_IF_ERROR(read(row, given, named));
    const Preset* preset = preset_named(named.preset);
    if (preset == nullptr) return {};
    preset_ = Layer("preset " + named.preset);
    for (const auto& [name, text] : preset->values) {
      COLLAB_RETURN_IF_ERROR(preset_.take(*row_of(name), std::string(text), variable_of(name)));
    }
    return {};
  }

  [[nodiscard]] const Layer* layer_of(const KnobRow& row) const {
    for (const Layer* layer : {&options_, &environment_, &preset_, &rendezvous_}) {
      if (layer->given(row)) return layer;
    }
    return nullptr;
  }

  static Status read(const KnobRow& row, const Given& given, Config& config) {
    if (row.form.parse(given.text, config)) return {};
    const Knob& knob = row.knob;
    std::string message =
        given.spelling + ": expected " + std::string(row.form.expected) + " (" + std::string(knob.range) + "), got " +
        (knob.secret ? std::to_string(given.text.size()) + " characters, not shown" : "\"" + given.text + "\"");
    if (row.form.type == KnobType::kWord) {
      message += "; the nearest one is " + std::string(nearest_word(given.text, knob.range));
    }
    return invalid_argument(message + " [knob.bad-value]");
  }

  Layer options_{"options"};
  Layer environment_{"environment"};
  Layer preset_{"preset"};
  Layer rendezvous_{std::string(kFromRendezvous)};
};

// Empty if there are none.
std::string old_names_text(const KnobTexts& environment) {
  std::string text;
  for (const auto& [variable, _] : environment) {
    std::string names;
    for (const KnobRow* row : rows_of_variable(variable)) {
      const std::string name = variable_of(row->knob.name);
      if (name != variable) names += (names.empty() ? "" : " and ") + name;
    }
    if (!names.empty()) text += (text.empty() ? "" : ", ") + (variable + " is now called " + names);
  }
  return text.empty() ? "" : text + ": the old name still works, but not forever [knob.old-name]";
}

}  // namespace

Config::Config() {
  for (const KnobRow& row : knob_rows()) {
    COLLAB_CHECK(row.form.parse(row.knob.default_, *this), "a knob's default is not of its form");
  }
}

const Config& default_config() {
  static const Config& defaults = *new Config;  // never destroyed: others may be made at the end of the process
  return defaults;
}

std::span<const Knob> knob_table() {
  static const std::vector<Knob> kTable = [] {
    std::vector<Knob> table;
    for (const KnobRow& row : knob_rows()) table.push_back(row.knob);
    return table;
  }();
  return kTable;
}

Result<LoadedConfig> load_config(const KnobTexts& environment, const KnobTexts& options, const KnobTexts& rendezvous) {
  Loader loader;
  for (const auto& [variable, text] : environment) COLLAB_RETURN_IF_ERROR(loader.take_variable(variable, text));
  for (const auto& [name, text] : options) COLLAB_RETURN_IF_ERROR(loader.take_option(name, text));
  for (const auto& [name, text] : rendezvous) COLLAB_RETURN_IF_ERROR(loader.take_rendezvous(name, text));
  return loader.finish();
}

std::vector<std::string> environment_warnings(const KnobTexts& environment) {
  std::vector<std::string> warnings;
  for (std::string text : {foreign_text(environment), old_names_text(environment)}) {
    if (!text.empty()) warnings.push_back(std::move(text));
  }
  return warnings;
}

std::vector<std::string> value_warnings(const Config& config) {
  std::vector<std::string> warnings;
  const SyncEvery& every = config.sync_every;
  if (!every.automatic && every.steps > 0 && every.steps < config.fragments) {
    warnings.push_back("COLLAB_FRAGMENTS=" + text_in_force("fragments", config) +
                       " with COLLAB_SYNC_EVERY=" + text_in_force("sync_every", config) +
                       ": there is a round after every step, and each fragment is averaged every " +
                       text_in_force("fragments", config) + " steps [knob.short-period]");
  }
  // DiLoCo's own runs have many hundred rounds. Over few rounds, momentum carries the first steps' direction to the
  // end.
  constexpr std::uint64_t kFewRounds = 200;
  constexpr double kHighMomentum = 0.8;
  if (config.outer_optimizer == OuterId::kNesterov && config.outer_momentum > kHighMomentum &&
      config.sync_anneal.steps > 0 && config.sync_anneal.steps < kFewRounds * every.steps) {
    warnings.push_back(
        "COLLAB_OUTER_OPTIMIZER=nesterov with COLLAB_OUTER_MOMENTUM=" + text_in_force("outer_momentum", config) + ": " +
        std::to_string(config.sync_anneal.steps) +
        " steps (COLLAB_SYNC_ANNEAL) are fewer than 200 periods, and short runs with this much momentum have ended "
        "with a higher loss than with average; take COLLAB_OUTER_OPTIMIZER=average, or less momentum "
        "[knob.few-rounds]");
  }
  if (!has_top_k(config.codec)) return warnings;
  const std::string codec = "COLLAB_CODEC=" + text_in_force("codec", config);
  if (!config.error_feedback) {
    warnings.push_back("COLLAB_ERROR_FEEDBACK=0 with " + codec +
                       ": a round sends only a few of the elements, and what it leaves out is lost [knob.no-feedback]");
  }
  if (config.outer_optimizer == OuterId::kNesterov && config.outer_momentum > 0) {
    warnings.push_back(
        "COLLAB_OUTER_OPTIMIZER=nesterov with " + codec +
        ": its momentum repeats the few elements that a round sends, while the residual sends the others "
        "late; take COLLAB_OUTER_OPTIMIZER=average, or a codec that sends every element, such as int4 "
        "[knob.top-k-momentum]");
  }
  return warnings;
}

KnobTexts shared_settings(const Config& config) {
  KnobTexts settings;
  for (const KnobRow& row : knob_rows()) {
    if (row.knob.scope == KnobScope::kSites) settings.emplace_back(row.knob.name, row.form.format(config));
  }
  return settings;
}

}  // namespace collab
