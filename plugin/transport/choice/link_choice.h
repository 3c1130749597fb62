// Which transport a process uses for its links to others. This depends on the knobs and on whether UCX loads.
//
// Threads: a pure function if its argument is one. Ownership: none.
#pragma once

#include <functional>
#include <string>

#include "collab/config.h"
#include "collab/status.h"

namespace collab {

struct LinkChoice {
  std::string kind;         // "tcp", "ucx" or "gloo"
  std::string reason;       // says whether links are encrypted
  bool key_unused = false;  // a token or certificate is set, but this kind does not use it: worth a warning
};

// `auto` means tcp. UCX opens ports through which a stranger can end the process, so users must ask for it by name.
// Only then is `ucx_loads` called; its error says why UCX cannot be used. kRefused says what prevents the choice.
[[nodiscard]] Result<LinkChoice> choose_links(const Config& config, const std::function<Status()>& ucx_loads);
// "links between sites use tcp: ..."
[[nodiscard]] std::string to_string(const LinkChoice& choice);
// The answer of a program without the ucx transport, if UCX is asked for.
[[nodiscard]] Status ucx_not_built();

}  // namespace collab
