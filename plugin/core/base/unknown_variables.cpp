#include "core/base/unknown_variables.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/base/knobs.h"
#include "core/base/text.h"

namespace collab {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::array<std::string_view, 3> kProtocols{"TCP", "UDP", "SCTP"};
constexpr std::array<std::string_view, 4> kPartsOfPort{"", "_PROTO", "_PORT", "_ADDR"};
// Variables of an agent for its workers, and the library of UCX.
constexpr std::array<std::string_view, 6> kOwn{"START",    "SITE_STORE",     "WORLD",
                                               "ENDPOINT", "RENDEZVOUS_RUN", "UCX_LIBRARY"};

std::string squeezed(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Whether the name ends in these words: SERVICE_HOST, FOO_SERVICE_HOST.
bool ends_in(std::string_view name, std::string_view words) {
  return name.ends_with(words) && (name.size() == words.size() || name[name.size() - words.size() - 1] == '_');
}

// 29500_TCP, 29500_TCP_ADDR
bool is_port_of_service(std::string_view text) {
  const std::size_t number = std::min(text.find_first_not_of(kDigits), text.size());
  if (number == 0 || number == text.size() || text[number] != '_') return false;
  text.remove_prefix(number + 1);
  return std::ranges::any_of(kProtocols, [text](std::string_view protocol) {
    return text.starts_with(protocol) &&
           std::ranges::find(kPartsOfPort, text.substr(protocol.size())) != kPartsOfPort.end();
  });
}

bool is_of_kubernetes(std::string_view rest, std::string_view value) {
  if (ends_in(rest, "SERVICE_HOST") || ends_in(rest, "SERVICE_PORT")) return true;
  const bool place = value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
  if (ends_in(rest, "PORT") && place) return true;
  for (const std::string_view words : {"SERVICE_PORT_", "PORT_"}) {
    for (std::size_t at = rest.find(words); at != std::string_view::npos; at = rest.find(words, at + 1)) {
      if (at > 0 && rest[at - 1] != '_') continue;
      const std::string_view behind = rest.substr(at + words.size());
      // If a service's port has a name, SERVICE_PORT_HTTP gives the number.
      if (words == "SERVICE_PORT_" ? !behind.empty() : is_port_of_service(behind)) return true;
    }
  }
  return false;
}

const Knob* misspelt_knob(std::string_view rest, std::span<const Knob> knobs) {
  constexpr std::size_t kCharactersAnEdit = 4;
  const std::string name = squeezed(rest);
  const Knob* best = nullptr;
  std::size_t fewest = 0;
  for (const Knob& knob : knobs) {
    for (const std::string_view each : {knob.name, knob.old_name}) {
      if (each.empty()) continue;
      const std::string known = squeezed(each);
      const std::size_t edits = edit_distance(name, known);
      if (edits > std::max<std::size_t>(known.size() / kCharactersAnEdit, 1)) continue;
      if (best == nullptr || edits < fewest) {
        best = &knob;
        fewest = edits;
      }
    }
  }
  return best;
}

}  // namespace

UnknownVariable classify_variable(std::string_view variable, std::string_view value, std::span<const Knob> knobs) {
  const std::string_view rest = variable.substr(std::min(kVariablePrefix.size(), variable.size()));
  if (std::ranges::find(kOwn, rest) != kOwn.end()) return {UnknownVariableKind::kOwn};
  if (is_of_kubernetes(rest, value)) return {UnknownVariableKind::kKubernetes};
  if (const Knob* meant = misspelt_knob(rest, knobs)) return {UnknownVariableKind::kMisspelt, meant};
  return {};
}

std::string foreign_text(const KnobTexts& environment) {
  std::set<std::string> names;
  for (const auto& [variable, value] : environment) {
    if (!variable.starts_with(kVariablePrefix) || !rows_of_variable(variable).empty()) continue;
    if (classify_variable(variable, value, knob_table()).kind == UnknownVariableKind::kForeign) names.insert(variable);
  }
  if (names.empty()) return "";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list +
         (names.size() == 1 ? " is in the environment and is not a knob"
                            : " are in the environment and are not knobs") +
         " of collab, nor similar to one: not used (`collab config` lists all) [knob.foreign]";
}

}  // namespace collab
