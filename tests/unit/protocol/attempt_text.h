// An attempt in words, for code that checks the agreement.
//
// Threads and ownership: plain values.
#pragma once

#include <string>

#include "core/wire/messages.h"

namespace collab::protocol {

inline std::string text_of(RoundId round, AttemptId attempt) {
  return "round " + std::to_string(round.value) + " attempt " + std::to_string(attempt.value);
}

}  // namespace collab::protocol
