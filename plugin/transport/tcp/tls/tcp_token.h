// The swarm's token, and the keys derived from it.
//
// `collab token` makes a token from 256 random bits: `clb_`, 43 characters of base64url, and the first 8 hexadecimal
// digits of the SHA-256 of the text before them. These digits show that `collab token` made it. Any other text is a
// user's own and may be guessable. The identity in each TLS greeting lets an attacker try guesses offline. So each
// process stretches such a text once, by scrypt (RFC 7914), before it derives keys from it. Each guess then costs 64
// MiB and some tenths of a second.
// Threads: any. Ownership: the process keeps what it has stretched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collab/status.h"

namespace collab::tcp {

// RFC 5869 with SHA-256. Every key derived from a swarm's token uses this salt and its own purpose.
inline constexpr std::string_view kSwarmSalt = "collab swarm key 1";
[[nodiscard]] Result<std::vector<unsigned char>> hkdf(std::string_view secret, std::string_view salt,
                                                      std::string_view purpose, std::size_t bytes);
// RFC 7914.
struct ScryptCost {
  std::uint64_t n = std::uint64_t{1} << 16, r = 8, p = 1;
};
[[nodiscard]] Result<std::vector<unsigned char>> scrypt(std::string_view secret, std::string_view salt, ScryptCost cost,
                                                        std::size_t bytes);

inline constexpr std::size_t kShortestToken = 32;  // a shorter one is refused
// kInvalidArgument: it is too short, or `collab token` made it and it was changed since.
[[nodiscard]] Status check_token(const std::string& token);
[[nodiscard]] bool is_made_token(const std::string& token);  // by `collab token`

// The key for this purpose. Stretches a user's own text, and warns about such a text the first time.
[[nodiscard]] Result<std::vector<unsigned char>> key_of_token(const std::string& token, std::string_view purpose,
                                                              std::size_t bytes);

}  // namespace collab::tcp
