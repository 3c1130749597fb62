// Which transport a process uses for its links to others, by what it is given: the knobs, a key, a UCX that loads.
//
// Threads: a pure function, as far as its argument is one. Ownership: none.
#pragma once

#include <functional>
#include <string>

#include "collab/config.h"
#include "collab/status.h"

namespace collab {

struct LinkChoice {
  std::string kind;         // "tcp", "ucx" or "gloo"
  std::string reason;       // says whether links are encrypted
  bool key_unused = false;  // a key is given, which this kind does not use: worth a warning
};

// `auto` is tcp: UCX opens ports that a stranger can end the process by, so it is for those who name it. Asks
// `ucx_loads` only then; not ok: why UCX cannot be used. kRefused says what stands in the way.
[[nodiscard]] Result<LinkChoice> choose_links(const Config& config, const std::function<Status()>& ucx_loads);
// "links between sites use tcp: ..."
[[nodiscard]] std::string to_string(const LinkChoice& choice);
// What a program that was built without the ucx transport answers where UCX is asked for.
[[nodiscard]] Status ucx_not_built();

}  // namespace collab
