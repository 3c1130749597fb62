#include "core/base/keyed_digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstring>
#include <type_traits>

namespace collab {

static_assert(sizeof(Digest) == 16 && std::is_trivially_copyable_v<Digest>);

Digest keyed_digest(const Digest& secret, std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned length = 0;
  HMAC(EVP_sha256(), &secret, sizeof secret, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       mac.data(), &length);
  Digest digest;
  std::memcpy(static_cast<void*>(&digest), mac.data(), sizeof digest);
  return digest;
}

}  // namespace collab
