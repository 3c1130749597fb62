// The page's password, derived from the swarm's token for this purpose only. It opens the page, but nobody can join
// with it or learn the token from it.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collab/config.h"
#include "collab/status.h"

namespace collab::page {

// One password per token of the swarm; the spoken token's comes first. None without a token.
[[nodiscard]] Result<std::vector<std::string>> passwords_of(const LoadedConfig& config);

// The password in a header such as "Basic dXNlcjpwYXNzd29yZA==", whatever the user's name is. Empty: none.
[[nodiscard]] std::string password_in(std::string_view authorization);
// Compares in a time that does not depend on where the texts differ.
[[nodiscard]] bool is_one_of(std::string_view given, const std::vector<std::string>& passwords);

// For a Content-Security-Policy: 'sha256-...' of the text between <tag> and </tag>.
[[nodiscard]] std::string digest_of_element(std::string_view html, std::string_view tag);

}  // namespace collab::page
