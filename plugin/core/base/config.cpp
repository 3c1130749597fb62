#include "collab/config.h"

#include <algorithm>
#include <cctype>

#include "core/base/knobs.h"
#include "core/base/strangers.h"
#include "core/base/text.h"

namespace collab {
namespace {

// DiLoCo's outer learning rate (Douillard et al. 2023); plain averaging takes the mean as it is.
constexpr double kNesterovLr = 0.7;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

const KnobRow* find_row(std::string_view name) {
  const auto rows = knob_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const KnobRow& r) { return r.knob.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

std::string_view nearest_knob(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KnobRow& row : knob_rows()) names.push_back(row.knob.name);
  return nearest(lower(name), names);
}

// Where a knob's text came from; the later one wins.
struct Setting {
  std::string text;
  std::string source;
  std::string spelling;  // how the person wrote the name, for messages
};

class Loader {
 public:
  Loader() : settings_(knob_rows().size()) {}

  Status take_variable(const std::string& variable, const std::string& text) {
    if (!variable.starts_with(kVariablePrefix)) return {};
    const KnobRow* row = row_of_variable(variable);
    if (row == nullptr) return check_stranger(variable, text);
    setting(*row) = {text, "environment", variable};
    return {};
  }

  Status take_option(const std::string& name, const std::string& text) {
    const KnobRow* row = find_row(name);
    if (row == nullptr) {
      return invalid_argument("the option \"" + name + "\" is not a knob of collab; the nearest one is \"" +
                              std::string(nearest_knob(name)) + "\" (`collab config` lists all)");
    }
    setting(*row) = {text, "options", "the option \"" + name + "\""};
    return {};
  }

  Result<LoadedConfig> finish() {
    LoadedConfig loaded;
    Config& config = loaded.config;
    const auto rows = knob_rows();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Setting& given = settings_[i];
      if (given.source.empty() || rows[i].parse(given.text, config)) continue;
      const Knob& knob = rows[i].knob;
      return invalid_argument(
          given.spelling + ": expected " + std::string(rows[i].start) + " (" + std::string(knob.range) + "), got " +
          (knob.secret ? std::to_string(given.text.size()) + " characters, not shown" : "\"" + given.text + "\""));
    }
    if (setting(*find_row("outer_lr")).source.empty()) {
      config.outer_lr = config.outer == OuterId::kNesterov ? kNesterovLr : 1.0;
    }
    if (config.link_grace < 2 * config.heartbeat) {
      return invalid_argument("COLLAB_LINK_GRACE: expected at least twice COLLAB_HEARTBEAT, which is " +
                              text_of("heartbeat", config) + "; got " + text_of("link_grace", config) +
                              ": a site would be taken for dead between two signs of life");
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      loaded.values.push_back({&rows[i].knob, rows[i].format(config),
                               settings_[i].source.empty() ? std::string("default") : settings_[i].source});
    }
    return loaded;
  }

 private:
  // A misspelling is refused: the knob that was meant would be at its default, and nobody know.
  static Status check_stranger(const std::string& variable, const std::string& text) {
    const Stranger stranger = stranger_of(variable, text, knob_table());
    if (stranger.kind != StrangerKind::kMisspelt) return {};
    return invalid_argument("the environment variable " + variable + " is not a knob of collab; the nearest one is " +
                            variable_of(*stranger.meant) + " (`collab config` lists all)");
  }

  Setting& setting(const KnobRow& row) { return settings_[static_cast<std::size_t>(&row - knob_rows().data())]; }
  static std::string text_of(std::string_view name, const Config& config) { return find_row(name)->format(config); }

  std::vector<Setting> settings_;  // by row
};

}  // namespace

std::span<const Knob> knob_table() {
  static const std::vector<Knob> kTable = [] {
    std::vector<Knob> table;
    for (const KnobRow& row : knob_rows()) table.push_back(row.knob);
    return table;
  }();
  return kTable;
}

Result<LoadedConfig> load_config(const std::vector<std::pair<std::string, std::string>>& environment,
                                 const std::vector<std::pair<std::string, std::string>>& options) {
  Loader loader;
  for (const auto& [variable, text] : environment) COLLAB_RETURN_IF_ERROR(loader.take_variable(variable, text));
  for (const auto& [name, text] : options) COLLAB_RETURN_IF_ERROR(loader.take_option(name, text));
  return loader.finish();
}

std::vector<std::pair<std::string, std::string>> shared_settings(const LoadedConfig& loaded) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const KnobValue& value : loaded.values) {
    if (value.knob->shared) settings.emplace_back(value.knob->name, value.value);
  }
  return settings;
}

std::string knob_table_markdown() {
  std::string table = "| variable | default | range | unit | what it does |\n|---|---|---|---|---|\n";
  for (const Knob& knob : knob_table()) {
    std::string range;
    for (const char c : knob.range)
      range += c == '|' ? std::string("\\|") : std::string(1, c);  // a cell's end otherwise
    table += "| `" + variable_of(knob) + "` | " + std::string(knob.default_) + " | " + range + " | " +
             std::string(knob.unit) + " | " + std::string(knob.sentence) +
             (knob.shared ? " All sites must agree." : "") + " |\n";
  }
  return table;
}

}  // namespace collab
