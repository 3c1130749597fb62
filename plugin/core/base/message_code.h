// The stable code that a message ends in, as "[join.model-mismatch]": its area, a dot, and a short name.
// docs/messages.md lists all of them. The code is part of the text, so that it goes wherever the text goes, also over
// the wire.
//
// Threads: pure functions.
#pragma once

#include <string_view>

namespace collab {

// The last code of the text, without its brackets; empty when it has none. A text that quotes another's reason has two
// codes: its own is the last one.
[[nodiscard]] std::string_view message_code(std::string_view text);

}  // namespace collab
