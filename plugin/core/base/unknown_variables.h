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
  kOwn,         // collab's, between its own processes, or read where UCX is loaded: passed over
  kKubernetes,  // made by Kubernetes for a Service: passed over
  kMisspelt,    // near a knob's name: refused
  kForeign,     // somebody's own, or not near enough: warned of
};

struct UnknownVariable {
  UnknownVariableKind kind = UnknownVariableKind::kForeign;
  const Knob* meant = nullptr;  // kMisspelt
};

// `variable` is not a knob's. Kubernetes' are known by their names, and of those that end in _PORT alone by the value:
// tcp://10.0.0.1:29500, as nobody writes a port. Near is what one edit (a letter more, less, another, or two swapped)
// for each four characters of the knob's name or old name, and at least one, makes of it, in lower case and without
// '_': SYNC_EVRY, CODDEC, STATEDIR and codec are near a knob, MY_EXPERIMENT, TEAM and LOG_DIR are not.
[[nodiscard]] UnknownVariable classify_variable(std::string_view variable, std::string_view value,
                                                std::span<const Knob> knobs);

// One warning for all that are foreign; empty where none is. `environment` as for load_config.
[[nodiscard]] std::string foreign_text(const KnobTexts& environment);

}  // namespace collab
