// What protects a connection, TLS or nothing, and how far this is settled. The first byte of an accepted connection
// tells whether it uses TLS. A dialler chooses with its own first byte, and the answer may be a refusal in the clear.
//
// Threads: one at a time. Ownership: a connection's own; owns its TLS stream.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/tls/tcp_keys.h"
#include "transport/tcp/tls/tcp_tls.h"

namespace collab::tcp {

class SecurityLayer {
 public:
  void dial() { dialled_ = true; }
  [[nodiscard]] bool dialled() const { return dialled_; }
  // For a dialler, once it is connected. Null: in the clear.
  Status begin(TlsKeys* keys);
  enum class FirstByte : std::uint8_t {
    kProceeds,  // TLS, or a refusal in the clear that answers a dial in TLS
    kClear,     // accepted, and neither side uses TLS
    kForeign,   // not a transport of ours
    kMismatch,  // one side uses TLS and the other does not
  };
  [[nodiscard]] FirstByte settle(std::byte first, TlsKeys* keys);  // null: in the clear
  [[nodiscard]] bool settled() const { return first_byte_seen_; }

  // True if the incoming bytes are plain frames.
  [[nodiscard]] bool clear() const { return tls_ == nullptr || unauthenticated_; }
  // True if this is known before more bytes arrive.
  [[nodiscard]] bool known_clear() const { return (first_byte_seen_ || dialled_) && tls_ == nullptr; }
  [[nodiscard]] TlsStream* tls() { return tls_.get(); }  // null: in the clear
  [[nodiscard]] bool has_outgoing() const { return tls_ != nullptr && !tls_->outgoing().empty(); }
  // Continues the TLS handshake; true once it is complete.
  Result<bool> handshake();

  // True once the peer has sent a fitting ClientHello (with a token: made with that token), or its first byte in the
  // clear.
  [[nodiscard]] bool hello_received() const { return hello_received_; }
  // The peer answered our dial in TLS in the clear. It may only refuse, and anybody may have sent that refusal.
  [[nodiscard]] bool unauthenticated() const { return unauthenticated_; }
  [[nodiscard]] std::vector<std::string> authenticated_names() const;
  [[nodiscard]] bool fits(const TlsContext& keys) const { return tls_ == nullptr || keys.accepts(tls_->key()); }

 private:
  std::unique_ptr<TlsStream> tls_;
  bool dialled_ = false;
  bool first_byte_seen_ = false;
  bool hello_received_ = false;
  bool unauthenticated_ = false;
};

}  // namespace collab::tcp
