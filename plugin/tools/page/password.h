// The page's password. It is made from the swarm's token under its own purpose. It opens the page, but does not let
// anyone join or learn the token.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collab/config.h"
#include "collab/status.h"

namespace collab::page {

// One for each of the swarm's tokens, the first for the one that is spoken; none without a token.
[[nodiscard]] Result<std::vector<std::string>> passwords_of(const LoadedConfig& config);

// "Basic dXNlcjpwYXNzd29yZA==": the password, whatever the user's name is; empty: there is none.
[[nodiscard]] std::string password_in(std::string_view authorization);
// Compares in a time that does not depend on where they differ.
[[nodiscard]] bool is_one_of(std::string_view given, const std::vector<std::string>& passwords);

// For a Content-Security-Policy: 'sha256-...' of what stands between <tag> and </tag>.
[[nodiscard]] std::string digest_of_element(std::string_view html, std::string_view tag);

}  // namespace collab::page
