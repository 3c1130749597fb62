#include "transport/tcp/connection/security_layer.h"

#include "transport/tcp/wire/tcp_wire.h"

namespace collab::tcp {
namespace {

constexpr std::byte kTlsRecord{0x16};

}  // namespace

Status SecurityLayer::begin(TlsKeys* keys) {
  if (keys == nullptr) return {};
  tls_ = std::make_unique<TlsStream>(keys->current(), true);
  return tls_->handshake().status();
}

SecurityLayer::FirstByte SecurityLayer::settle(std::byte first, TlsKeys* keys) {
  first_byte_seen_ = true;
  const bool clear = first == static_cast<std::byte>(kMagic[0]);
  if (dialled_) {
    unauthenticated_ = clear;
    return FirstByte::kProceeds;
  }
  if (keys != nullptr && first == kTlsRecord) {
    tls_ = std::make_unique<TlsStream>(keys->current(), false);
    return FirstByte::kProceeds;
  }
  if (keys == nullptr && clear) {
    hello_received_ = true;
    return FirstByte::kClear;
  }
  return clear || first == kTlsRecord ? FirstByte::kMismatch : FirstByte::kForeign;
}

Result<bool> SecurityLayer::handshake() {
  Result<bool> done = tls_->handshake();
  if (done.ok()) hello_received_ = hello_received_ || *done || has_outgoing();
  return done;
}

std::vector<std::string> SecurityLayer::authenticated_names() const {
  return tls_ != nullptr && tls_->open() ? tls_->names() : std::vector<std::string>();
}

}  // namespace collab::tcp
