// Knobs from text: lines NAME=VALUE, the first half as variables, those after an empty line as options.
#include <algorithm>
#include <string>
#include <string_view>

#include "collab/config.h"
#include "core/base/address.h"
#include "core/base/knobs.h"
#include "core/base/unknown_variables.h"
#include "tests/fuzz/fuzz_target.h"

namespace collab::fuzz {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void check(const Pairs& environment, const Pairs& options) {
  const auto loaded = load_config(environment, options);
  if (!loaded.ok()) {
    FUZZ_CHECK(loaded.status().code() == StatusCode::kInvalidArgument);
    FUZZ_CHECK(!loaded.status().message().empty());
    return;
  }
  FUZZ_CHECK(loaded->values.size() == knob_table().size());
  // A variable is a knob, or passed over for its name, or told as foreign; never a misspelling.
  const std::string foreign = foreign_text(environment);
  for (const auto& [variable, text] : environment) {
    if (!variable.starts_with("COLLAB_")) continue;
    const bool knob = !rows_of_variable(variable).empty();
    const UnknownVariableKind kind = classify_variable(variable, text, knob_table()).kind;
    FUZZ_CHECK((kind == UnknownVariableKind::kMisspelt) == knob);
    FUZZ_CHECK(kind != UnknownVariableKind::kForeign || foreign.find(variable) != std::string::npos);
  }
  // What is printed is accepted, and means the same.
  Pairs printed;
  for (const KnobValue& value : loaded->values) {
    if (!value.knob->secret) printed.emplace_back(value.knob->name, value.value);
  }
  const auto again = load_config({}, printed);
  FUZZ_CHECK(again.ok());
  for (std::size_t i = 0; i < again->values.size(); ++i) {
    FUZZ_CHECK(again->values[i].knob->secret || again->values[i].value == loaded->values[i].value);
  }
}

void check_address(std::string_view text) {
  const auto address = parse_host_port(text);
  if (!address.ok()) return;
  const auto again = parse_host_port(to_string(*address));
  FUZZ_CHECK(again.ok() && *again == *address);
}

}  // namespace

std::vector<Input> seed_inputs() {
  std::vector<Input> inputs;
  const auto add = [&](const std::string& text) { inputs.emplace_back(text.begin(), text.end()); };
  std::string all;
  for (const Knob& knob : knob_table()) {
    all += variable_of(knob.name) + "=" + std::string(knob.default_) + "\n";
  }
  add(all);
  add("COLLAB_SYNC_EVERY=30s\nCOLLAB_PRESET=pretrain\nCOLLAB_OUTER=nesterov\nCOLLAB_SITE_COUNT=3\nCOLLAB_OUTER_LR=0."
      "7\n");
  add("COLLAB_COORDINATOR=paris:29500,[fe80::1%eth0]:29501\nCOLLAB_LISTEN=[::]:0\n");
  add("COLLAB_SERVICE_HOST=10.0.0.1\nCOLLAB_FOO_PORT_29500_TCP_ADDR=10.0.0.1\nCOLLAB_PORT=tcp://"
      "10.0.0.1:1\nCOLLAB_TEAM=x\n");
  add("\nsync_every=1.5h\nheartbeat=250ms\nlink_grace=1\nsite=a\nsite_index=7\n");
  return inputs;
}

}  // namespace collab::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  collab::fuzz::Pairs environment;
  collab::fuzz::Pairs options;
  bool is_option = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    is_option = is_option || line.empty();
    const std::size_t equals = std::min(line.find('='), line.size());
    const std::string_view value = line.substr(std::min(equals + 1, line.size()));
    (is_option ? options : environment).emplace_back(line.substr(0, equals), value);
    collab::fuzz::check_address(value);
  }
  collab::fuzz::check(environment, options);
  return 0;
}
