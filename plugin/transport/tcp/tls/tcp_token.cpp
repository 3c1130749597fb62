#include "transport/tcp/tls/tcp_token.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"

namespace collab::tcp {
namespace {

constexpr std::string_view kPrefix = "clb_";
constexpr std::size_t kRandomDigits = 43;  // of base64url: 256 bits
constexpr std::size_t kCheckDigits = 8;
constexpr std::size_t kMadeLength = kPrefix.size() + kRandomDigits + kCheckDigits;
constexpr std::size_t kStretchedBytes = 32;

using Octets = std::vector<unsigned char>;

OSSL_PARAM octets(const char* name, std::string_view text) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(text.data()), text.size());
}

// Empty if OpenSSL has no such function, or refuses.
Octets derive(const char* function, const OSSL_PARAM* parameters, std::size_t bytes) {
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, function, nullptr);
  EVP_KDF_CTX* const context = kdf != nullptr ? EVP_KDF_CTX_new(kdf) : nullptr;
  Octets key(bytes);
  if (context == nullptr || EVP_KDF_derive(context, key.data(), bytes, parameters) != 1) key.clear();
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  return key;
}

std::string sha256(std::string_view text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int length = 0;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &length, EVP_sha256(),
                 nullptr) != 1) {
    length = 0;
  }
  digest.resize(length);
  return digest;
}

std::string check_digits(std::string_view text) {
  std::string digits;
  for (const unsigned char byte : sha256(text).substr(0, kCheckDigits / 2)) digits += hexadecimal(byte, 2);
  return digits;
}

// Whether the text looks like a token of `collab token`, apart from the check digits.
bool has_started(const std::string& token) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return token.size() == kMadeLength && token.starts_with(kPrefix) &&
         token.find_first_not_of(kDigits) == std::string::npos;
}

// Caches keys under the token's hash, so that the token itself is not kept.
Result<Octets> stretched(const std::string& token) {
  static std::mutex mutex;
  static auto* const made = new std::map<std::string, Octets>;  // never destroyed: threads may outlive main()
  const std::string hash = sha256(token);
  const std::lock_guard lock(mutex);
  if (const auto found = made->find(hash); found != made->end()) return found->second;
  log_warning(
      "COLLAB_TOKEN was not made by `collab token` of this version, and anyone who records the start of a connection "
      "may guess it. So it is stretched, which makes guessing slow and this start some tenths of a second longer. "
      "`collab token` makes a better one [token.not-made]");
  Result<Octets> key = scrypt(token, kSwarmSalt, {}, kStretchedBytes);
  if (key.ok()) made->emplace(hash, *key);
  return key;
}

}  // namespace

Result<Octets> hkdf(std::string_view secret, std::string_view salt, std::string_view purpose, std::size_t bytes) {
  std::string digest = "SHA256";
  const std::array<OSSL_PARAM, 5> parameters{OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
                                             octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_SALT, salt),
                                             octets(OSSL_KDF_PARAM_INFO, purpose), OSSL_PARAM_construct_end()};
  Octets key = derive("HKDF", parameters.data(), bytes);
  if (key.empty())
    return internal_error("OpenSSL does not derive a key from COLLAB_TOKEN: it has no HKDF [token.no-hkdf]");
  return key;
}

Result<Octets> scrypt(std::string_view secret, std::string_view salt, ScryptCost cost, std::size_t bytes) {
  std::uint64_t memory = 128 * cost.r * (cost.n + cost.p + 2);  // the memory scrypt needs; OpenSSL refuses less
  const std::array<OSSL_PARAM, 7> parameters{octets(OSSL_KDF_PARAM_PASSWORD, secret),
                                             octets(OSSL_KDF_PARAM_SALT, salt),
                                             OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_N, &cost.n),
                                             OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_R, &cost.r),
                                             OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_P, &cost.p),
                                             OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_MAXMEM, &memory),
                                             OSSL_PARAM_construct_end()};
  Octets key = derive("SCRYPT", parameters.data(), bytes);
  if (key.empty()) {
    return internal_error(
        "OpenSSL does not stretch COLLAB_TOKEN: it has no scrypt, or too little memory; use a token "
        "that `collab token` has made [token.no-scrypt]");
  }
  return key;
}

Status check_token(const std::string& token) {
  if (token.size() < kShortestToken) {
    return invalid_argument("COLLAB_TOKEN: expected the text that `collab token` makes, got one of " +
                            std::to_string(token.size()) + " characters; a token shorter than " +
                            std::to_string(kShortestToken) + " could be guessed [token.guessable]");
  }
  if (has_started(token) && !is_made_token(token)) {
    return invalid_argument(
        "COLLAB_TOKEN: its last " + std::to_string(kCheckDigits) +
        " characters do not fit the rest: this token is not what `collab token` made; copy it again [token.miscopied]");
  }
  return {};
}

bool is_made_token(const std::string& token) {
  if (!has_started(token)) return false;
  const auto body = std::string_view(token).substr(0, kMadeLength - kCheckDigits);
  return std::string_view(token).substr(body.size()) == check_digits(body);
}

Result<Octets> key_of_token(const std::string& token, std::string_view purpose, std::size_t bytes) {
  COLLAB_RETURN_IF_ERROR(check_token(token));
  if (is_made_token(token)) return hkdf(token, kSwarmSalt, purpose, bytes);
  const Result<Octets> secret = stretched(token);
  if (!secret.ok()) return secret.status();
  return hkdf({reinterpret_cast<const char*>(secret->data()), secret->size()}, kSwarmSalt, purpose, bytes);
}

}  // namespace collab::tcp
