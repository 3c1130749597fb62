// COLLAB_ variables that are not knobs, and where they may come from.
//
// Kubernetes puts COLLAB_SERVICE_HOST, COLLAB_PORT_29500_TCP_ADDR and so on into every pod beside a Service named
// `collab`, and COLLAB_FOO_SERVICE_HOST and so on for one named `collab-foo`. People also use such names themselves.
// Threads: pure functions. Ownership: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collab/config.h"

namespace collab {

enum class UnknownVariableKind : std::uint8_t {
  kOwn,         // collab's own, for its processes or for loading UCX: ignored
  kKubernetes,  // made by Kubernetes for a Service: ignored
  kMisspelt,    // near a knob's name: refused
  kForeign,     // a user's own, or not near enough: gives a warning
};

struct UnknownVariable {
  UnknownVariableKind kind = UnknownVariableKind::kForeign;
  const Knob* meant = nullptr;  // kMisspelt
};

// `variable` is not a knob's. Variables of Kubernetes are recognised by name. If a name ends in just _PORT, its value
// decides: tcp://10.0.0.1:29500, as nobody writes a port. A name is near a knob's name or old name within one edit
// (insert, delete, replace, swap) for each four characters, and at least one, in lower case and without '_'. SYNC_EVRY,
// CODDEC, STATEDIR and codec are near a knob; MY_EXPERIMENT, TEAM and LOG_DIR are not.
[[nodiscard]] UnknownVariable classify_variable(std::string_view variable, std::string_view value,
                                                std::span<const Knob> knobs);

// One warning for all foreign variables; empty if there are none. `environment` as for load_config.
[[nodiscard]] std::string foreign_text(const KnobTexts& environment);

}  // namespace collab
