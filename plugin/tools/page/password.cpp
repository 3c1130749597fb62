#include "tools/page/password.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "core/base/text.h"
#include "transport/tcp/tcp_transport.h"

namespace collab::page {
namespace {

constexpr std::string_view kPurpose = "page password";  // must match `collab token --page-password`
constexpr std::size_t kPasswordBytes = 16;
constexpr std::size_t kLongestHeader = 1024;

std::string base64(const unsigned char* bytes, std::size_t count) {
  std::string text(4 * ((count + 2) / 3) + 1, '\0');
  text.resize(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes, static_cast<int>(count)));
  return text;
}

}  // namespace

Result<std::vector<std::string>> passwords_of(const LoadedConfig& config) {
  const Result<SwarmSecrets> secrets = swarm_secrets(tcp_options(config), kPurpose);
  if (!secrets.ok()) return secrets.status();
  std::vector<std::string> passwords;
  for (const std::vector<unsigned char>& secret : *secrets) {
    std::string& password = passwords.emplace_back();
    for (std::size_t i = 0; i < kPasswordBytes; ++i) password += hexadecimal(secret.at(i), 2);
  }
  return passwords;
}

std::string password_in(std::string_view authorization) {
  constexpr std::string_view kScheme = "basic ";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b; };
  if (authorization.size() > kLongestHeader || authorization.size() < kScheme.size() ||
      !std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme, same)) {
    return {};
  }
  const std::string_view coded = authorization.substr(kScheme.size());
  std::string text(coded.size(), '\0');
  const int bytes =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(coded.data()), static_cast<int>(coded.size()));
  if (bytes <= 0) return {};
  text.resize(bytes - (coded.ends_with("==") ? 2 : coded.ends_with('=') ? 1 : 0));
  const std::size_t colon = text.find(':');
  return colon == std::string::npos ? std::string() : text.substr(colon + 1);
}

bool is_one_of(std::string_view given, const std::vector<std::string>& passwords) {
  bool found = false;
  for (const std::string& password : passwords) {
    found |= given.size() == password.size() && CRYPTO_memcmp(given.data(), password.data(), given.size()) == 0;
  }
  return found;
}

std::string digest_of_element(std::string_view html, std::string_view tag) {
  const std::string open = "<" + std::string(tag) + ">";
  const std::size_t from = html.find(open) + open.size();
  const std::string_view text = html.substr(from, html.find("</" + std::string(tag) + ">", from) - from);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1) length = 0;
  return "'sha256-" + base64(digest.data(), length) + "'";
}

}  // namespace collab::page
